"""A device's numbers as ranges, `(first, last)` with both ends in it. No Spark."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Final

Range = tuple[int, int]

MAX_NUMBERED: Final = 10_000
"""Most numbers of one range that are reported one by one; a longer one is reported as a range. Ours: a forged
manifest of 10^12 events must not fill the disk with findings."""

DIGESTS: Final = 1 << 64
"""Sums of events' digests are taken modulo this: the low half of a manifest's digest."""


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
    """The numbers of one epoch that the tap has, with the digest of each event and when it came first.

    `rows` are hours of acceptance (counted from 1970), each with its numbers and their digests, in any order
    and with copies. A number that came with two digests is two events.
    """

    def __init__(self, rows: Iterable[tuple[int, Iterable[int], Iterable[int]]]) -> None:
        by_hour = sorted(
            (hour, sorted(zip(numbers, digests, strict=True))) for hour, numbers, digests in rows
        )
        events = [event for _, these in by_hour for event in these]
        hours = [hour for hour, these in by_hour for _ in these]
        if not all(before[0] < after[0] for before, after in pairwise(events)):
            first: dict[tuple[int, int], int] = {}
            for event, hour in zip(events, hours, strict=True):
                first.setdefault(event, hour)
            events = sorted(first)
            hours = [first[event] for event in events]
        self._numbers = array("q", (number for number, _ in events))
        self._hours = array("q", hours)
        self._sums = list(accumulate((digest for _, digest in events), initial=0))
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

    def digest(self, span: Range) -> int:
        """Return the sum of their digests, modulo `DIGESTS`."""
        first, end = self._places(span)
        return (self._sums[end] - self._sums[first]) % DIGESTS

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
