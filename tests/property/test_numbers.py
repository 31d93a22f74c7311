"""Ranges of a device's numbers behave as the sets that they stand for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.delivery_audit.numbers import MAX_NUMBERED, Range, length, merged, one_by_one, overlap, without

RANGES = st.lists(st.tuples(st.integers(-5, 40), st.integers(0, 8)).map(lambda each: (each[0], sum(each))))


def numbers(ranges: list[Range]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(RANGES, RANGES)
def test_ranges_are_sets(some: list[Range], others: list[Range]) -> None:
    assert numbers(merged(some)) == numbers(some)
    assert numbers(without(some, others)) == numbers(some) - numbers(others)
    assert numbers(overlap(some, others)) == numbers(some) & numbers(others)


@given(RANGES)
def test_merged_ranges_are_sorted_and_apart(some: list[Range]) -> None:
    found = merged(some)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
    assert length(found) == len(numbers(some))


@given(RANGES)
def test_ranges_are_told_one_by_one(some: list[Range]) -> None:
    assert list(one_by_one(merged(some))) == [(number, number) for number in sorted(numbers(some))]


def test_a_forged_range_is_told_as_one() -> None:
    assert list(one_by_one([(1, MAX_NUMBERED + 1)])) == [(1, MAX_NUMBERED + 1)]
