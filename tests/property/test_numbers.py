"""Ranges of a device's numbers behave as the sets that they stand for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.delivery_audit.device_reports import (
    DIGESTS,
    MAX_NUMBERED,
    Range,
    SeenNumbers,
    length,
    merged,
    one_by_one,
    overlap,
    without,
)

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
def test_ranges_are_split_one_by_one(some: list[Range]) -> None:
    assert list(one_by_one(merged(some))) == [(number, number) for number in sorted(numbers(some))]


def test_a_forged_range_stays_one() -> None:
    assert list(one_by_one([(1, MAX_NUMBERED + 1)])) == [(1, MAX_NUMBERED + 1)]


EVENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30), st.sampled_from([-(1 << 63), -7, 0, 9])))


@given(EVENTS, st.lists(st.integers(0, 31), min_size=2, max_size=2).map(sorted))
def test_seen_numbers_are_the_set_of_events_whatever_their_order(
    events: list[tuple[int, int, int]], ends: list[int]
) -> None:
    """Copies in one hour or another count once, in the first; a number with two digests is two events."""
    span = ends[0], ends[1]
    by_hour: dict[int, tuple[list[int], list[int]]] = {}
    for hour, number, digest in events:
        for values, value in zip(by_hour.setdefault(hour, ([], [])), (number, digest), strict=True):
            values.append(value)
    seen = SeenNumbers((hour, *values) for hour, values in by_hour.items())
    within = {(number, digest) for _, number, digest in events if span[0] <= number <= span[1]}
    assert seen.ranges == merged((number, number) for _, number, _ in events)
    assert seen.events(span) == len(within)
    assert seen.digest(span) == sum(digest for _, digest in within) % DIGESTS
    assert length(each for each, _ in seen.runs) == len({number for _, number, _ in events})
    first: dict[tuple[int, int], int] = {}
    for hour, number, digest in sorted(events):
        first.setdefault((number, digest), hour)
    for (low, high), hour in seen.runs:
        hours = {(one, at) for (one, _), at in first.items()}
        assert all((number, hour) in hours for number in range(low, high + 1))
