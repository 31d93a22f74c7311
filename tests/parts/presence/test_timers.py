"""Timers: a device is judged at its deadline, by the timer that was armed for it."""

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from eventplane.presence import Line
from lambdas.common.metrics import metrics
from parts.presence.timer_queue import MAX_DELAY_S, Timer, UnreadableTimerError, read_timer
from parts.presence.timers import PUNCTUAL_MS
from tests.fakes.faults import FailingClient, HookedClient, RefusingSqs
from tests.parts.presence.world import HOUR, LIMITS, MINUTE, START, S, World, heartbeat, lifecycle, word

pytestmark = pytest.mark.source("P9")

SETTLED_MS = round(1_000 * LIMITS.disconnected_after_s)
GONE = ["disconnected", "notice opened"]
QUIET = ["notice opened", "quiet"]


def beat(world: World, sequence: int, **figures: Any) -> None:
    world.record(heartbeat(sequence, **figures), heartbeats=True)


def test_a_late_deadline_is_reached_in_steps(world: World) -> None:
    beat(world, 1, interval_s=3_600)
    assert 3 * HOUR > S * MAX_DELAY_S
    assert world.fire(START + 3 * HOUR - 1) == 3 * HOUR // (S * MAX_DELAY_S) - 1
    assert world.words() == []
    world.fire(START + 3 * HOUR)
    assert world.words() == QUIET


def test_an_obsolete_timer_and_one_of_an_unknown_device_end(world: World) -> None:
    beat(world, 1)
    world.arm(Timer("home-1", START + 5 * MINUTE).body)
    world.arm(Timer("home-2", START).body)
    assert world.fire() == 2
    assert [read_timer(each.body).due_ms for each in world.waiting] == [START + 15 * MINUTE]
    assert world.words() == []


def test_a_refused_timer_is_armed_later(world: World) -> None:
    body = lifecycle(Line.CONNECTED, START)
    world.timer_sqs = FailingClient(world.sqs, "send_message_batch")
    assert world.record(body) == {"m0"}
    world.timer_sqs.end()
    assert world.record(body, attempt=2) == frozenset()
    world.fire(START + HOUR)
    assert world.words() == ["connected"]


def test_a_lost_answer_arms_the_timer(world: World) -> None:
    lost = iter([True])

    def lose() -> None:
        if next(lost, False):
            raise EndpointConnectionError(endpoint_url="https://dynamodb")

    written = HookedClient(world.dynamodb, "put_item", after=lose)
    assert world.record(lifecycle(Line.CONNECTED, START), dynamodb=written) == frozenset()
    world.fire(START + HOUR)
    assert world.words() == ["connected"]


def test_a_redelivery_arms_the_next_timer(world: World) -> None:
    beat(world, 1)
    world.clock.now_ms += 5 * MINUTE
    beat(world, 2)
    world.fire(START + 15 * MINUTE - 1)
    world.timer_sqs = FailingClient(world.sqs, "send_message_batch")
    world.fire(START + 15 * MINUTE)
    world.timer_sqs.end()
    assert [each.receives for each in world.waiting] == [1]
    world.fire(START + 20 * MINUTE)
    assert world.words() == QUIET


@pytest.mark.parametrize("refused", [["disconnected"], ["notice opened"], GONE])
def test_the_rest_is_sent_at_redelivery(world: World, refused: list[str]) -> None:
    world.cut()
    sqs = RefusingSqs(world.sqs, lambda _, body: "Busy" if word(json.loads(body)) in refused else None)
    world.fire(world.clock() + SETTLED_MS, sqs=sqs)
    assert world.words() == [each for each in GONE if each not in refused]
    world.fire(world.clock() + 2 * S)
    assert world.words() == refused


def test_a_timer_leaves_unsent_events_of_a_concurrent_timer_alone(world: World) -> None:
    """Who decided sends; a second timer that fires meanwhile would send the same events again."""
    world.cut()
    world.clock.now_ms += SETTLED_MS

    def fire_another() -> None:
        world.arm(Timer("home-1", world.clock()).body)
        assert world.fire() == 1

    world.fire(sqs=HookedClient(world.sqs, "send_message_batch", before=fire_another))
    assert world.words() == GONE


def late() -> float:
    """The figure of timers that were late, which is taken off the invocation's."""
    values = metrics.provider.metric_set.get("TimersLate", {"Value": [0]})["Value"]
    metrics.clear_metrics()
    return float(sum(values))


def test_a_lost_timer_is_found_by_the_reconciler_and_counted(world: World) -> None:
    world.cut()
    world.waiting.clear()
    world.clock.now_ms += SETTLED_MS + MINUTE
    # A timer that is not overdue may still be on its way.
    for overdue_ms, expected in ((MINUTE + 1, (0, 0)), (MINUTE, (1, 2))):
        done = world.reconciler().reconcile(range(16), overdue_ms, lambda: 60_000)
        assert (done.devices, done.sent) == expected
    assert (world.words(), late()) == (GONE, 1)


@pytest.mark.parametrize(("late_ms", "counted"), [(PUNCTUAL_MS, 0), (PUNCTUAL_MS + 1, 1)])
def test_a_late_judgement_is_counted(world: World, late_ms: int, counted: int) -> None:
    world.cut()
    world.clock.now_ms += SETTLED_MS + late_ms
    world.fire()
    assert (world.words(), late()) == (GONE, counted)


@pytest.mark.parametrize(
    "body",
    [
        "?",
        "[]",
        "{}",
        '{"device": "home-1"}',
        '{"device": "a/b", "due_ms": 1}',
        '{"device": "home-1", "due_ms": -1}',
    ],
)
def test_a_malformed_timer_is_refused_and_redelivered(world: World, body: str) -> None:
    with pytest.raises(UnreadableTimerError):
        read_timer(body)
    world.arm(body)
    world.fire(START + S)
    assert [each.receives for each in world.waiting] == [1]
