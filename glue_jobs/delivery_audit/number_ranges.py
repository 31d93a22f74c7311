"""Ranges of a device's numbers, and the numbers that the tap has, packed. No Spark.

Numbers are ranges, `(first, last)` with both ends in them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import repeat
from struct import Struct
from typing import Final

from eventplane.report_reader import DIGESTS, RULES, Range, merged

MAX_NUMBERED: Final = 10_000
"""Most numbers that are reported one by one; beyond, a range is reported as one. Ours: a forged manifest of
10^12 events must not fill the disk with findings."""


def without(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """Return what `ranges` have and `taken` have not."""
    cuts, result, place = merged(taken), list[Range](), 0
    for first, last in merged(ranges):
        while place < len(cuts) and cuts[place][0] <= last:
            low, high = cuts[place]
            if first < low:
                result.append((first, low - 1))
            first = max(first, high + 1)
            if high > last:
                break  # it may reach into the next range
            place += 1
        if first <= last:
            result.append((first, last))
    return result


def overlap(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Return the numbers that are in both."""
    whole = merged(ranges)
    return without(whole, without(whole, others))


def clipped(ranges: Sequence[Range], span: Range) -> list[Range]:
    """Return what lies in `span` of `ranges`, which are `merged`; in time linear in what is returned."""
    start = bisect_left(ranges, span[0], key=lambda each: each[1])
    end = bisect_right(ranges, span[1], key=lambda each: each[0])
    return [(max(first, span[0]), min(last, span[1])) for first, last in ranges[start:end]]


def one_by_one(ranges: Iterable[Range], most: int = MAX_NUMBERED) -> Iterator[Range]:
    """Split `ranges` into ranges of one number, `most` in all; those that do not fit in stay as they are."""
    for first, last in ranges:
        if last - first < most:
            most -= last - first + 1
            yield from ((number, number) for number in range(first, last + 1))
        else:
            yield first, last


Event = tuple[int, ...]
"""Number of an event and its digest by each of `RULES`, unsigned words of 64 bits."""

_EVENT: Final = Struct(">QQQ")
"""An event packed: objects would take ten times more."""

EVENT_BYTES: Final = _EVENT.size


def pack_events(events: Iterable[Event]) -> bytes:
    """Return events, each as three words of 64 bits, as `in_order` reads them."""
    words = sorted(tuple(word % DIGESTS for word in each) for each in events)
    return b"".join(_EVENT.pack(*each) for each in words)


def first_number(events: bytes) -> int | None:
    """Return the least number of packed events, None of none."""
    return _EVENT.unpack_from(events)[0] if events else None


def numbers_in(events: bytes) -> set[int]:
    """Return the numbers of packed events."""
    return {number for number, *_ in _EVENT.iter_unpack(events)}


def in_order(rows: Iterable[tuple[int, bytes]]) -> Iterator[tuple[Event, int]]:
    """Yield each different event of some hours' packed events, in order, and its first hour."""
    before: Event | None = None
    hours = (zip(_EVENT.iter_unpack(events), repeat(hour), strict=False) for hour, events in rows)
    # Copies of an event are ordered by the hour.
    for event, hour in merge(*hours):
        if event != before:
            before = event
            yield event, hour


class SeenNumbers:
    """The numbers of one epoch that the tap has, with the digests of each event and when it came first.

    `rows` are hours of acceptance (counted from 1970), each with its packed events (`pack_events`), in any
    order and with copies. A number that came with two digests is two events. Of an event 32 bytes are kept.
    """

    def __init__(self, rows: Iterable[tuple[int, bytes]]) -> None:
        self._numbers, self._hours = array("q"), array("q")
        self._sums = {rule: array("Q", [0]) for rule in RULES}
        one, other = self._sums.values()
        key_sum = text_sum = 0
        # Once for each event of a device: a loop over the rules takes twice as long.
        for (number, by_key, by_text), hour in in_order(rows):
            self._numbers.append(number)
            self._hours.append(hour)
            one.append(key_sum := (key_sum + by_key) % DIGESTS)
            other.append(text_sum := (text_sum + by_text) % DIGESTS)
        self.ranges = merged(span for span, _ in self.runs)
        self.hours: Range = min(self._hours, default=0), max(self._hours, default=0)
        """When the first and the last of them came."""

    def events(self, span: Range) -> int:
        """Return how many different events have numbers in `span`."""
        first, end = self._places(span)
        return end - first

    def digest(self, span: Range, rule: str) -> int:
        """Return the sum of their digests by one of `RULES`, modulo `DIGESTS`."""
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

    @property
    def runs(self) -> Iterator[tuple[Range, int]]:
        """Yield ranges of numbers that came first in the same hour, and that hour; each number once."""
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
