"""The presence functions, and the timers by which a device is judged."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from eventplane.presence import BUCKETS, Line, bucket_of, gone
from eventplane.traffic import Traffic, traffic_text
from lambdas.common.metrics import metrics
from lambdas.common.queue_function import queue_function
from parts.presence import reconciler, recorder, timers
from parts.presence.judge import SENDING_MS
from parts.presence.table import PAGE
from parts.presence.timer_queue import MAX_DELAY_S, Timer, UnreadableTimerError, read_timer
from parts.presence.timers import PUNCTUAL_MS
from tests.fakes.faults import FailingClient, HookedClient, RefusingSqs
from tests.parts.presence.world import (
    HOUR,
    LIMITS,
    MINUTE,
    START,
    TABLE,
    S,
    World,
    heartbeat,
    lifecycle,
    records_of,
    word,
)
from tests.unit.lambdas.support import LambdaContext, deploy, failures, message, sqs_event

pytestmark = pytest.mark.source("P9")

UP = lifecycle(Line.CONNECTED, START)


def ups(*devices: str) -> list[str]:
    """Messages by which devices connected."""
    return [lifecycle(Line.CONNECTED, START, device=each) for each in devices]


def indexed(world: World) -> int:
    """How many devices stand in the index."""
    return sum("due_ms" in each for each in world.dynamodb.items(TABLE))


def test_a_decommissioned_device_is_not_reported(world: World) -> None:
    world.cut()
    world.clock.now_ms = START + 2 * HOUR
    read = world.state()
    for device in ("home-1", "never-seen"):
        records_of(world.dynamodb).force(gone(device))
    assert world.table.write(read, None) is None, "an earlier reader overwrites nothing"
    assert world.reconcile().sent == 0, "an earlier deadline reports nothing"
    for device in ("home-1", "never-seen"):
        world.record(
            *(lifecycle(line, START + HOUR, 1, device=device) for line in (Line.CONNECTED, Line.DISCONNECTED))
        )
        world.record(heartbeat(device=device, oldest_urgent_s=9_000), heartbeats=True)
    world.reconcile(START + 9 * HOUR)
    assert (world.words(), indexed(world)) == ([], 0)


def test_a_flooding_device_is_named_in_event_log_and_metric(
    world: World, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    window = START // (5 * MINUTE)
    for at in range(3):
        # No batch alone is over the quota of the window.
        report = partial(traffic_text, "home-1", Traffic(window + at, 400, 400, 9_000))
        # SQS delivers one twice, also in another batch.
        assert world.record(report("a"), report("b"), report("b"), report("c")) == set()
        assert world.record(report("a")) == set()
        world.reconcile(START + (5 * at + 1) * MINUTE)
        world.reconcile()
    (event,) = world.sent()
    assert (event["type"], event["subject"]) == ("org.eventplane.device.flooding.v1", "home-1")
    counted = {"window_s": 300, "frames": 1_200, "events": 1_200, "bytes": 27_000}
    assert event["data"].items() > counted.items()
    logged = [vars(each) for each in caplog.records if each.message == "a device floods"]
    assert [each["device"] for each in logged] == ["home-1"] * 3, "the alarm stays while it floods"
    assert capsys.readouterr().out.count('"DeviceFlooding":[1.0]') == 3
    world.reconcile(START + 20 * MINUTE)
    assert (world.state().flood, indexed(world)) == (None, 0)


def test_repeated_messages_cost_no_write(world: World) -> None:
    world.record(UP, UP)
    written = world.state()
    world.record(UP)
    assert world.state() == written


def test_a_batch_is_recorded_and_reconciled_by_buckets_and_pages(world: World) -> None:
    names = [f"home-{number}" for number in range(PAGE + 10)]
    assert world.record(*ups(*names)) == frozenset()
    world.reconcile(START + HOUR, buckets=[3, 4])
    mine = {each["subject"] for each in world.sent()}
    assert mine == {each for each in names if bucket_of(each) in (3, 4)}
    rest = len(names) - len(mine)
    done = world.reconcile(START + HOUR)
    assert (done.devices, done.sent, done.is_complete) == (rest, rest, True)
    assert {each["subject"] for each in world.sent()} == set(names) - mine


@pytest.mark.long
@pytest.mark.parametrize("interval_s", [10, 300, 1_500])
def test_no_chain_of_timers_grows(world: World, interval_s: int) -> None:
    deadlines = set()
    for sequence in range(48 * HOUR // (interval_s * S) if interval_s > 10 else 1_000):
        world.fire(START + sequence * interval_s * S)
        world.record(heartbeat(sequence + 1, interval_s=interval_s), heartbeats=True)
        deadlines.add(world.state().due_ms)
    assert len(deadlines) == pytest.approx(sequence / 2, abs=2)
    assert max(world.hops.values(), default=0) < 10
    assert world.sent() == []
    last_ms = world.clock()
    world.fire(last_ms + 3 * interval_s * S - 1)
    assert world.sent() == []
    world.fire(last_ms + 3 * interval_s * S)
    assert world.words() == ["notice opened", "quiet"]


def test_a_crash_repeats_the_same_ids(world: World) -> None:
    world.cut()
    world.clock.now_ms = START + 2 * HOUR

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.reconcile(sqs=HookedClient(world.sqs, "send_message_batch", after=crash))
    before = {each["id"]: each for each in world.sent()}
    world.reconcile(world.clock() + MINUTE)
    assert {each["id"]: each for each in world.sent()} == before
    assert len(before) == 2
    assert world.reconcile(world.clock() + MINUTE).sent == 0


def test_a_return_meanwhile_is_reported(world: World) -> None:
    world.cut()
    world.clock.now_ms = START + 2 * HOUR
    back = lambda: world.record(lifecycle(Line.CONNECTED, world.clock(), 1))  # noqa: E731
    world.reconcile(sqs=HookedClient(world.sqs, "send_message_batch", before=back))
    assert world.words() == ["disconnected", "notice opened"]
    assert world.state().unsent == ()
    world.reconcile(world.clock() + HOUR)
    assert world.words() == ["connected", "notice over"]


def test_two_concurrent_judges_report_once(world: World) -> None:
    world.cut()
    world.clock.now_ms = START + 2 * HOUR
    overtaken = HookedClient(world.dynamodb, "put_item", before=world.reconcile)
    assert world.reconcile(dynamodb=overtaken).sent == 0
    assert world.words() == ["disconnected", "notice opened"]


def test_a_contested_device_is_redelivered(world: World) -> None:
    versions = iter(range(1, 100))

    def write() -> None:
        version = next(versions)
        world.record(lifecycle(Line.CONNECTED, START + version * S, version))

    body = lifecycle(Line.CONNECTED, START + HOUR, 100)
    assert world.record(body, dynamodb=HookedClient(world.dynamodb, "put_item", before=write)) == {"m0"}
    assert world.record(body) == frozenset()
    sighting = world.state().sighting
    assert (sighting and sighting.version) == 100


def test_without_time_no_further_bucket_is_read_and_no_batch_sent(world: World) -> None:
    mine = [each for each in (f"home-{number}" for number in range(300)) if bucket_of(each) == 0]
    world.record(*ups(*mine))
    world.clock.now_ms = START + HOUR
    for method, buckets, sent in (("query", [1, 2], 0), ("send_message_batch", [0], 10)):
        client = HookedClient(world.sqs if sent else world.dynamodb, method)
        clients = {"sqs" if sent else "dynamodb": client}
        left_ms = lambda c=client, m=method: SENDING_MS - 1 if c.calls[m] else 60_000  # noqa: E731
        done = world.reconciler(**clients).reconcile(buckets, 0, left_ms)
        assert (done.is_complete, done.sent, client.calls[method]) == (False, sent, 1)
    assert world.reconcile().sent == len(mine) - 10 > 0
    assert len(world.sent()) == len(mine)


def test_a_message_of_an_unprocessed_key_is_redelivered(world: World) -> None:
    class Throttled:
        def batch_get_item(self, RequestItems: Any) -> Any:  # noqa: N803 - boto3's word
            return {"Responses": {}, "UnprocessedKeys": RequestItems}

    assert world.record(UP, dynamodb=Throttled()) == {"m0"}


def test_a_failure_for_one_device_does_not_affect_others(world: World) -> None:
    is_of_home_1 = lambda request: request["Item"]["device"]["S"] == "home-1"  # noqa: E731
    refusing = FailingClient(world.dynamodb, "put_item", refused=is_of_home_1, code="ValidationException")
    bodies = ["?", *ups("home-0", "home-1", "home-2")]
    assert world.record(*bodies, dynamodb=refusing) == {"m0", "m2"}
    world.record(*bodies)
    assert world.reconcile(START + HOUR, dynamodb=refusing).sent == 2
    assert {each["subject"] for each in world.sent()} == {"home-0", "home-2"}
    assert world.reconcile().sent == 1


@pytest.mark.parametrize("known", ['{"sighting": {"line": "up"}}', '{"unsent": ["{}"]}', '{"unsent": [1]}'])
def test_a_damaged_item_does_not_affect_other_devices(world: World, known: str) -> None:
    bodies = ups("home-0", "home-1", "home-2")
    world.record(*bodies)
    item = world.dynamodb.items(TABLE)[1]
    world.dynamodb.put_item(TableName=TABLE, Item=item | {"known": {"S": known}})
    assert world.record(*bodies) == {"m1"}
    assert world.reconcile(START + HOUR).sent == 2


def test_messages_without_time_are_redelivered(world: World) -> None:
    bodies = ups("home-0", "home-1", "home-2")
    left = iter([30_000, 30_000])
    assert world.record(*bodies, remaining_ms=lambda: next(left, 0)) == {"m1", "m2"}
    assert world.record(*bodies) == frozenset()


def test_the_item_of_a_healthy_device_is_one_write_unit(world: World) -> None:
    world.record(*ups("h" * 120))
    world.record(heartbeat(1, device="h" * 120, oldest_urgent_s=1.5), heartbeats=True)
    (item,) = world.dynamodb.items(TABLE)
    assert sum(len(name) + len(next(iter(value.values()))) for name, value in item.items()) < 1_024


@pytest.fixture
def deployed(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment that the stacks give the functions."""
    deploy(monkeypatch, tmp_path, None, {"SOURCE_QUEUE": "https://queue"})
    for name, value in world.settings.variables().items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.lost_answers
def test_the_handlers_record_judge_and_reconcile(world: World, deployed: pytest.MonkeyPatch) -> None:
    for source, body in (("connections", UP), ("heartbeats", heartbeat(1))):
        deployed.setenv("EVENTPLANE_SOURCE", source)
        batch = sqs_event(message("m1", body), message("m2", "?"))
        assert queue_function(recorder.service)(batch, LambdaContext()) == failures("m2")
    assert world.state().heartbeat
    assert world.state().sighting

    world.clock.now_ms += HOUR
    timer = Timer("home-1", world.state().due_ms or 0)
    batch = sqs_event(message("m1", timer.body), message("m2", '{"device": 1}'))
    assert queue_function(timers.service)(batch, LambdaContext()) == failures("m2")
    assert "connected" in world.words()

    world.record(*ups("home-2"))
    world.clock.now_ms += HOUR
    context, reconcile = LambdaContext(), reconciler.Sweeper.reconcile

    def slow(*arguments: Any) -> Any:
        """So many timers are late that they take all the time."""
        done = reconcile(*arguments)
        context.remaining_ms = 0
        return done

    deployed.setattr(reconciler.Sweeper, "reconcile", slow)
    reconciler.services.cache_clear()
    answer = reconciler.handle({"buckets": list(range(BUCKETS)), "overdue_ms": 60_000}, context)
    assert (
        answer.items() >= {"devices": 1, "sent": 1, "is_complete": True, "Connected": 1, "Quiet": 1}.items()
    )
    assert world.words() == ["connected"]


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


@pytest.mark.parametrize("attempt", [2, 1], ids=["again", "redriven"])
def test_a_refused_timer_is_armed_later(world: World, attempt: int) -> None:
    body = lifecycle(Line.CONNECTED, START)
    world.timer_sqs = FailingClient(world.sqs, "send_message_batch")
    assert world.record(body) == {"m0"}
    world.timer_sqs.end()
    assert world.record(body, attempt=attempt) == frozenset()
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


def refuse_the_next_timer(world: World) -> None:
    """A heartbeat has moved the deadline, and SQS refuses the timer that the one before arms for it."""
    beat(world, 1)
    world.clock.now_ms += 5 * MINUTE
    beat(world, 2)
    world.fire(START + 15 * MINUTE - 1)
    world.timer_sqs = FailingClient(world.sqs, "send_message_batch")
    world.fire(START + 15 * MINUTE)
    world.timer_sqs.end()


def test_a_redelivery_arms_the_next_timer(world: World) -> None:
    refuse_the_next_timer(world)
    assert [each.receives for each in world.waiting] == [1]
    world.fire(START + 20 * MINUTE)
    assert world.words() == QUIET


def test_a_redriven_timer_arms_none(world: World) -> None:
    """Of a dead letter that is sent back SQS counts the receives anew. To arm with every late timer would
    feed a backlog of timers, so the reconciler finds what has none, a minute after its deadline."""
    refuse_the_next_timer(world)
    world.waiting[0].receives = 0
    world.fire(START + 16 * MINUTE)
    assert (world.waiting, world.words()) == ([], [])
    world.clock.now_ms = START + 20 * MINUTE + MINUTE
    world.reconciler().reconcile(range(BUCKETS), MINUTE, lambda: 60_000)
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
