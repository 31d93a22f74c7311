"""What arrived within the homes: an alarm in its own, what carers send in the home that it is for."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.progress import Progress

from eventplane.contract import Contract
from eventplane.receipts import SPOOL_FULL
from local.oracle import Arrived, Key, SentLog, judge
from local.ports import free_port
from local.services import CALL_SERVICE, LISTENERS, HomeServices, arrived_on_device
from local.waiting import Waits
from tests.eventually import eventually

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


def test_an_alarm_that_another_home_answered_has_not_arrived_and_is_unexpected() -> None:
    [verdict] = judge({CALL_SERVICE: {A, B}}, {CALL_SERVICE: arrived(CALL_SERVICE, {B: 2}, {B: 3})})
    assert verdict.lost == (A,)
    assert verdict.unexpected == (("/homes/b/voice-service at a", "1"),)
    assert verdict.duplicates == 3


def test_what_no_home_received_is_lost_and_what_nobody_sent_it_unexpected() -> None:
    received = arrived(VOICE, {MESSAGE: 1, FOREIGN: 2}, {})
    [verdict] = judge({VOICE: {MESSAGE, ("/carers", "2")}}, {VOICE: received})
    assert verdict.lost == (("/carers", "2"),)
    assert verdict.unexpected == (FOREIGN,)
    assert verdict.duplicates == 1


def test_what_another_home_receives_as_well_is_a_duplicate() -> None:
    assert arrived(VOICE, {MESSAGE: 1}, {MESSAGE: 1}) == Arrived({MESSAGE}, 1)
    assert arrived_on_device([])[VOICE] == Arrived(frozenset(), 0)


def test_a_message_without_room_in_the_spool_waits_and_other_refusals_are_final(contract: Contract) -> None:
    with HomeServices("a", ["activity-service"], free_port(), contract, SentLog(contract)) as services:
        services._refuse("activity-service", b"{}", SPOOL_FULL)
        services._refuse("activity-service", b"garbage", "not_json")
        assert services.waiting == 1
        assert eventually(lambda: services.waiting == 1 and not services._again)  # sent again, no receipt
        assert services.refused == ["not_json"]


def test_a_wait_in_which_nothing_moves_is_given_up_and_named() -> None:
    waits = Waits(Progress(disable=True), 0.0)
    left = iter([2, 1, 0])
    waits.until_none_remain("drains", lambda: next(left))
    assert waits.gave_up == []
    waits.until_none_remain("stands still", lambda: 1)
    assert waits.gave_up == ["stands still"]
