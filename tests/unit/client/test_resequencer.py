"""The resequencer: order, gaps, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.envelope import write_event
from eventplane_client.notices import SequenceGap
from eventplane_client.resequencer import MOST_HELD, Resequencer, number_of

TIMEOUT = 10.0
S = ("home-1/", "s")


@pytest.mark.source("P17")
@given(st.permutations(range(1, 9)))
def test_whatever_comes_in_time_comes_in_order(numbers: list[int]) -> None:
    gaps: list[SequenceGap] = []
    order = Resequencer[int](TIMEOUT, gaps.append)
    out = [each for at, number in enumerate(numbers) for each in order.add(S, number, number, float(at) / 10)]
    assert out == sorted(numbers)
    assert gaps == []
    assert order.deadline() is None


@pytest.mark.source("P17")
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12)), max_size=40))
def test_nothing_is_lost_or_invented(arrivals: list[tuple[str, int]]) -> None:
    order = Resequencer[tuple[str, int]](TIMEOUT, lambda _: None)
    out = []
    for at, each in enumerate(arrivals):
        out += order.add(("", each[0]), each[1], each, float(at))
        out += order.due(float(at))
    while (deadline := order.deadline()) is not None:
        out += order.due(deadline)
    assert sorted(out) == sorted(arrivals)


def test_a_gap_is_told_after_its_time_and_the_late_ones_still_come() -> None:
    gaps: list[SequenceGap] = []
    order = Resequencer[int](TIMEOUT, gaps.append)
    assert order.add(S, 1, 1, 0.0) == [1]
    assert order.add(S, 4, 4, 1.0) == []
    assert order.due(10.9) == []
    assert order.due(11.0) == [4]
    assert gaps == [SequenceGap(*S, 2, 3)]
    assert order.add(S, 3, 3, 12.0) == [3]


def test_a_new_reader_begins_where_the_source_is_and_tells_no_gap() -> None:
    gaps: list[SequenceGap] = []
    order = Resequencer[int](TIMEOUT, gaps.append)
    assert order.add(S, 70, 70, 0.0) == []
    assert order.add(S, 69, 69, 1.0) == []
    assert order.due(10.0) == [69, 70]
    assert order.add(S, 71, 71, 11.0) == [71]
    assert gaps == []


def test_what_is_given_back_goes_first() -> None:
    order = Resequencer[int](TIMEOUT, lambda _: None)
    for number in (1, 2):
        order.add(S, number, number, 0.0)
    order.rewind(S, 1)
    assert order.add(S, 2, 2, 0.0) == []
    assert order.add(S, 1, 1, 1.0) == [1, 2]


@pytest.mark.source("C5")
def test_what_is_held_is_bounded() -> None:
    gaps: list[SequenceGap] = []
    order = Resequencer[int](TIMEOUT, gaps.append)
    order.add(S, 1, 1, 0.0)
    out = [each for number in range(3, MOST_HELD + 5) for each in order.add(S, number, number, 0.0)]
    assert len(out) > MOST_HELD
    assert gaps == [SequenceGap(*S, 2, 2)]


@pytest.mark.parametrize(
    ("text", "number"), [("007", 7), ("A7", None), ("-1", None), ("9" * 40, None), (None, None)]
)
def test_only_whole_numbers_have_a_place(text: str | None, number: int | None) -> None:
    attributes = {"id": "1", "source": "/s", "type": "t"}
    assert number_of(write_event(attributes if text is None else {**attributes, "sequence": text})) == number


def test_what_is_drained_is_not_held_any_more() -> None:
    order = Resequencer[str](1.0, lambda _: None)
    assert order.add("/a", 3, "three", 0.0) == order.add("/b", 2, "two", 0.0) == []
    assert sorted(order.drain()) == ["three", "two"]
    assert order.drain() == order.due(10.0) == []
    assert order.deadline() is None
