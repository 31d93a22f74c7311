"""What a device reports of itself, read from the tap: what it stored and gave up, and its store's births.

Numbers are ranges, `(first, last)` with both ends in them. A report counts only for the device that sent it:
a source that names another one is forged. No Spark.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

from eventplane.device_reports import (
    DISCARDED,
    MANIFEST,
    SHA256,
    SHA256_EVENT,
    STARTED,
    forwarder_source,
)
from eventplane.values import whole_number

Range = tuple[int, int]

MAX_NUMBERED: Final = 10_000
"""Most numbers of one range that are reported one by one; a longer one is reported as a range. Ours: a forged
manifest of 10^12 events must not fill the disk with findings."""

DIGESTS: Final = 1 << 64
"""Sums of events' digests are taken modulo this: the low half of a manifest's digest."""

RULES: Final = (SHA256, SHA256_EVENT)
"""How a manifest may make its digests, as it states by `key_digest`."""

SALVAGE_SHIFT: Final = 1 << 40
"""How far a spool lowers the numbers of events saved from a damaged one (docs/explanation/spool.md)."""

SENT_UNSTORED: Final = "sent_unstored"
"""The reason of an entry in `not_stored` that counts deliveries from memory: its refusal has another one."""

USUAL_INTERVAL_S: Final = 3_600
"""When the next manifest of a forwarder that does not state its interval is due, seconds: the default of
`manifest_interval_s`."""

_LONGEST_INTERVAL_S: Final = 86_400
"""Largest `manifest_interval_s`, seconds."""

_MOST: Final = 2**62
"""Largest number of a report that is believed, of either sign: 64 bits hold it with `SALVAGE_SHIFT`."""


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the numbers of `ranges`, each once: sorted ranges with a gap between any two."""
    result: list[Range] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def without(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """Return what `ranges` have and `taken` have not."""
    cuts, result = merged(taken), []
    for first, last in merged(ranges):
        # The last cut that begins before the range may reach into it; the ones before it end earlier.
        for low, high in cuts[max(0, bisect_right(cuts, (first,)) - 1) :]:
            if high < first:
                continue
            if low > last:
                break
            if low > first:
                result.append((first, low - 1))
            first = high + 1
        if first <= last:
            result.append((first, last))
    return result


def overlap(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Return the numbers that are in both."""
    whole = merged(ranges)
    return without(whole, without(whole, others))


def length(ranges: Iterable[Range]) -> int:
    """Return how many numbers there are in ranges that do not overlap."""
    return sum(last - first + 1 for first, last in ranges)


def one_by_one(ranges: Iterable[Range]) -> Iterator[Range]:
    """Split `ranges` into ranges of one number; those of more than `MAX_NUMBERED` stay as they are."""
    for first, last in ranges:
        if last - first < MAX_NUMBERED:
            yield from ((number, number) for number in range(first, last + 1))
        else:
            yield first, last


class SeenNumbers:
    """The numbers of one epoch that the tap has, with the digests of each event and when it came first.

    `rows` are hours of acceptance (counted from 1970), each with its numbers and their digests by each of
    `RULES`, in any order and with copies. A number that came with two digests is two events.
    """

    def __init__(self, rows: Iterable[tuple[int, Iterable[int], Iterable[int], Iterable[int]]]) -> None:
        by_hour = sorted((hour, sorted(zip(*columns, strict=True))) for hour, *columns in rows)
        events = [event for _, these in by_hour for event in these]
        hours = [hour for hour, these in by_hour for _ in these]
        if not all(before[0] < after[0] for before, after in pairwise(events)):
            first: dict[tuple[int, ...], int] = {}
            for event, hour in zip(events, hours, strict=True):
                first.setdefault(event, hour)
            events = sorted(first)
            hours = [first[event] for event in events]
        self._numbers = array("q", (number for number, *_ in events))
        self._hours = array("q", hours)
        self._digests = {
            rule: array("q", (event[place] for event in events)) for place, rule in enumerate(RULES, 1)
        }
        self._sums: dict[str, list[int]] = {}
        self.runs = list(self._runs())
        """Ranges of numbers that came first in the same hour, and that hour; each number once."""
        self.ranges = merged(span for span, _ in self.runs)

    @property
    def hours(self) -> Range:
        """When the first and the last of them came."""
        return min(self._hours), max(self._hours)

    def events(self, span: Range) -> int:
        """Return how many different events have numbers in `span`."""
        first, end = self._places(span)
        return end - first

    def digest(self, span: Range, rule: str) -> int:
        """Return the sum of their digests by one of `RULES`, modulo `DIGESTS`."""
        if rule not in self._sums:
            self._sums[rule] = list(accumulate(self._digests[rule], initial=0))
        first, end = self._places(span)
        return (self._sums[rule][end] - self._sums[rule][first]) % DIGESTS

    def hours_around(self, unseen: Range) -> tuple[int | None, int | None]:
        """Return when the neighbours of a range of unseen numbers came, None where there is none."""
        before, behind = self._places(unseen)
        return (
            self._hours[before - 1] if before else None,
            self._hours[behind] if behind < len(self._hours) else None,
        )

    def _places(self, span: Range) -> tuple[int, int]:
        return bisect_left(self._numbers, span[0]), bisect_right(self._numbers, span[1])

    def _runs(self) -> Iterator[tuple[Range, int]]:
        start: int | None = None
        last = at = 0
        for number, hour in zip(self._numbers, self._hours, strict=True):
            if start is not None and number == last:
                continue  # another event of the same number
            if start is not None and number == last + 1 and hour == at:
                last = number
                continue
            if start is not None:
                yield (start, last), at
            start, last, at = number, number, hour
        if start is not None:
            yield (start, last), at


@dataclass(frozen=True, slots=True)
class Report:
    """One report's row in the tap; `epoch` and `sequence` are its own number, `text` the event.

    `client_id` is the connection that it came over, `within` whether it was accepted within the window.
    """

    client_id: str
    within: bool
    date: str
    accepted_at_ms: int
    file: str
    type: str
    source: str
    id: str
    epoch: str | None
    sequence: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Statement:
    """What a manifest states for one uplink: `count` events with numbers within `span`.

    `digest` is the low half of the sum of their digests by the `rule`, one of `RULES`; None where nobody can
    compare it.
    """

    span: Range
    count: int
    digest: int | None
    rule: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest about `epoch`, its `statements` of uplinks that stored something, in the order of numbers.

    All up to number `acknowledged_to` was acknowledged or given up (None: not stated). The next manifest is
    due after `interval_ms`, milliseconds, unless the forwarder stopped with this one (`is_final`).
    """

    report: Report
    sequence: int
    epoch: str
    statements: tuple[Statement, ...]
    acknowledged_to: int | None
    interval_ms: int
    is_final: bool

    @property
    def span(self) -> Range | None:
        """The numbers that it is about, None where nothing was stored."""
        if not self.statements:
            return None
        return self.statements[0].span[0], max(each.span[1] for each in self.statements)


@dataclass(frozen=True, slots=True)
class Birth:
    """A store's life called `epoch` began; `lost_epoch` is the one before, None without one."""

    report: Report
    epoch: str
    birth: str
    lost_epoch: str | None


@dataclass(frozen=True, slots=True)
class Discard:
    """The device gave up the numbers `span` of `epoch`."""

    report: Report
    epoch: str
    span: Range
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotStored:
    """`count` events that the device refused or gave up without a number."""

    report: Report
    channel: str
    type: str
    reason: str
    count: int


@dataclass(slots=True)
class DeviceReports:
    """All that a device reports; `forged` has the reports that count for nothing, and why.

    `not_understood` has those of a newer version, of which a part counts, and what is not known.
    """

    manifests: list[Manifest] = field(default_factory=list)
    births: list[Birth] = field(default_factory=list)
    discards: list[Discard] = field(default_factory=list)
    not_stored: list[NotStored] = field(default_factory=list)
    forged: list[tuple[Report, str]] = field(default_factory=list)
    not_understood: list[tuple[Report, str]] = field(default_factory=list)


def read_reports(reports: Iterable[Report], uplinks: Collection[str]) -> DeviceReports:
    """Read what a device reports about the channels `uplinks`; copies count once."""
    read = DeviceReports()
    once: dict[tuple[str, str, str], Report] = {}
    for report in sorted(reports, key=lambda each: (each.accepted_at_ms, each.file)):
        once.setdefault((report.client_id, report.source, report.id), report)
    # Births first: a report of what was given up may be about the epoch before.
    for report in sorted(once.values(), key=lambda each: each.type != STARTED):
        if report.source != forwarder_source(report.client_id):
            read.forged.append((report, "a report in the name of another device"))
            continue
        try:
            _BY_TYPE[report.type](read, report, json.loads(report.text)["data"], uplinks)
        except (ValueError, TypeError, KeyError, AttributeError):
            read.forged.append((report, "a report that cannot be read"))
    return read


def _manifest(read: DeviceReports, report: Report, data: dict[str, Any], uplinks: Collection[str]) -> None:
    if report.sequence is None:
        raise ValueError("a manifest without a number")
    stated = [each for each in data["statements"] if each["destination"] in uplinks]
    # Forwarders leave it out where several versions made the digests.
    rule = data.get("key_digest")
    found = sorted((_statement(each, rule) for each in stated), key=lambda each: each.span)
    if rule is not None and rule not in RULES:
        read.not_understood.append((report, f"its digests are made by the rule {rule!r:.40}"))
    # Older forwarders do not state it: nobody knows whether what they sent was acknowledged.
    acknowledged = [_number(each["acknowledged_to"]) for each in stated if "acknowledged_to" in each]
    read.manifests.append(
        Manifest(
            report,
            report.sequence,
            str(data["epoch"]),
            tuple(each for each in found if each.count > 0 and each.span[1] >= each.span[0]),
            # It reports nothing of itself, nor of what came later.
            min(*acknowledged, report.sequence - 1)
            if acknowledged and len(acknowledged) == len(stated)
            else None,
            1_000
            * min(whole_number(data.get("interval_s", USUAL_INTERVAL_S), _MOST, 1), _LONGEST_INTERVAL_S),
            data.get("final") is True,
        )
    )


def _statement(stated: dict[str, Any], rule: object) -> Statement:
    digest = int(str(stated["digest"]), 16) % DIGESTS if rule in RULES else None
    span = _number(stated["first"]), _number(stated["last"])
    return Statement(span, _number(stated["count"]), digest, str(rule))


def _started(read: DeviceReports, report: Report, data: dict[str, Any], _: Collection[str]) -> None:
    read.births.append(Birth(report, str(data["epoch"]), str(data["birth"]), data.get("lost_epoch") or None))


def _discarded(read: DeviceReports, report: Report, data: dict[str, Any], uplinks: Collection[str]) -> None:
    found = [
        NotStored(report, each["channel"], each["type"], each["reason"], _number(each["count"]))
        for each in data.get("not_stored") or ()
    ]
    given_up = [
        discard
        for each in data.get("deliveries") or ()
        if each["destination"] in uplinks
        for discard in _discards(read, report, each)
    ]
    read.not_stored += [each for each in found if each.reason != SENT_UNSTORED and each.count > 0]
    read.discards += given_up


def _discards(read: DeviceReports, report: Report, ended: dict[str, Any]) -> Iterator[Discard]:
    """Return ranges that the device gave up; negative numbers are of events saved from the epoch before."""
    before = next((each.lost_epoch for each in read.births if each.epoch == report.epoch), None)
    for first, last in (map(_number, each) for each in ended["ranges"]):
        shift = SALVAGE_SHIFT if first < 0 else 0
        epoch = before if shift else report.epoch
        if epoch is not None and last >= first:
            span = (first + shift, last + shift)
            yield Discard(report, epoch, span, str(ended["outcome"]), str(ended["reason"]))


def _number(value: object) -> int:
    """Return a number that Spark can hold. Raises ValueError."""
    return whole_number(value, _MOST, -_MOST)


_BY_TYPE: Final = {MANIFEST: _manifest, STARTED: _started, DISCARDED: _discarded}
