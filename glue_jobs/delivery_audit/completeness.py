"""Device to cloud: what a device states that it stored for the cloud, against what the tap has. No Spark.

A manifest states how many events a device stored for its uplink between two numbers, and a digest of all of
them. Numbers that the tap has not seen are missing as far as the manifest counts them; the device's reports
of what it gave up explain some of them. Events that the ledger has from the device and the tap has not came
all the same: the tap has a hole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, pairwise
from math import comb
from typing import Any, Final, NamedTuple

from eventplane.device_reports import DISCARDED, MANIFEST
from eventplane.report_reader import (
    DIGESTS,
    RULES,
    Birth,
    DeviceReports,
    DiscardReport,
    ManifestReport,
    Range,
    Report,
    Statement,
    length,
    merged,
)
from glue_jobs.delivery_audit.number_ranges import SeenNumbers, clipped, without

_NOTHING: Final = -(2**62)
"""Lower than any number."""

_FAR: Final = 2**62
"""Later than any hour, and so many numbers as there never are."""

_MOST_CHOICES: Final = 10_000
"""Most ways to choose the missing events of a manifest among those of the ledger that are tried. Ours: a few
milliseconds for one manifest."""

_FEW: Final = 8
"""So many events can be chosen among, or left out of, few enough others to be tried."""

_MOST_STEPS: Final = 1_000_000
"""Most events that are added up for a device to find such a choice. Ours: a second; then hours decide."""


class Arrival(NamedTuple):
    """An event of the device that came, though its number was not seen; `key` names it.

    The ledger has it and the tap has not; or the tap has it with a number that cannot be read
    (`is_unread`), in an `epoch`. It entered at `entered_at_ms`, in the `hour` counted from 1970. `digests`
    are its own by each of `device_reports.RULES`, None where the ledger does not have it.
    """

    entered_at_ms: int
    hour: int
    key: tuple[str, ...]
    is_manifest: bool
    digests: tuple[int | None, ...]
    epoch: str | None = None
    is_unread: bool = False

    def digest(self, rule: str) -> int | None:
        """Return its digest by one of the rules; None where it is not known."""
        return self.digests[RULES.index(rule)]


@dataclass(slots=True)
class JudgedStatement:
    """A manifest's statement: `missing` was stated and not seen; the device gave up the `explained`.

    The tap has a hole for the `unrecorded`, or a report that is not understood may explain them. `open` is
    too young to be judged. `lost` are the numbers, None where they are not known. IoT Core had acknowledged
    the numbers up to `acknowledged_to`, and so at least `acknowledged` of the unexplained.
    """

    manifest: ManifestReport
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
        """The number that are missing for no known reason."""
        return self.missing - self.explained - self.unrecorded

    @property
    def lost(self) -> list[Range] | None:
        """The numbers that are missing for no reason that is known, None where it is not known which."""
        certain = length(self.unseen) == self.missing and length(self.in_holes) == self.unrecorded
        return self.candidates if certain else None

    @property
    def acknowledged(self) -> int:
        """The least number of the unexplained that IoT Core had acknowledged."""
        behind = length(without(self.candidates, [(_NOTHING, self.acknowledged_to)]))
        return max(0, self.unexplained - behind)

    @property
    def candidates(self) -> list[Range]:
        """The numbers of which some may be missing for no reason that is known."""
        return without(self.unseen, [*self.given_up, *self.in_holes])

    def leave(self, spans: list[Range]) -> int:
        """Count what is missing of these numbers as unrecorded, not as lost. Return how many."""
        count = min(self.unexplained, length(spans))
        if count:
            self.unrecorded += count
            self.in_holes = merged([*self.in_holes, *spans])
        return count


@dataclass(frozen=True, slots=True)
class Scope:
    """The basis of the judgement of every device. Times are Unix milliseconds.

    `homes` are the inboxes on devices, and whether their readers confirm each event. What is pending there is
    lost if it is so by a manifest that came `lateness_ms` after the one that states it.
    `end_ms` is the window's end, None for an audit of all days, which ends with `last_ms`, the last
    acceptance of the fleet. `gone` are hours counted from 1970 of which the tap has nothing though devices
    sent, `damaged` those in which it may lack records. `owners` are the devices that claim an epoch by
    reports of their own, for epochs that came under several client ids, and the one with most numbers, which
    is first. The fleet's quickest way up takes `usual_ms`. `has_fleet` is whether there is a list of the
    devices that are expected. Where `is_listed`, events that are due in homes have rows.
    """

    uplinks: frozenset[str]
    watermark_ms: int
    homes: Mapping[str, bool] = field(default_factory=dict)
    lateness_ms: int = 0
    end_ms: int | None = None
    gone: frozenset[int] = frozenset()
    damaged: frozenset[int] = frozenset()
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usual_ms: int = 0
    has_fleet: bool = False
    last_ms: int | None = None
    is_listed: bool = False

    @property
    def until_ms(self) -> int:
        """Until when manifests can be expected to be there."""
        end_ms = self.end_ms if self.end_ms is not None else self.last_ms
        return self.watermark_ms if end_ms is None else min(end_ms, self.watermark_ms)


class EpochShare(NamedTuple):
    """The part that is judged for `client_id` of an epoch that came under several client ids.

    Its own are the numbers in `span`, which came in `hours`. Numbers up to `unproven_to` came under another
    id, and no digest proves that it had the same store.
    """

    client_id: str
    span: Range
    hours: Range
    unproven_to: int


class _Arrivals:
    """Arrivals for which no number has been found yet, by epoch (None: unknown) and hour."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        self._left: dict[str | None, dict[int, dict[Any, Arrival]]] = defaultdict(lambda: defaultdict(dict))
        for each in sorted(arrivals, key=lambda each: (each.entered_at_ms, each.key)):
            self._left[each.epoch][each.hour][each.key] = each
        self._hours = {epoch: sorted(by_hour) for epoch, by_hour in self._left.items()}

    def __iter__(self) -> Iterator[Arrival]:
        return (each for hours in self._left.values() for those in hours.values() for each in those.values())

    def within(
        self, epoch: str, hours: Iterable[Range], after: Collection[int | None] = ()
    ) -> Iterator[Arrival]:
        """Yield those that may be of `epoch` and came in some `hours`, in the hours `after` at last."""
        spans = merged(hours)
        for of in (epoch, None):
            known = self._hours.get(of, [])
            places = ((bisect_left(known, low), bisect_right(known, high)) for low, high in spans)
            near = [hour for start, end in places for hour in known[start:end]]
            for hour in sorted(near, key=lambda each: each in after):
                yield from self._left[of][hour].values()

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Remove these."""
        for each in arrivals:
            del self._left[each.epoch][each.hour][each.key]


class Completeness:
    """One device: numbers `seen` by epoch, what it `reports`, and the `arrivals` without a seen number.

    Of the epochs in `shares` another client id has a part, and `seen` has the numbers of both.
    """

    def __init__(
        self,
        seen: Mapping[str, SeenNumbers],
        reports: DeviceReports,
        arrivals: Sequence[Arrival],
        scope: Scope,
        shares: Mapping[str, EpochShare],
    ) -> None:
        self.seen = seen
        self._shares = shares
        self.reports = reports
        self.scope = scope
        self._gone = sorted(scope.gone)
        self._steps = _MOST_STEPS
        self.mismatched: list[tuple[Report, str]] = []
        """Manifests that contradict the events or their own place, and why. They count for nothing."""
        self.contradictions = list(reports.contradictions)
        """Reports that contradict themselves or each other, and why."""
        self._broken: list[tuple[ManifestReport, int]] = []
        self.holes: Counter[int] = Counter()
        """Numbers without a record by the hour in which they would have come."""
        self.unattesting = [each for each in reports.unsettled if each.type == MANIFEST]
        """The manifests that attest nothing, whether they are wrong or not understood."""
        self._unread = _numbers_of(self.unattesting)
        self._without_number = {each.epoch for each in self.unattesting if each.sequence is None}
        self._disputed = _numbers_of(report for report, _ in reports.contradictions)
        self.manifests = self._chains()
        """The manifests that count, by epoch, in the order of their numbers."""
        self._unseen: dict[str, list[Range]] = {}
        self._in_view: dict[str, list[Range]] = {}
        for epoch in {*seen, *self.manifests}:
            self._find_unseen(epoch)
        self.given_up = list(self._given_up())
        """The numbers that the device gave up and that were not seen all the same."""
        self._explanations = self._given_up_by_epoch()
        self.judged = list(self._judge())
        """Each statement of a manifest that counts."""
        self.unmatched = self._find_unrecorded(_Arrivals(arrivals))
        """The arrivals for which no number is missing."""
        self._manifest_hours = {*self._gone, *(each.hour for each in arrivals if each.is_manifest)}
        self.missing_manifests = [each for each in self._broken if not self._is_in_hole(*each)]
        """The first number that a manifest states, and the number of the report before it, where another
        manifest between them is missing."""

    def attested(self, epoch: str) -> list[Range]:
        """Return the numbers of an epoch that manifests state: a manifest that came attests itself."""
        manifests = self.manifests.get(epoch, ())
        spans = [each.span for each in manifests if each.span is not None]
        return merged([*spans, *((each.sequence, each.sequence) for each in manifests)])

    def unstated(self, epoch: str) -> Iterator[tuple[Range, int]]:
        """Return unseen numbers that no manifest states, with the hour in which the next number came.

        They may have been lost, or have had no route to the cloud; it is unknown which. What is between the
        spans of two manifests had none, if the later one states the earlier: no other was between them.
        """
        between = [
            (one.span[1] + 1, following.span[0] - 1)
            for one, following in pairwise(self.manifests.get(epoch, ()))
            if one.span and following.span and one.span[1] + 1 < following.span[0] <= one.sequence
        ]
        known = [*self.attested(epoch), *between, *self._explanations.get(epoch, ())]
        own = self._shares[epoch].span if epoch in self._shares else (_NOTHING, _FAR)
        for span in clipped(without(self._in_view.get(epoch, []), known), own):
            _, behind = self.seen[epoch].hours_around(span) if epoch in self.seen else (None, None)
            if behind is not None:
                yield span, behind

    def silences(self, hours: Collection[int]) -> Iterator[tuple[int, bool]]:
        """Return those of `hours` that the device's numbers surround, and whether something is missing there.

        Missing is what a manifest states, or a manifest itself.
        """
        own = {epoch: each.hours for epoch, each in self.seen.items()}
        own |= {epoch: each.hours for epoch, each in self._shares.items()}
        lives = merged((first + 1, last - 1) for first, last in own.values())
        missing = merged(self._hours_of(*each) for each in self._missing()) if hours else []
        for hour in hours:
            if clipped(lives, (hour, hour)):
                yield hour, bool(clipped(missing, (hour, hour)))

    def _is_in_hole(self, manifest: ManifestReport, after: int) -> bool:
        """Return whether the tap has a hole where the manifest would be that is missing before this one."""
        unseen = clipped(self._in_view[manifest.epoch], (after + 1, manifest.sequence - 1))
        hours = merged(self._hours_of(manifest.epoch, each) for each in unseen)
        return any(clipped(hours, (hour, hour)) for hour in self._manifest_hours)

    def _missing(self) -> Iterator[tuple[str, Range]]:
        for each in self.judged:
            if each.missing > each.explained:
                yield from ((each.manifest.epoch, span) for span in without(each.unseen, each.given_up))
        for manifest, after in self._broken:
            span = after + 1, manifest.sequence - 1
            yield from ((manifest.epoch, each) for each in clipped(self._in_view[manifest.epoch], span))

    def _hours_of(self, epoch: str, unseen: Range) -> Range:
        """Return in which hours a range of unseen numbers would have come, by its neighbours."""
        before, behind = self.seen[epoch].hours_around(unseen) if epoch in self.seen else (None, None)
        if before is None or behind is None:
            return -_FAR if before is None else before, _FAR if behind is None else behind
        # Events may overtake each other: an alarm is sent before what waits.
        return min(before, behind), max(before, behind)

    def _chains(self) -> dict[str, list[ManifestReport]]:
        """Check each manifest against its own number, the report before it, the events, and the others.

        A manifest is stored in the commit that closes it, so the next one states it too; likewise the first
        manifest states the report of the store's birth. One that begins later has lost its predecessor.
        """
        chains: dict[str, list[ManifestReport]] = {}
        links: dict[str, dict[int, ManifestReport | None]] = defaultdict(dict)
        for birth in self.reports.births.values():
            if birth.report.sequence is not None:
                links[birth.epoch].setdefault(birth.report.sequence, None)
        for manifest in self.reports.manifests:
            # By its own epoch: what its text says may be another's.
            links[manifest.report.epoch or ""].setdefault(manifest.sequence, manifest)
        for epoch, chain in links.items():
            before: int | None = None
            placed: dict[ManifestReport, int | None] = {}
            for sequence in sorted(chain):
                after, before = before, sequence
                if (found := chain[sequence]) is None:
                    continue
                if found.epoch == epoch and found.contradiction:
                    self.contradictions.append((found.report, found.contradiction))
                elif problem := self._misplacement(found, after):
                    self.mismatched.append((found.report, problem))
                else:
                    placed[found] = after
            counting = self._not_excluded(placed)
            self.unattesting += [each.report for each in {*chain.values()}.difference(counting) if each]
            self._broken += [
                (each, after)
                for each in counting
                if each.span
                and self.is_own(each)
                and (after := placed[each]) is not None
                and self._is_gap(epoch, after, each.span[0])
            ]
            if counting:
                chains[epoch] = counting
        return chains

    def _not_excluded(self, manifests: Collection[ManifestReport]) -> list[ManifestReport]:
        """Return those of an epoch's manifests that neither each other nor the events exclude."""
        problems = {each: self._mismatch(each) for each in manifests}
        true = {each for each, problem in problems.items() if not problem}
        # One that the events bear out stands against those that they do not.
        shared = {each: other for each, other in _sharing(problems).items() if each not in true} | _sharing(
            true
        )
        for each, problem in problems.items():
            if other := shared.get(each):
                why = f"the manifest with the number {other.sequence} states the same numbers"
                self.contradictions.append((each.report, why))
            elif problem:
                self.mismatched.append((each.report, problem))
        return [each for each in manifests if each in true and each not in shared]

    def _is_gap(self, epoch: str, after: int, first: int) -> bool:
        """Return whether a manifest is missing that states what is before `first`: none came, read or not."""
        unread = self._unread.get(epoch, [])
        came = bisect_right(unread, after) < bisect_right(unread, first) or epoch in self._without_number
        return first > after and not came

    def _misplacement(self, manifest: ManifestReport, before: int | None) -> str | None:
        """Return how a manifest contradicts its own place; `before` is the number of the report before it."""
        own, span = manifest.report.epoch, manifest.span
        if manifest.epoch != own:
            return f"it states the epoch {manifest.epoch}, and came in the epoch {own}"
        if span is None:
            return None
        if span[1] >= manifest.sequence:
            return f"it states number {span[1]}, which is not before its own"
        if before is not None and span[1] < before:
            return f"it states the numbers up to {span[1]}, and not the report {before} before it"
        return None

    def _mismatch(self, manifest: ManifestReport) -> str | None:
        """Return how the events contradict a manifest."""
        if len(manifest.statements) != 1 or manifest.epoch not in self.seen:
            return None
        (statement,), seen = manifest.statements, self.seen[manifest.epoch]
        span, disputed = statement.span, self._disputed.get(manifest.epoch, [])
        if bisect_left(disputed, span[0]) < bisect_right(disputed, span[1]):
            return None  # several reports may have one number, of which it counts one
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
        is_known = self.scope.end_ms is None or epoch in self.reports.births
        self._in_view[epoch] = unseen if is_known else [each for each in unseen if each[0] >= first_seen]

    def _given_up(self) -> Iterator[tuple[DiscardReport, list[Range]]]:
        """Yield what the device gave up, of which the tap has nothing."""
        for each, span in each_once(self.reports.discards):
            # What was given up for want of an answer may have arrived.
            if pieces := clipped(self._unseen.get(each.epoch, []), span):
                yield each, pieces

    def _given_up_by_epoch(self) -> dict[str, list[Range]]:
        found: dict[str, list[Range]] = defaultdict(list)
        for discard, pieces in self.given_up:
            found[discard.epoch] += pieces
        return {epoch: merged(spans) for epoch, spans in found.items()}

    def _judge(self) -> Iterator[JudgedStatement]:
        for epoch, manifests in self.manifests.items():
            explanations, to = self._explanations.get(epoch, []), self._acknowledged_to(manifests)
            for manifest in filter(self.is_own, manifests):
                for each in manifest.statements:
                    unseen = clipped(self._in_view[epoch], each.span)
                    # Of the numbers in between, those that it does not count had no route to the cloud.
                    missing = max(0, length(unseen) - (length([each.span]) - each.count))
                    pieces = clipped(explanations, each.span)
                    explained = min(missing, length(pieces))
                    is_open = manifest.report.accepted_at_ms > self.scope.watermark_ms
                    yield JudgedStatement(manifest, each, missing, explained, is_open, unseen, pieces, to)

    def is_own(self, manifest: ManifestReport) -> bool:
        """Return whether it is judged here, and not with the other client id of its store."""
        share = self._shares.get(manifest.epoch)
        return share is None or share.client_id == manifest.report.client_id

    def is_end(self, manifest: ManifestReport) -> bool:
        """Return whether the forwarder stopped with the manifest and sent nothing behind it."""
        last = self.seen[manifest.epoch].ranges[-1][1] if manifest.epoch in self.seen else manifest.sequence
        return manifest.is_final and last <= manifest.sequence

    def _acknowledged_to(self, manifests: Iterable[ManifestReport]) -> int:
        """Return up to which number all was acknowledged, by the last manifest of an epoch that states it."""
        to = _NOTHING
        for each in manifests:
            if each.acknowledged_to is not None:
                if each.acknowledged_to < to:
                    why = f"acknowledged up to {each.acknowledged_to}, and before that up to {to}"
                    self.contradictions.append((each.report, why))
                to = each.acknowledged_to
        return to

    def _find_unrecorded(self, arrivals: _Arrivals) -> list[Arrival]:
        """Match the arrivals with missing numbers, first by digest, then by hour; return the others.

        What is missing in an hour of which the tap has nothing has no record either.
        """
        missing = [each for each in self.judged if each.unexplained > 0]
        excluded = [self._match_by_digest(each, arrivals) for each in missing]
        for each, others in zip(missing, excluded, strict=True):
            fitting = (one for one in self._fitting(each, arrivals) if one not in others)
            self._recover(each, list(islice(fitting, each.unexplained)), arrivals)
        for each in missing if self._gone else ():
            self._attribute_to_gone_hours(each)
        unsettled = self._unsettled()
        for each in missing:
            if each.manifest.epoch in unsettled:
                each.leave(clipped(each.candidates, (_NOTHING, unsettled[each.manifest.epoch])))
        self._match_unstated(arrivals)
        return [each for each in arrivals if not each.is_unread]

    def _unsettled(self) -> dict[str, int]:
        """Return by epoch up to which number a report that is not understood may explain what is missing."""
        found = {epoch: each.unproven_to for epoch, each in self._shares.items()}
        of_unknown_birth: set[str] = set()
        for report in self.reports.unsettled:
            epoch = report.epoch or ""
            if report.type == MANIFEST:
                continue
            if report.type == DISCARDED:
                number = _FAR if report.sequence is None else report.sequence
                found[epoch] = max(found.get(epoch, _NOTHING), number)
            # It may be about the epoch before, and about any other where it is not known which that was.
            if birth := self.reports.births.get(epoch):
                found[birth.lost_epoch or ""] = _FAR
            else:
                of_unknown_birth.add(epoch)
        is_unknown = {each: len(of_unknown_birth) > (each in of_unknown_birth) for each in self.manifests}
        return found | {each: _FAR for each, unknown in is_unknown.items() if unknown}

    def _match_by_digest(self, each: JudgedStatement, arrivals: _Arrivals) -> Collection[Arrival]:
        """Find which arrivals are the events that a statement misses; return those that are proven others."""
        epoch, statement = each.manifest.epoch, each.statement
        if statement.digest is None or each.explained:
            return ()
        seen = self.seen[epoch].digest(statement.span, statement.rule) if epoch in self.seen else 0
        events = self.seen[epoch].events(statement.span) if epoch in self.seen else 0
        if statement.count - events != each.missing:
            return ()  # some came out of view
        wanted = (statement.digest - seen) % DIGESTS
        fitting = list(islice(self._fitting(each, arrivals), _MOST_CHOICES + 1))
        # The number of choices itself takes long to compute where there are very many.
        is_many = _FEW < each.missing < len(fitting) - _FEW or len(fitting) > _MOST_CHOICES
        choices = _FAR if is_many else comb(len(fitting), each.missing)
        steps = len(fitting) + choices * each.missing
        if choices > _MOST_CHOICES or steps > self._steps:
            return ()
        self._steps -= steps
        digests = {arrival: arrival.digest(statement.rule) for arrival in fitting}
        if None in digests.values():
            return ()
        for some in combinations(fitting, each.missing):
            if sum(digests[arrival] or 0 for arrival in some) % DIGESTS == wanted:
                self._recover(each, some, arrivals)
                return ()
        return frozenset(fitting) if each.missing == 1 else ()

    def _recover(self, each: JudgedStatement, some: Sequence[Arrival], arrivals: _Arrivals) -> None:
        arrivals.take(some)
        each.unrecorded += len(some)
        # What came without a number that can be read is in the tap.
        self.holes.update(arrival.hour for arrival in some if not arrival.is_unread)
        if each.unrecorded == each.missing == length(each.unseen):
            each.in_holes = each.unseen

    def _fitting(self, each: JudgedStatement, arrivals: _Arrivals) -> Iterator[Arrival]:
        epoch = each.manifest.epoch
        return arrivals.within(epoch, (self._hours_of(epoch, span) for span in each.unseen))

    def _gone_hour(self, epoch: str, span: Range) -> int | None:
        """Return the first hour without a tap in which unseen numbers would have come."""
        first, last = self._hours_of(epoch, span)
        place = bisect_left(self._gone, first)
        return next((at for at in self._gone[place : place + 1] if at <= last), None)

    def _attribute_to_gone_hours(self, each: JudgedStatement) -> None:
        by_hour: dict[int | None, list[Range]] = defaultdict(list)
        for span in each.candidates:
            by_hour[self._gone_hour(each.manifest.epoch, span)].append(span)
        for hour, spans in by_hour.items():
            if hour is not None:
                self.holes[hour] += each.leave(spans)

    def _match_unstated(self, arrivals: _Arrivals) -> None:
        """Match arrivals with unseen numbers that no manifest states."""
        for epoch in self._in_view if self._gone or any(True for _ in arrivals) else ():
            for span, _ in self.unstated(epoch):
                # Of the hours around it the tap has something of the device: the others go first.
                around = self.seen[epoch].hours_around(span) if epoch in self.seen else ()
                fitting = arrivals.within(epoch, [self._hours_of(epoch, span)], around)
                taken = list(islice(fitting, length([span])))
                arrivals.take(taken)
                self.holes.update(each.hour for each in taken if not each.is_unread)
                hour = self._gone_hour(epoch, span)
                if hour is not None:
                    self.holes[hour] += length([span]) - len(taken)


def each_once(discards: Iterable[DiscardReport]) -> Iterator[tuple[DiscardReport, Range]]:
    """Yield what a device gave up, each number of a destination once, whatever it says how often."""
    done: dict[tuple[str, str], int] = {}
    for each in sorted(discards, key=lambda each: (each.epoch, each.span)):
        key = each.epoch, each.destination
        first = max(each.span[0], done.get(key, -_FAR) + 1)
        if first <= each.span[1]:
            done[key] = each.span[1]
            yield each, (first, each.span[1])


def _numbers_of(reports: Iterable[Report]) -> dict[str, list[int]]:
    """Return the numbers of reports by epoch, sorted."""
    found: dict[str, list[int]] = defaultdict(list)
    for report in reports:
        if report.sequence is not None:
            found[report.epoch or ""].append(report.sequence)
    return {epoch: sorted(numbers) for epoch, numbers in found.items()}


def _sharing(manifests: Iterable[ManifestReport]) -> dict[ManifestReport, ManifestReport]:
    """Return the manifests that state numbers which another one states too, with that one."""
    found: dict[ManifestReport, ManifestReport] = {}
    furthest: ManifestReport | None = None
    spans = [(each.span, each.sequence, each) for each in manifests if each.span is not None]
    for span, _, each in sorted(spans, key=lambda each: each[:2]):
        if furthest is not None and furthest.span is not None and span[0] <= furthest.span[1]:
            found[each] = furthest
            found.setdefault(furthest, each)
        if furthest is None or furthest.span is None or span[1] > furthest.span[1]:
            furthest = each
    return found


@dataclass(frozen=True, slots=True)
class Life:
    """An epoch of a device as the tap first saw it, Unix milliseconds, with its least number."""

    epoch: str
    date: str
    accepted_at_ms: int
    file: str
    sequence: int | None


def new_lives(lives: list[Life], births: Collection[Birth]) -> Iterator[tuple[Life, str | None, str | None]]:
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
