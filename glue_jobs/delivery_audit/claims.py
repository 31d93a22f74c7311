"""An epoch that came under several client ids: which numbers count for which client. No Spark.

Each client id is judged by its own rows. Rows of another client count for it only where the digest of a
manifest proves them, so a client that sends in the epoch of another changes nothing for the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventplane.report_reader import (
    DIGESTS,
    MOST,
    RULES,
    ManifestReport,
    Range,
    Report,
    Statement,
    read_reports,
)
from glue_jobs.delivery_audit.completeness import EpochShare
from glue_jobs.delivery_audit.number_ranges import (
    Event,
    SeenNumbers,
    first_number,
    in_order,
    numbers_in,
    pack_events,
)
from glue_jobs.delivery_audit.rules import date_of

MOST_CLAIMS: Final = 8
"""Most epochs that a device claims beside one with more numbers, and most such devices of an epoch, for which
rows of other devices are read. Ours: so that false claims make an audit a few times longer at most."""


class HourRow(NamedTuple):
    """The events from one client in one epoch in one `hour` (counted from 1970), in the window or beside it.

    `events` have numbers and both digests, packed (`pack_events`). `others` are events without a number,
    packed in the same way with a hash of their names as the number, `best_effort` counts such events that are
    at best effort. `unread` are epoch and both digests of those with a number that cannot be read. `first`
    has time and file of the first, `quickest` the least time from recording to acceptance, time and file.
    `due` has the events that the device must store for services beside it, without the epoch (`home.Due`).
    """

    client_id: str
    epoch: str | None
    hour: int
    within: bool
    events: bytes
    others: bytes
    best_effort: int
    unread: Sequence[tuple[str | None, int, int]]
    first: tuple[int, str]
    quickest: tuple[int, int, str] | None
    samples: int
    reports: Sequence[Any]
    due: Sequence[Any] = ()


class SenderEvents(NamedTuple):
    """The events from one client in one epoch, or a part of it; times in Unix milliseconds.

    `is_vouched` is whether a report of the client itself came with it. `least_ms` is the quickest way up.
    """

    client_id: str
    epoch: str | None
    is_vouched: bool
    first_ms: int
    numbers: int
    least_ms: int | None
    last_ms: int


def owners_of(senders: Iterable[SenderEvents]) -> dict[str, tuple[str, ...]]:
    """Return the clients that claim each epoch which came under several clients.

    They are those with reports of their own in it, and the client with most numbers, which is the first.
    """
    epochs: dict[str, dict[str, SenderEvents]] = defaultdict(dict)
    for each in senders:
        if each.epoch is not None:
            known = epochs[each.epoch].get(each.client_id, each._replace(numbers=0))
            epochs[each.epoch][each.client_id] = each._replace(
                is_vouched=known.is_vouched or each.is_vouched,
                first_ms=min(known.first_ms, each.first_ms),
                numbers=known.numbers + each.numbers,
            )
    owners = {}
    for epoch, clients in epochs.items():
        if len(clients) > 1:
            order = sorted(clients.values(), key=lambda each: (-each.numbers, each.first_ms, each.client_id))
            owners[epoch] = tuple(each.client_id for each in order if each.is_vouched or each is order[0])
    return owners


def readers_of(owners: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return for each epoch that came under several clients those whose judgement reads all its rows.

    A device takes over few stores: a client that claims many epochs is judged by its own rows only.
    """
    claims = Counter(client for _, *others in owners.values() for client in others)
    return {
        epoch: (first, *[each for each in others if claims[each] <= MOST_CLAIMS][: MOST_CLAIMS - 1])
        for epoch, (first, *others) in owners.items()
    }


def judged_with(client_id: str, owners: Sequence[str], readers: Sequence[str]) -> Sequence[str]:
    """Return the clients whose judgement reads the rows of `client_id` in an epoch with these owners."""
    reads_alone = client_id in owners and client_id not in readers
    return (client_id,) if reads_alone or not readers else readers


def reports_of(hours: Iterable[HourRow]) -> Iterator[Report]:
    """Return the reports in a client's rows."""
    for hour in hours:
        for row in hour.reports:
            yield Report(hour.client_id, hour.within, date_of(row[0]), *row)


def seen_in(hours: Iterable[HourRow]) -> SeenNumbers:
    """Return the numbers in rows of one epoch."""
    return SeenNumbers((each.hour, each.events) for each in hours)


class Claim:
    """The events under one client id in an epoch."""

    def __init__(self, rows: Sequence[HourRow], uplinks: Collection[str]) -> None:
        self.rows = rows
        self.client_id = rows[0].client_id
        self.seen = seen_in(rows)
        self.first, self.last = self.seen.ranges[0][0], self.seen.ranges[-1][1]
        self.came = min(each.first for each in rows)
        reports = read_reports(reports_of(rows), uplinks)
        self.forged = reports.forged
        self.manifests = [each for each in reports.manifests if each.epoch == each.report.epoch]
        self.is_birth = any(each.birth != "resumed" for each in reports.births.values())
        """Whether it reports that the store began under it: nothing came before."""

    @property
    def attests(self) -> bool:
        """True if one of its manifests states with its digest what came under it."""
        return any(_fits(each, [self.seen]) for each in self.manifests)

    @property
    def count(self) -> int:
        """The count of numbers in the window."""
        return sum(len(numbers_in(each.events)) for each in self.rows if each.within)


class Dispute(NamedTuple):
    """Client ids without a store in common sent in one epoch.

    `is_foreign`: the `other` proves that it brought an event of its store; or it came to the epoch after the
    `other`, which attests numbers and went on, and attests none itself.
    """

    claim: Claim
    other: str
    is_foreign: bool


class Claims:
    """All claims on one epoch, as they are read for the client id that is judged.

    `owners` are all that claim it by reports of their own, that with most numbers first; rows of some, or of
    clients that are no owners, may be there.
    """

    def __init__(
        self, client_id: str, owners: Sequence[str], hours: Iterable[HourRow], uplinks: Collection[str]
    ) -> None:
        rows: dict[str, list[HourRow]] = defaultdict(list)
        for each in hours:
            rows[each.client_id].append(each)
        claims = {name: Claim(those, uplinks) for name, those in rows.items()}
        self._owners = owners
        self.own = claims[client_id]
        left = [claims[name] for name in owners if name in claims and name != client_id]
        self.store = [self.own, *_path(self.own, left, _goes_on), *_path(self.own, left, _went_before)]
        """The claims of one store, which got another client id: one after the other, proven by digest."""
        self._ids = {each.client_id for each in self.store}
        self._others = [each for name, each in sorted(claims.items()) if name not in self._ids]
        self.proven = list(self._proven())
        """The rows under ids without the store of events that a digest proves to be of the store."""

    @property
    def joined(self) -> Iterator[HourRow]:
        """The rows that complete this client's: what other ids of its store sent counts for those."""
        for each in self.store[1:]:
            yield from (row._replace(within=False) for row in each.rows)

    @property
    def share(self) -> EpochShare:
        """The numbers that are judged for this client id."""
        own = self.own
        before = [each for each in self.store if each.last < own.first]
        first_hour, last_hour = own.seen.hours
        is_last = own.last == max(each.last for each in self.store)
        # Of these a manifest of the later id may state what the earlier one sent, and no digest proves it.
        earlier = [
            min(each.last, own.first - 1)
            for each in self._others
            if each.client_id in self._owners and each.first < own.first
        ]
        return EpochShare(
            own.client_id,
            (max((each.last for each in before), default=-MOST) + 1, MOST if is_last else own.last),
            (max((each.seen.hours[1] for each in before), default=first_hour), last_hour),
            -MOST if own.is_birth else max(earlier, default=-MOST),
        )

    @property
    def counted(self) -> SeenNumbers:
        """The numbers that count for this client: not those of other owners, for whom they count."""
        first, last = self.share.span
        proven = [
            each
            for each in self.proven
            if each.client_id not in self._owners and first <= (first_number(each.events) or 0) <= last
        ]
        return seen_in([*self.own.rows, *proven])

    def _proven(self) -> Iterator[HourRow]:
        seen = [each.seen for each in self.store]
        stated = sorted(
            (each for claim in self.store for manifest in claim.manifests for each in manifest.statements),
            key=lambda each: each.span,
        )
        firsts = [each.span[0] for each in stated]
        done: set[int] = set()
        for claim in self._others:
            found: dict[int, list[tuple[Event, int]]] = defaultdict(list)
            for event, hour in in_order((each.hour, each.events) for each in claim.rows):
                place = bisect_right(firsts, number := event[0]) - 1
                if place >= 0 and number <= stated[place].span[1] and not _count(seen, (number, number)):
                    found[place].append((event, hour))
            hours = {each.hour: each for each in claim.rows}
            for place, events in found.items():
                each = stated[place]
                if (
                    place in done
                    or each.digest is None
                    or each.count != _count(seen, each.span) + len(events)
                ):
                    continue
                rule = 1 + RULES.index(each.rule)
                if each.digest == (_digest(seen, each) + sum(event[rule] for event, _ in events)) % DIGESTS:
                    done.add(place)
                    for event, hour in events:
                        yield hours[hour]._replace(events=pack_events([event]), reports=[])

    def disputes(self) -> Iterator[Dispute]:
        """Yield what this client's judgement names.

        An owner names itself against the first owner with more numbers and without its store; the owner with
        most numbers names the clients that report nothing of themselves.
        """
        own, owners = self.own.client_id, self._owners
        place = owners.index(own) if own in owners else len(owners)
        proven = {each.client_id for each in self.proven}
        for each in self._without_reports if place == 0 else ():
            found = self._dispute([each], each, own, self.store)
            yield Dispute(each, own, is_foreign=True) if each.client_id in proven else found
        if other := next((each for each in owners[:place] if each not in self._ids), None):
            yield self._dispute(self.store, self.own, other, self._others)

    @staticmethod
    def _dispute(store: Sequence[Claim], claim: Claim, other: str, others: Sequence[Claim]) -> Dispute:
        came = min(each.came for each in store)
        accuser = next(
            (
                each.client_id
                for each in others
                if each.came <= came and each.seen.hours[1] >= claim.seen.hours[0] and each.attests
            ),
            None,
        )
        if accuser is None or any(each.attests for each in store):
            return Dispute(claim, other, is_foreign=False)
        return Dispute(claim, accuser, is_foreign=True)

    @property
    def forged(self) -> Iterator[tuple[Report, str]]:
        """The reports in the name of others that came under clients that report nothing of themselves."""
        if self.own.client_id == self._owners[0]:
            for each in self._without_reports:
                yield from each.forged

    @property
    def _without_reports(self) -> Iterator[Claim]:
        return (each for each in self._others if each.client_id not in self._owners)


def _goes_on(one: Claim, other: Claim) -> bool:
    """Return whether the other one goes on with the store of this one.

    Its numbers follow, and a manifest states numbers from before the change with the digest of what came
    under both ids.
    """
    return one.last < other.first and any(
        each.span is not None
        and each.span[0] <= one.last < each.sequence
        and _fits(each, [one.seen, other.seen])
        for each in other.manifests
    )


def _went_before(one: Claim, other: Claim) -> bool:
    return _goes_on(other, one)


def _path(own: Claim, left: Sequence[Claim], leads: Callable[[Claim, Claim], bool]) -> Iterator[Claim]:
    """Yield the claims that lead on from this one, each from the one before; of several the largest."""
    while following := next((each for each in left if leads(own, each)), None):
        own = following
        yield own


def _count(seen: Sequence[SeenNumbers], span: Range) -> int:
    return sum(each.events(span) for each in seen)


def _digest(seen: Sequence[SeenNumbers], stated: Statement) -> int:
    return sum(each.digest(stated.span, stated.rule) for each in seen)


def _fits(manifest: ManifestReport, seen: Sequence[SeenNumbers]) -> bool:
    """Return whether a manifest states with its digest just what was seen."""
    return (
        manifest.span is not None
        and manifest.span[1] < manifest.sequence
        and all(
            each.digest is not None
            and (each.count, each.digest) == (_count(seen, each.span), _digest(seen, each) % DIGESTS)
            for each in manifest.statements
        )
    )
