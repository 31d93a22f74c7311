"""Device to cloud: what a device states that it stored for the cloud, against what the tap has. No Spark.

A manifest states how many events a device stored for its uplink between two numbers, and a digest of all of
them. Numbers that the tap has not seen are missing as far as the manifest counts them; the device's reports
of what it gave up explain some of them. Events that the ledger has from the device and the tap has not came
all the same: the tap has a hole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Final, NamedTuple

from glue_jobs.delivery_audit.device_reports import (
    DIGESTS,
    RULES,
    Birth,
    DeviceReports,
    Discard,
    Manifest,
    Range,
    Report,
    SeenNumbers,
    Statement,
    length,
    merged,
    overlap,
    without,
)

_NOTHING: Final = -(2**62)
"""Lower than any number."""

_MOST_CHOICES: Final = 10_000
"""Most ways to choose the missing events of a manifest among those of the ledger that are tried. Ours: a few
milliseconds for one manifest."""


class Arrival(NamedTuple):
    """An event that the ledger has from the device and the tap has not; `key` names it.

    It entered at `entered_at_ms`, in the `hour` counted from 1970. `digests` are its own by each of
    `device_reports.RULES`, None where the ledger does not have it.
    """

    entered_at_ms: int
    hour: int
    key: tuple[str, str, str]
    is_manifest: bool
    digests: tuple[int | None, ...]

    def digest(self, rule: str) -> int | None:
        """Return its digest by one of the rules; None where nobody knows it."""
        return self.digests[RULES.index(rule)]


@dataclass(slots=True)
class JudgedStatement:
    """A manifest's statement: `missing` was stated and not seen; the device gave up the `explained`.

    The tap has a hole for the `unrecorded`. `open` is too young to be judged. `lost` are the numbers, None
    where nobody can tell which. IoT Core had acknowledged the numbers up to `acknowledged_to`, and so at
    least `acknowledged` of the unexplained.
    """

    manifest: Manifest
    statement: Statement
    missing: int
    explained: int
    open: bool
    unseen: list[Range]
    given_up: list[Range]
    acknowledged_to: int
    unrecorded: int = 0
    in_holes: list[Range] = field(default_factory=list)

    @property
    def unexplained(self) -> int:
        """How many are missing for no reason that is known."""
        return self.missing - self.explained - self.unrecorded

    @property
    def lost(self) -> list[Range] | None:
        """The numbers that are missing for no reason that is known, None where nobody can tell which."""
        certain = length(self.unseen) == self.missing and length(self.in_holes) == self.unrecorded
        return self._candidates if certain else None

    @property
    def acknowledged(self) -> int:
        """How many of the unexplained IoT Core had acknowledged, at least."""
        behind = length(without(self._candidates, [(_NOTHING, self.acknowledged_to)]))
        return max(0, self.unexplained - behind)

    @property
    def _candidates(self) -> list[Range]:
        return without(self.unseen, [*self.given_up, *self.in_holes])


@dataclass(frozen=True, slots=True)
class Scope:
    """What the judgement of every device depends on. Times are Unix milliseconds.

    `end_ms` is the window's end, None for an audit of all days, which ends with `last_ms`, the last
    acceptance of the fleet. `gone` are hours counted from 1970 of which the tap has nothing though devices
    sent, `damaged` those in which it may lack records. `owners` are the devices that state an epoch by
    reports of their own, the first first, for epochs that came under several client ids. The fleet's
    quickest way up takes `usual_ms`. `has_fleet` is whether there is a list of the devices that are expected.
    """

    uplinks: frozenset[str]
    watermark_ms: int
    end_ms: int | None = None
    gone: frozenset[int] = frozenset()
    damaged: frozenset[int] = frozenset()
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usual_ms: int = 0
    has_fleet: bool = False
    last_ms: int | None = None

    @property
    def until_ms(self) -> int:
        """Until when manifests can be expected to be there."""
        end_ms = self.end_ms if self.end_ms is not None else self.last_ms
        return self.watermark_ms if end_ms is None else min(end_ms, self.watermark_ms)


class Completeness:
    """One device: the numbers `seen` by epoch, what it `reports`, and the `arrivals` that the tap lacks."""

    def __init__(
        self,
        seen: Mapping[str, SeenNumbers],
        reports: DeviceReports,
        arrivals: Sequence[Arrival],
        scope: Scope,
    ) -> None:
        self.seen = seen
        self.reports = reports
        self.scope = scope
        self._gone = sorted(scope.gone)
        self.mismatched: list[tuple[Report, str]] = []
        """Manifests that contradict the events or themselves, and why. They count for nothing."""
        self._broken: list[tuple[Manifest, int]] = []
        self.holes: Counter[int] = Counter()
        """Numbers without a record by the hour in which they would have come."""
        self._began = {each.epoch for each in reports.births}
        self.manifests = self._chains()
        """The manifests that count, by epoch, in the order of their numbers."""
        self._unseen: dict[str, list[Range]] = {}
        self._in_view: dict[str, list[Range]] = {}
        for epoch in {*seen, *self.manifests}:
            self._find_unseen(epoch)
        self.given_up = list(self._given_up())
        """The numbers that the device gave up and that were not seen all the same."""
        self.judged = list(self._judge())
        """Each statement of a manifest that counts."""
        self.unmatched = self._find_unrecorded(arrivals)
        """The arrivals for which no number is missing."""
        self.missing_manifests = [each for each in self._broken if not self._is_in_hole(*each, arrivals)]
        """The first number that a manifest states, and the number of the report before it, where another
        manifest between them is missing."""

    def attested(self, epoch: str) -> list[Range]:
        """Return the numbers of an epoch that manifests state: a manifest that came attests itself."""
        manifests = self.manifests.get(epoch, ())
        spans = [each.span for each in manifests if each.span is not None]
        return merged([*spans, *((each.sequence, each.sequence) for each in manifests)])

    def unstated(self, epoch: str) -> Iterator[tuple[Range, int]]:
        """Return unseen numbers that no manifest states, with the hour in which the next number came.

        They may have been lost, or have had no route to the cloud: nobody knows.
        """
        stated = [*self.attested(epoch), *(span for each, spans in self.given_up for span in spans)]
        for span in without(self._in_view.get(epoch, []), stated):
            _, behind = self.seen[epoch].hours_around(span) if epoch in self.seen else (None, None)
            if behind is not None:
                yield span, behind

    def silences(self, hours: Collection[int]) -> Iterator[tuple[int, bool]]:
        """Return those of `hours` that the device's numbers surround, and whether something is missing there.

        Missing is what a manifest states, or a manifest itself.
        """
        for hour in hours:
            if any(seen.hours[0] < hour < seen.hours[1] for seen in self.seen.values()):
                yield hour, any(self._lies_in(epoch, span, hour) for epoch, span in self._missing())

    def _is_in_hole(self, manifest: Manifest, after: int, arrivals: Sequence[Arrival]) -> bool:
        """Return whether the tap has a hole where the manifest would be that is missing before this one."""
        unseen = overlap(self._in_view[manifest.epoch], [(after + 1, manifest.sequence - 1)])
        hours = {*self._gone, *(each.hour for each in arrivals if each.is_manifest)}
        return any(self._fits(manifest.epoch, unseen, hour) for hour in hours)

    def _missing(self) -> Iterator[tuple[str, Range]]:
        for each in self.judged:
            if each.missing > each.explained:
                yield from ((each.manifest.epoch, span) for span in without(each.unseen, each.given_up))
        for manifest, after in self._broken:
            span = after + 1, manifest.sequence - 1
            yield from ((manifest.epoch, each) for each in overlap(self._in_view[manifest.epoch], [span]))

    def _lies_in(self, epoch: str, unseen: Range, hour: int) -> bool:
        """Return whether a range of unseen numbers would have come in this hour, by its neighbours."""
        before, behind = self.seen[epoch].hours_around(unseen) if epoch in self.seen else (None, None)
        if before is None or behind is None:
            return (before is None or before <= hour) and (behind is None or hour <= behind)
        # Events may overtake each other: an alarm is sent before what waits.
        return min(before, behind) <= hour <= max(before, behind)

    def _chains(self) -> dict[str, list[Manifest]]:
        """Check each manifest against its own number, the report before it and the events.

        A manifest is stored in the commit that closes it, so the next one states it too; likewise the first
        manifest states the report of the store's birth. One that begins later has lost its predecessor.
        """
        chains: dict[str, list[Manifest]] = defaultdict(list)
        links: dict[str, dict[int, Manifest | None]] = defaultdict(dict)
        for birth in self.reports.births:
            if birth.report.sequence is not None:
                links[birth.epoch].setdefault(birth.report.sequence, None)
        for manifest in self.reports.manifests:
            # By its own epoch: what its text says may be another's.
            links[manifest.report.epoch or ""].setdefault(manifest.sequence, manifest)
        for epoch, chain in links.items():
            before: int | None = None
            for sequence in sorted(chain):
                after, before = before, sequence
                if (found := chain[sequence]) is None:
                    continue
                if problem := self._contradiction(found, after):
                    self.mismatched.append((found.report, problem))
                    continue
                chains[epoch].append(found)
                if after is not None and found.span is not None and found.span[0] > after:
                    self._broken.append((found, after))
        return chains

    def _contradiction(self, manifest: Manifest, before: int | None) -> str | None:
        """Return what a manifest contradicts, or None; `before` is the number of the report before it."""
        own, span = manifest.report.epoch, manifest.span
        if manifest.epoch != own:
            return f"it states the epoch {manifest.epoch}, and came in the epoch {own}"
        if span is None:
            return None
        if span[1] >= manifest.sequence:
            return f"it states number {span[1]}, which is not before its own"
        if before is not None and span[1] < before:
            return f"it states the numbers up to {span[1]}, and not the report {before} before it"
        if len(manifest.statements) > 1 or own not in self.seen:
            return None
        (statement,), seen = manifest.statements, self.seen[own]
        events = seen.events(span)
        if events > statement.count:
            return f"it states {statement.count} events, and {events} came"
        if events != statement.count or statement.digest is None:
            return None
        if statement.digest != seen.digest(span, statement.rule):
            return f"its digest is not that of the {events} events that came"
        return None

    def _find_unseen(self, epoch: str) -> None:
        numbers = self.seen[epoch].ranges if epoch in self.seen else []
        stated = max((each.span[1] for each in self.manifests.get(epoch, ()) if each.span), default=0)
        greatest = max(stated, numbers[-1][1] if numbers else 0)
        unseen = without([(1, greatest)], numbers) if greatest > 0 else []
        first_seen = numbers[0][0] if numbers else 1
        self._unseen[epoch] = unseen
        # Else numbers before the first seen one may have come on a day that was not read.
        is_known = self.scope.end_ms is None or epoch in self._began
        self._in_view[epoch] = [each for each in unseen if is_known or each[0] >= first_seen]

    def _given_up(self) -> Iterator[tuple[Discard, list[Range]]]:
        for each in self.reports.discards:
            # What was given up for want of an answer may have arrived.
            if pieces := overlap(self._unseen.get(each.epoch, []), [each.span]):
                yield each, pieces

    def _judge(self) -> Iterator[JudgedStatement]:
        given_up: dict[str, list[Range]] = defaultdict(list)
        for discard, pieces in self.given_up:
            given_up[discard.epoch] += pieces
        for epoch, manifests in self.manifests.items():
            stated = (each.acknowledged_to for each in manifests)
            to = max((each for each in stated if each is not None), default=_NOTHING)
            for manifest in manifests:
                for each in manifest.statements:
                    unseen = overlap(self._in_view[epoch], [each.span])
                    # Of the numbers in between, those that it does not count had no route to the cloud.
                    missing = max(0, length(unseen) - (length([each.span]) - each.count))
                    pieces = overlap(given_up[epoch], [each.span])
                    explained = min(missing, length(pieces))
                    is_open = manifest.report.accepted_at_ms > self.scope.watermark_ms
                    yield JudgedStatement(manifest, each, missing, explained, is_open, unseen, pieces, to)

    def _find_unrecorded(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Match the arrivals with missing numbers, first by digest, then by hour; return the others.

        What is missing in an hour of which the tap has nothing has no record either.
        """
        left = list(arrivals)
        excluded: dict[int, set[Arrival]] = defaultdict(set)
        for each in self.judged:
            if each.unexplained > 0 and left:
                left = self._match_by_digest(each, left, excluded[id(each)])
        for each in self.judged:
            if each.unexplained > 0 and left:
                fitting = self._fitting(each.manifest.epoch, each.unseen, left)
                others = [arrival for arrival in fitting if arrival not in excluded[id(each)]]
                taken = others[: each.unexplained]
                self._recover(each, taken)
                left = _others(left, taken)
        for each in self.judged:
            if self._gone and each.unexplained > 0:
                self._attribute_to_gone_hours(each)
        return self._match_unstated(left)

    def _match_by_digest(
        self, each: JudgedStatement, left: list[Arrival], excluded: set[Arrival]
    ) -> list[Arrival]:
        """Find which arrivals are the events that a statement misses; return those that are left.

        Adds to `excluded` those that the digest proves to be others.
        """
        epoch, statement = each.manifest.epoch, each.statement
        if statement.digest is None or each.explained:
            return left
        seen = self.seen[epoch].digest(statement.span, statement.rule) if epoch in self.seen else 0
        events = self.seen[epoch].events(statement.span) if epoch in self.seen else 0
        if statement.count - events != each.missing:
            return left  # some came out of view
        wanted = (statement.digest - seen) % DIGESTS
        fitting = self._fitting(epoch, each.unseen, left)
        digests = {arrival: arrival.digest(statement.rule) for arrival in fitting}
        if None in digests.values() or comb(len(fitting), each.missing) > _MOST_CHOICES:
            return left
        for some in combinations(fitting, each.missing):
            if sum(digests[arrival] or 0 for arrival in some) % DIGESTS == wanted:
                self._recover(each, some)
                return _others(left, some)
        if each.missing == 1:
            excluded.update(fitting)
        return left

    def _recover(self, each: JudgedStatement, arrivals: Sequence[Arrival]) -> None:
        each.unrecorded += len(arrivals)
        self.holes.update(arrival.hour for arrival in arrivals)
        if each.unrecorded == each.missing == length(each.unseen):
            each.in_holes = each.unseen

    def _fits(self, epoch: str, unseen: Sequence[Range], hour: int) -> bool:
        return any(self._lies_in(epoch, span, hour) for span in unseen)

    def _fitting(self, epoch: str, unseen: Sequence[Range], arrivals: Sequence[Arrival]) -> list[Arrival]:
        # There may be a day's events of the device, of few hours.
        hours = {hour for hour in {each.hour for each in arrivals} if self._fits(epoch, unseen, hour)}
        return [each for each in arrivals if each.hour in hours]

    def _attribute_to_gone_hours(self, each: JudgedStatement) -> None:
        for span in without(each.unseen, [*each.given_up, *each.in_holes]):
            hour = next((at for at in self._gone if self._lies_in(each.manifest.epoch, span, at)), None)
            count = min(each.unexplained, length([span]))
            if hour is not None and count:
                each.unrecorded += count
                each.in_holes = merged([*each.in_holes, span])
                self.holes[hour] += count

    def _match_unstated(self, left: list[Arrival]) -> list[Arrival]:
        """Match arrivals with unseen numbers that no manifest states."""
        for epoch in self._in_view if left or self._gone else ():
            for span, _ in self.unstated(epoch):
                fitting = self._fitting(epoch, [span], left)
                # Of the hours around it the tap has something of the device: the others go first.
                around = self.seen[epoch].hours_around(span) if epoch in self.seen else ()
                fitting = sorted(fitting, key=lambda each: each.hour in around)[: length([span])]
                self.holes.update(each.hour for each in fitting)
                left = _others(left, fitting)
                hour = next((at for at in self._gone if self._lies_in(epoch, span, at)), None)
                if hour is not None:
                    self.holes[hour] += length([span]) - len(fitting)
        return left


def _others(arrivals: Sequence[Arrival], taken: Iterable[Arrival]) -> list[Arrival]:
    those = {each.key for each in taken}
    return [each for each in arrivals if each.key not in those]


@dataclass(frozen=True, slots=True)
class Life:
    """An epoch of a device as the tap first saw it, Unix milliseconds, with its least number."""

    epoch: str
    date: str
    accepted_at_ms: int
    file: str
    sequence: int | None


def new_lives(lives: list[Life], births: list[Birth]) -> Iterator[tuple[Life, str | None, str | None]]:
    """Return each new epoch: `birth` and `lost_epoch` as the device reports them, None where it does not.

    A device's first epoch in the window is a change only if the device reports that it recovered.
    """
    by_epoch = {each.epoch: each for each in births}
    # What was saved of a lost epoch can arrive after the report of the new one.
    ended = {each.lost_epoch for each in births}
    order = sorted(lives, key=lambda each: (each.epoch not in ended, each.accepted_at_ms, each.epoch))
    for place, each in enumerate(order):
        birth = by_epoch.get(each.epoch)
        if place or (birth and birth.birth == "recovered"):
            yield each, birth.birth if birth else None, birth.lost_epoch if birth else None
