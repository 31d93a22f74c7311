"""What arrived within the homes: an alarm in its own, what carers send in the home that it is for."""

from collections import Counter
from typing import Any

from lab.oracle import Arrived, Key, judge
from lab.services import CALL_SERVICE, LISTENERS, arrived_on_device

A: Key = ("/homes/a/voice-service", "1")
B: Key = ("/homes/b/voice-service", "1")
MESSAGE: Key = ("/carers", "1")
FOREIGN: Key = ("/carers", "3")
VOICE = "voice-service"


class Home:
    """The services of a home, with what they received."""

    def __init__(self, home: str, **received: dict[Key, int]) -> None:
        self.home = home
        self.received = {name: Counter(received.get(name)) for name in (CALL_SERVICE, *LISTENERS)}


def arrived(service: str, *homes: dict[Key, int]) -> Arrived:
    made: list[Any] = [Home(name, **{service: each}) for name, each in zip("ab", homes, strict=False)]
    return arrived_on_device(made)[service]


def test_another_homes_answer_is_unexpected() -> None:
    [verdict] = judge({CALL_SERVICE: {A, B}}, {CALL_SERVICE: arrived(CALL_SERVICE, {B: 2}, {B: 3})})
    assert (verdict.lost, verdict.duplicates) == ((A,), 3)
    assert verdict.unexpected == (("/homes/b/voice-service at a", "1"),)


def test_several_homes_receive_duplicates() -> None:
    received = arrived(VOICE, {MESSAGE: 1, FOREIGN: 2}, {MESSAGE: 1})
    [verdict] = judge({VOICE: {MESSAGE, ("/carers", "2")}}, {VOICE: received})
    assert (verdict.lost, verdict.duplicates) == ((("/carers", "2"),), 2)
    assert verdict.unexpected == (FOREIGN,)
