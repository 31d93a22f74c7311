"""Timers: what is to be said is said at its moment, by nobody but the timer that was armed for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lambdas.common.metrics import metrics
from lambdas.presence.state import Line
from lambdas.presence.timer_queue import MAX_DELAY_S, Timer, UnreadableTimerError, read_timer
from lambdas.presence.timers import PUNCTUAL_MS
from tests.unit.lambdas.presence.world import HOUR, LIMITS, MINUTE, START, S, World, heartbeat, lifecycle
from tests.unit.lambdas.support import Unwilling

pytestmark = pytest.mark.source("P9")

SETTLED_MS = round(1_000 * LIMITS.disconnected_after_s)


def cut(world: World) -> None:
    """A device that was reported as connected loses its connection at `world.now_ms`."""
    world.record(lifecycle(Line.CONNECTED, START))
    world.fire(START + HOUR)
    assert world.words() == ["connected"]
    world.record(lifecycle(Line.DISCONNECTED, world.now_ms))


def test_a_device_that_is_cut_off_is_reported_when_its_time_is_over_and_nobody_sweeps(world: World) -> None:
    cut(world)
    world.fire(world.now_ms + SETTLED_MS - 1)
    assert world.words() == []
    world.fire(world.now_ms + 1)
    assert world.words() == ["disconnected", "notice opened"]
    assert world.timers.waiting == []


def test_a_device_that_misses_its_heartbeats_is_reported_when_its_time_is_over(world: World) -> None:
    world.record(heartbeat(1), heartbeats=True)
    world.fire(START + 15 * MINUTE - 1)
    assert world.words() == []
    world.fire(START + 15 * MINUTE)
    assert world.words() == ["notice opened", "quiet"]


def test_a_bad_line_is_reported_with_the_heartbeat_that_tells_of_it(world: World) -> None:
    world.record(heartbeat(1, oldest_urgent_s=100), heartbeats=True)
    world.fire()
    assert world.words() == ["notice opened", "quiet"]


def test_a_device_that_comes_back_in_time_is_not_reported(world: World) -> None:
    cut(world)
    world.now_ms += SETTLED_MS - S
    world.record(lifecycle(Line.CONNECTED, world.now_ms, 1))
    world.fire(world.now_ms + HOUR)
    assert (world.words(), world.timers.waiting) == ([], [])


def test_a_timer_is_armed_anew_for_as_long_as_the_device_is_heard(world: World) -> None:
    """A healthy device has one timer at a time, however long it lives."""
    fired = 0
    for sequence in range(1, 100):
        world.record(heartbeat(sequence), heartbeats=True)
        fired += world.fire(world.now_ms + 5 * MINUTE)
        assert len(world.timers.waiting) == 1
    assert world.words() == []
    assert fired <= 99, "no more than one in each interval"
    assert world.fire(world.now_ms + HOUR) > 0
    assert (world.words(), world.timers.waiting) == (["notice opened", "quiet"], [])


def test_a_late_deadline_is_reached_in_steps(world: World) -> None:
    world.record(heartbeat(1, interval_s=3_600), heartbeats=True)
    assert 3 * HOUR > S * MAX_DELAY_S
    fired = world.fire(START + 3 * HOUR - 1)
    assert fired == 3 * HOUR // (S * MAX_DELAY_S) - 1
    assert world.words() == []
    world.fire(START + 3 * HOUR)
    assert world.words() == ["notice opened", "quiet"]


def test_an_obsolete_timer_ends(world: World) -> None:
    world.record(heartbeat(1), heartbeats=True)
    obsolete = Timer("home-1", START + 5 * MINUTE)
    world.timers.send_message_batch("timers", [{"Id": "0", "MessageBody": obsolete.body, "DelaySeconds": 0}])
    assert world.fire() == 1
    assert [read_timer(each.body).due_ms for each in world.timers.waiting] == [START + 15 * MINUTE]


def test_a_timer_of_a_device_that_nobody_watches_any_more_ends(world: World) -> None:
    timer = Timer("home-1", START)
    world.timers.send_message_batch("timers", [{"Id": "0", "MessageBody": timer.body, "DelaySeconds": 0}])
    assert (world.fire(START + HOUR), world.timers.waiting, world.words()) == (1, [], [])


def test_a_message_whose_timer_is_refused_comes_again_and_arms_it(world: World) -> None:
    world.timers.refuses = True
    body = lifecycle(Line.CONNECTED, START)
    assert world.record(body) == {"m0"}
    world.timers.refuses = False
    assert world.record(body, attempt=2) == frozenset()
    world.fire(START + HOUR)
    assert world.words() == ["connected"]


def test_what_the_outbox_refuses_is_sent_when_the_timer_comes_again(world: World) -> None:
    cut(world)
    world.fire(world.now_ms + SETTLED_MS, sqs=Unwilling(world.sqs, "send_message_batch"))
    assert world.words() == []
    world.fire(world.now_ms + 2 * S)
    assert world.words() == ["disconnected", "notice opened"]


def test_a_timer_that_meets_the_work_of_another_leaves_it_alone(world: World) -> None:
    """Who decided sends; a second timer that fires meanwhile would send the same events again."""
    cut(world)
    world.now_ms += SETTLED_MS
    second = Timer("home-1", world.now_ms)

    class Slow:
        """Another timer of the device fires while its events are sent."""

        def __init__(self, client: Any) -> None:
            self._client = client

        def send_message_batch(self, **arguments: Any) -> Any:
            waiting, world.timers.waiting = world.timers.waiting, []
            entry = {"Id": "0", "MessageBody": second.body, "DelaySeconds": 0}
            world.timers.send_message_batch("timers", [entry])
            assert world.fire() == 1
            world.timers.waiting += waiting
            return self._client.send_message_batch(**arguments)

    world.fire(sqs=Slow(world.sqs))
    assert world.words() == ["disconnected", "notice opened"]


def test_a_lost_timer_is_found_by_the_reconciler_and_counted(world: World) -> None:
    cut(world)
    world.timers.waiting.clear()
    world.now_ms += SETTLED_MS + MINUTE
    done = world.reconciler().reconcile(range(16), MINUTE + 1, lambda: 60_000)
    assert (done.devices, done.sent) == (0, 0), "a timer may still be on its way"
    done = world.reconciler().reconcile(range(16), MINUTE, lambda: 60_000)
    assert (done.devices, done.sent) == (1, 2)
    assert world.words() == ["disconnected", "notice opened"]
    assert _late() == 1


@pytest.mark.parametrize(("late_ms", "counted"), [(PUNCTUAL_MS, 0), (PUNCTUAL_MS + 1, 1)])
def test_a_device_that_is_judged_late_is_counted(world: World, late_ms: int, counted: int) -> None:
    cut(world)
    world.now_ms += SETTLED_MS + late_ms
    world.fire()
    assert world.words() == ["disconnected", "notice opened"]
    assert _late() == counted


def _late() -> float:
    """The figure, which is taken off the invocation's."""
    values = metrics.provider.metric_set.get("TimersLate", {"Value": [0]})["Value"]
    metrics.clear_metrics()
    return float(sum(values))


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
def test_what_is_no_timer_is_refused(world: World, body: str) -> None:
    with pytest.raises(UnreadableTimerError):
        read_timer(body)
    world.timers.send_message_batch("timers", [{"Id": "0", "MessageBody": body, "DelaySeconds": 0}])
    world.fire(START + S)
    assert [each.attempt for each in world.timers.waiting] == [2]


def test_a_timer_is_written_as_it_is_read() -> None:
    timer = Timer("home-1", START)
    assert read_timer(timer.body) == timer
    assert json.loads(timer.body) == {"device": "home-1", "due_ms": START}


def test_a_refused_next_timer_is_armed_when_the_one_before_comes_again(world: World) -> None:
    world.record(heartbeat(1), heartbeats=True)
    world.now_ms += 5 * MINUTE
    world.record(heartbeat(2), heartbeats=True)
    world.fire(START + 15 * MINUTE - 1)
    world.timers.refuses = True
    world.fire(START + 15 * MINUTE)
    world.timers.refuses = False
    assert [each.attempt for each in world.timers.waiting] == [2]
    world.fire(START + 20 * MINUTE)
    assert world.words() == ["notice opened", "quiet"]
