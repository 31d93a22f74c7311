"""What arrived within the homes: an alarm in its own, what all are told in each."""

from dataclasses import dataclass

from local.oracle import Arrived, judge
from local.sent import Key
from local.services import arrived_at_call_services, arrived_in_homes

A: Key = ("/homes/a/voice-service", "1")
B: Key = ("/homes/b/voice-service", "1")
TOLD: Key = ("/carers", "1")
FOREIGN: Key = ("/homes/a/health-service", "1")


@dataclass
class Answering:
    """Stands for a call-service."""

    arrived: Arrived


@dataclass
class Home:
    home: str
    call_service: Answering


def test_an_alarm_that_another_home_answered_has_not_arrived_and_is_unexpected() -> None:
    homes = [Home("a", Answering(Arrived({B}, 1))), Home("b", Answering(Arrived({B}, 2)))]
    arrived = arrived_at_call_services(homes)
    [verdict] = judge({"call-service": {A, B}}, {"call-service": arrived})
    assert verdict.lost == (A,)
    assert verdict.unexpected == (("/homes/b/voice-service at a", "1"),)
    assert verdict.duplicates == 3


def test_what_no_home_heard_is_lost_and_what_nobody_told_it_unexpected() -> None:
    arrived = arrived_in_homes([{TOLD: 1, FOREIGN: 2}, {}])
    [verdict] = judge({"voice-service": {TOLD, ("/carers", "2")}}, {"voice-service": arrived})
    assert verdict.lost == (("/carers", "2"),)
    assert verdict.unexpected == (FOREIGN,)
    assert verdict.duplicates == 1


def test_what_another_home_hears_as_well_is_a_repetition() -> None:
    assert arrived_in_homes([{TOLD: 1}, {TOLD: 1}]) == Arrived({TOLD}, 1)
    assert arrived_in_homes([]) == Arrived(frozenset(), 0)
