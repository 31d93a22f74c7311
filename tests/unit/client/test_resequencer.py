"""The resequencer: order, gaps, bounds, and several readers of one state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.ordering import Stream
from eventplane_client import resequencer
from eventplane_client.notices import SequenceGap
from eventplane_client.resequencer import MOST_LOOKS, Resequencer

pytestmark = pytest.mark.source("P17", "C2", "F3")

TIMEOUT = 10.0
S = Stream("home-1/", "epoch", "desk/normal/0123abcd")


@given(st.permutations(range(1, 9)))
def test_whatever_comes_in_time_comes_in_order(numbers: list[int]) -> None:
    gaps: list[SequenceGap] = []
    order = Resequencer[int](TIMEOUT, gaps.append)
    out = [each for at, number in enumerate(numbers) for each in order.add(S, number, number, float(at) / 10)]
    assert out == sorted(numbers)
    assert gaps == []
    assert order.deadline() is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 12)), max_size=40))
def test_nothing_is_lost_or_invented(arrivals: list[tuple[str, int]]) -> None:
    order = Resequencer[tuple[str, int]](TIMEOUT, lambda _: None)
    out = []
    for at, each in enumerate(arrivals):
        out += order.add(Stream(each[0], "", ""), each[1], each, float(at))
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


def test_a_new_reader_begins_where_the_sender_is_and_tells_no_gap() -> None:
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
    order.rewind(S, 1, {2})
    assert order.add(S, 2, 2, 0.0) == []
    assert order.add(S, 1, 1, 1.0) == [1, 2]


def test_what_is_in_hand_holds_nothing_back() -> None:
    order = Resequencer[int](TIMEOUT, lambda _: None)
    for number in (1, 2, 3):
        order.add(S, number, number, 0.0)
    order.rewind(S, 1, {3})  # 2 is in hand
    assert order.done(S, 2) == 1
    assert order.add(S, 3, 3, 0.0) == []
    assert order.add(S, 1, 1, 1.0) == [1, 3]
    assert order.done(S, 1) == 3
    assert order.done(S, 3) == 4


def test_the_position_is_the_first_that_is_not_done() -> None:
    order = Resequencer[int](TIMEOUT, lambda _: None)
    for number in (1, 2, 3):
        order.add(S, number, number, 0.0)
    assert [order.done(S, each) for each in (2, 1, 3)] == [1, 3, 4]
    order.add(S, 6, 6, 0.0)
    order.due(TIMEOUT)
    assert order.done(S, 6) == 7  # what did not come in time is not waited for again


def test_an_alarm_does_not_wait_for_one_gap_after_another() -> None:
    gaps: list[SequenceGap] = []
    order = Resequencer[int](TIMEOUT, gaps.append)
    order.add(S, 1, 1, 0.0)
    for number in (3, 5, 7):  # each second one was lost
        assert order.add(S, number, number, 1.0) == []
    assert order.add(S, 9, 9, 4.0) == []
    assert order.due(11.0) == [3, 5, 7]
    assert [each.first for each in gaps] == [2, 4, 6]
    assert order.due(13.9) == []
    assert order.due(14.0) == [9]


def test_what_was_filled_gives_what_is_behind_it_a_time_of_its_own() -> None:
    order = Resequencer[int](TIMEOUT, lambda _: None)
    assert order.add(S, 2, 2, 0.0) == order.add(S, 4, 4, 0.0) == []
    assert order.add(S, 1, 1, 9.0) == [1, 2]
    assert order.due(10.0) == []
    assert order.due(19.0) == [4]


def test_a_number_far_ahead_takes_no_memory() -> None:
    order = Resequencer[int](TIMEOUT, lambda _: None)
    assert order.add(S, 5, 5, 0.0) == order.add(S, 10**12 - 2, 6, 0.0) == []
    assert order.due(TIMEOUT) == [5, 6]
    order.rewind(S, 5, {10**12 - 2})
    assert order.add(S, 10**12 - 2, 6, TIMEOUT) == []
    assert order.add(S, 5, 5, TIMEOUT) == [5, 6]


def test_many_gaps_do_not_block_a_reader() -> None:
    looks: list[Stream] = []

    def position(stream: Stream) -> None:
        looks.append(stream)

    order = Resequencer[int](TIMEOUT, lambda _: None, position)
    streams = [S._replace(epoch=str(each)) for each in range(5 * MOST_LOOKS)]
    for each in streams:
        assert order.add(each, 2, 2, 0.0) == []
    looks.clear()
    order.due(1.0)
    assert len(looks) == MOST_LOOKS
    for _ in range(4):
        order.due(1.0)
    assert sorted(looks) == sorted(streams)
    looks.clear()
    out = order.due(TIMEOUT)
    assert len(out) == MOST_LOOKS
    assert len(looks) <= 2 * MOST_LOOKS
    while (deadline := order.deadline()) is not None:
        out += order.due(max(deadline, TIMEOUT))
    assert len(out) == len(streams)


def test_a_position_is_stored_once() -> None:
    order = Resequencer[int](TIMEOUT, lambda _: None)
    order.add(S, 1, 1, 0.0)
    assert not order.is_news(S, 1)
    assert order.is_news(S, order.done(S, 1))
    order.stored(S, 2)
    assert not order.is_news(S, 2)


def test_what_comes_for_the_last_time_is_not_held() -> None:
    gaps: list[SequenceGap] = []
    order = Resequencer[int](TIMEOUT, gaps.append, lambda _: 1)
    assert order.add(S, 3, 3, 0.0) == []
    assert order.add_last(S, 5, 5, 0.0) == [3, 5]
    assert gaps == [SequenceGap(*S, 1, 2), SequenceGap(*S, 4, 4)]
    assert order.deadline() is None


def test_what_is_held_is_bounded() -> None:
    gaps: list[SequenceGap] = []
    order = Resequencer[int](TIMEOUT, gaps.append, most_held=100)
    order.add(S, 1, 1, 0.0)
    out = [each for number in range(3, 105) for each in order.add(S, number, number, 0.0)]
    assert len(out) > 100
    assert gaps == [SequenceGap(*S, 2, 2)]


def test_streams_that_are_forgotten_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resequencer, "MOST_STREAMS", 2)
    positions: dict[Stream, int] = {}
    order = Resequencer[int](TIMEOUT, lambda _: None, positions.get)
    streams = [S._replace(sender=f"home-{each}/") for each in range(5)]
    for each in streams:
        assert order.add(each, 1, 1, 0.0) == [1]
        positions[each] = order.done(each, 1)
    assert order.add(streams[0], 2, 2, 0.0) == [2]


def test_what_is_drained_is_not_held_any_more() -> None:
    order = Resequencer[str](1.0, lambda _: None)
    other = S._replace(sender="home-2/")
    assert order.add(S, 3, "three", 0.0) == order.add(other, 2, "two", 0.0) == []
    assert sorted(order.drain()) == ["three", "two"]
    assert order.drain() == order.due(10.0) == []
    assert order.deadline() is None
