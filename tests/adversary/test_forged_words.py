"""Forged words, by everybody who can send: each is refused, and its dead letter names who really sent it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from eventplane.envelope import Envelope
from lambdas.common import system
from lambdas.router.payload import PayloadCheck
from tests.adversary.conftest import Attempt
from tests.adversary.forgeries import FORGERIES, Forgery
from tests.adversary.world import World


@dataclass(frozen=True)
class Launched:
    """The events of the forgeries, and when the last of them was sent (`time.monotonic`)."""

    events: Mapping[Forgery, Envelope]
    at: float


@pytest.fixture(scope="module")
def launched(world: World) -> Launched:
    """All of them, sent one after the other: none waits for what becomes of the one before."""
    events = {}
    check = PayloadCheck(world.plane.contract, cpu_time=system.cpu_time).of_message()
    for each in FORGERIES:
        events[each] = each.write()
        assert check(events[each]) is None, "only its sender should be wrong"
        world.attacker(each.by).send(events[each])
    return Launched(events, time.monotonic())


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda each: f"{each.by}: {each.title}")
def test_nobody_speaks_for_another(
    world: World, launched: Launched, attempt: Attempt, forgery: Forgery
) -> None:
    event = launched.events[forgery]
    problem = world.problem_of_trace(event, forgery.by, forgery.reason, launched.at)
    attempt.reported(not problem, problem)
    got = world.who_got(event)
    # Without a decision it may still be in flight.
    attempt.refused(not problem and not got, f"it came to {got}, or is still in flight")


def test_after_all_of_them_the_victim_is_heard(world: World, launched: Launched) -> None:
    assert world.is_heard(world.calls_for_help())
