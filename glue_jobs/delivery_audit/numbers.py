"""A device's numbers as ranges, `(first, last)` with both ends in it: which of them the tap has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

Range = tuple[int, int]

MAX_NUMBERED: Final = 10_000
"""Most numbers of one range that are told one by one; a longer one is told as a range. Ours: whoever forges a
manifest of 10^12 events shall not fill the disk with findings."""


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The numbers of `ranges`, each once: sorted ranges with a gap between any two."""
    result: list[Range] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def without(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """What `ranges` have and `taken` have not."""
    cuts, result = merged(taken), []
    for first, last in merged(ranges):
        for low, high in cuts:
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
    """The numbers that are in both."""
    whole = merged(ranges)
    return without(whole, without(whole, others))


def length(ranges: Iterable[Range]) -> int:
    """How many numbers there are in ranges that do not overlap."""
    return sum(last - first + 1 for first, last in ranges)


def one_by_one(ranges: Iterable[Range]) -> Iterator[Range]:
    """`ranges` as ranges of one number; those of more than `MAX_NUMBERED` stay as they are."""
    for first, last in ranges:
        if last - first < MAX_NUMBERED:
            yield from ((number, number) for number in range(first, last + 1))
        else:
            yield first, last
