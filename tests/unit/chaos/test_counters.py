"""The counts of both ends, on a handful of events."""

import pytest

from eventplane.contract import Place
from local.chaos.counters import (
    Recovery,
    delays,
    delays_during,
    out_of_order,
    recoveries,
)
from local.chaos.faults import Struck
from local.oracle import Key, SentEvent

A: Key = ("/homes/a/voice", "1")
B: Key = ("/homes/a/voice", "2")
C: Key = ("/homes/a/voice", "3")
OTHER: Key = ("/homes/b/voice", "1")


def sent(*keys: Key) -> list[SentEvent]:
    return [SentEvent(source, id, "t", None, False, Place.DEVICE) for source, id in keys]


@pytest.mark.source("P17")
def test_an_event_that_came_after_a_later_one_of_its_source_is_out_of_order() -> None:
    assert out_of_order(sent(A, B, C, OTHER), [C, OTHER, A, B]) == 2
    assert out_of_order(sent(A, B, C, OTHER), [OTHER, A, B, C]) == 0
    assert out_of_order(sent(A), [("not_json", "digest"), A]) == 0


def test_recovery_lasts_until_the_oldest_event_that_waited_at_its_end_has_come() -> None:
    times = {A: 1.0, B: 2.0, C: 9.0, OTHER: 1.0}
    arrived = {A: 1.5, C: 9.5, B: 7.0, OTHER: 30.0}
    assert recoveries([Struck("cut", "a", 2.0, 5.0)], times, arrived) == [Recovery("cut", "a", 2.0)]


def test_of_faults_together_the_last_to_end_counts() -> None:
    struck = [Struck("cut", "a", 2.0, 5.0), Struck("kill", "a", 3.0, 6.0), Struck("kill", "b", 1.0, 9.0)]
    assert [each.kind for each in recoveries(struck, {A: 1.0}, {A: 8.0})] == ["kill", "kill"]


def test_delays_are_of_what_arrived_and_those_of_faults_of_their_home() -> None:
    times = {A: 1.0, B: 3.0, C: 4.0, OTHER: 3.0}
    arrived = {A: 2.0, B: 3.5, OTHER: 9.0}
    assert delays(times, arrived) == [1.0, 0.5, 6.0]
    assert delays_during([Struck("cut", "a", 2.0, 4.0)], times, arrived) == [0.5]
