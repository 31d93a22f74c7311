"""The functions around the table: nothing is lost, whoever crashes, repeats, or is faster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from types import ModuleType
from typing import Any

import pytest
from botocore.exceptions import ClientError

from eventplane.fleet import BUCKETS, bucket_of, gone_request
from eventplane.settings import SettingsError
from eventplane.traffic import Traffic, traffic_text
from lambdas.common.queue_function import queue_function
from lambdas.presence import reconciler, recorder, timers
from lambdas.presence.judge import SENDING_MS
from lambdas.presence.state import DeviceState, Line
from lambdas.presence.table import PAGE
from lambdas.presence.timer_queue import Timer
from tests.unit.lambdas.presence.world import (
    HOUR,
    LIMITS,
    MINUTE,
    START,
    TABLE,
    S,
    World,
    heartbeat,
    lifecycle,
)
from tests.unit.lambdas.support import LambdaContext, Unwilling, message, sqs_event

pytestmark = pytest.mark.source("P9")

SECOND_FAILED = {"batchItemFailures": [{"itemIdentifier": "m2"}]}


def state(world: World, device: str = "home-1") -> DeviceState:
    return world.table.read([device])[device]


def indexed(world: World) -> int:
    """How many devices stand in the index."""
    count: int = world.dynamodb.scan(TableName=TABLE, IndexName="due")["Count"]
    return count


def cut(world: World) -> None:
    """A device that was reported as connected loses its line."""
    world.record(lifecycle(Line.CONNECTED, START))
    world.reconcile(START + HOUR)
    assert world.words() == ["connected"]
    world.record(lifecycle(Line.DISCONNECTED, START + HOUR))
    world.now_ms = START + 2 * HOUR


def test_of_a_decommissioned_device_nothing_is_said(world: World) -> None:
    world.record(lifecycle(Line.CONNECTED, START))
    world.reconcile(START + HOUR)
    assert world.words() == ["connected"]
    read = world.table.read(["home-1"])["home-1"]
    for device in ("home-1", "never-seen"):
        world.dynamodb.update_item(**gone_request(TABLE, device))
    assert world.table.write(read, None) is None, "whoever had read it before overwrites nothing"
    for device in ("home-1", "never-seen"):
        world.record(
            lifecycle(Line.CONNECTED, START + HOUR, 1, device=device),
            lifecycle(Line.DISCONNECTED, START + HOUR, 1, device=device),
        )
        world.record(heartbeat(device=device, oldest_urgent_s=9_000), heartbeats=True)
    world.reconcile(START + 9 * HOUR)
    assert (world.words(), indexed(world)) == ([], 0)


def test_what_was_due_for_a_device_is_not_said_when_it_is_decommissioned(world: World) -> None:
    cut(world)
    world.dynamodb.update_item(**gone_request(TABLE, "home-1"))
    assert world.reconcile().sent == 0


def test_a_device_is_cut_reported_and_comes_back(world: World) -> None:
    cut(world)
    assert world.reconcile().sent == 2
    assert world.words() == ["disconnected", "notice opened"]
    assert indexed(world) == 0
    world.record(lifecycle(Line.CONNECTED, START + 3 * HOUR, 1))
    world.reconcile(START + 4 * HOUR)
    assert world.words() == ["connected", "notice over"]
    assert (world.reconcile(START + 9 * HOUR).devices, indexed(world)) == (0, 0)


def test_a_flooding_device_is_named_in_event_log_and_metric(
    world: World, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    window = START // (5 * MINUTE)
    for at in range(3):
        # No batch alone is over the quota of the window.
        assert world.record(*[traffic_text("home-1", Traffic(window + at, 400, 400, 9_000))] * 3) == set()
        world.reconcile(START + (5 * at + 1) * MINUTE)
        world.reconcile()
    (event,) = world.sent()
    assert (event["type"], event["subject"]) == ("org.eventplane.device.flooding.v1", "home-1")
    assert event["data"] | {"since": ""} == {
        "device": "home-1",
        "since": "",
        "window_s": 300,
        "frames": 1_200,
        "events": 1_200,
        "bytes": 27_000,
        "exceeded": ["frames"],
    }
    logged = [vars(each) for each in caplog.records if each.message == "a device floods"]
    assert [each["device"] for each in logged] == ["home-1"] * 3, "the alarm stays while it floods"
    assert capsys.readouterr().out.count('"DeviceFlooding":[1.0]') == 3
    world.reconcile(START + 20 * MINUTE)
    assert state(world).flood is None
    assert indexed(world) == 0


def test_repeated_messages_cost_no_write(world: World) -> None:
    body = lifecycle(Line.CONNECTED, START)
    world.record(body, body)
    revision = state(world).revision
    world.record(body)
    assert state(world).revision == revision == 1


def test_a_batch_is_taken_down_device_by_device(world: World) -> None:
    names = [f"home-{number}" for number in range(PAGE + 10)]
    assert world.record(*(lifecycle(Line.CONNECTED, START, device=each) for each in names)) == frozenset()
    done = world.reconcile(START + HOUR)
    assert (done.devices, done.sent, done.is_complete) == (len(names), len(names), True)
    assert sorted(each["subject"] for each in world.sent()) == sorted(names)


def test_a_reconciler_keeps_to_its_buckets(world: World) -> None:
    names = [f"home-{number}" for number in range(40)]
    world.record(*(lifecycle(Line.CONNECTED, START, device=each) for each in names))
    world.reconcile(START + HOUR, buckets=[3, 4])
    mine = {each for each in names if bucket_of(each) in (3, 4)}
    assert {each["subject"] for each in world.sent()} == mine
    world.reconcile(START + HOUR, buckets=[each for each in range(BUCKETS) if each not in (3, 4)])
    assert {each["subject"] for each in world.sent()} == set(names) - mine


def test_what_is_unreadable_comes_again_and_the_rest_does_not(world: World) -> None:
    assert world.record("?", lifecycle(Line.CONNECTED, START)) == {"m0"}
    assert state(world).sighting is not None


def test_a_heartbeat_moves_no_entry_of_the_index(world: World) -> None:
    world.record(heartbeat(1), heartbeats=True)
    due_ms = state(world).due_ms
    assert due_ms == START + 15 * MINUTE
    for sequence in range(2, 10):
        world.now_ms += 5 * MINUTE
        world.record(heartbeat(sequence), heartbeats=True)
        assert state(world).due_ms == due_ms
    # Once in so many intervals the judge looks, says nothing, and moves it.
    assert (world.reconcile().devices, world.sent()) == (1, [])
    assert state(world).due_ms == world.now_ms + 15 * MINUTE


def test_a_device_without_heartbeats_is_found_and_recovers(world: World) -> None:
    world.record(heartbeat(1), heartbeats=True)
    world.reconcile(START + 15 * MINUTE)
    assert world.words() == ["notice opened", "quiet"]
    world.now_ms += 5 * MINUTE
    world.record(heartbeat(2), heartbeats=True)
    world.reconcile()
    assert world.words() == ["notice over", "recovered"]


def test_what_the_outbox_refuses_is_sent_by_the_next_run(world: World) -> None:
    cut(world)
    assert world.reconcile(sqs=Unwilling(world.sqs, "send_message_batch")).sent == 0
    assert len(state(world).unsent) == 2
    world.reconcile()
    assert world.words() == ["disconnected", "notice opened"]
    assert state(world).unsent == ()


def test_what_was_sent_before_a_crash_is_sent_again_as_the_same_events(world: World) -> None:
    cut(world)

    class Crashing:
        def __init__(self, client: Any) -> None:
            self._client = client

        def send_message_batch(self, **arguments: Any) -> Any:
            self._client.send_message_batch(**arguments)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.reconcile(sqs=Crashing(world.sqs))
    before = {each["id"]: each for each in world.sent()}
    world.reconcile(world.now_ms + MINUTE)
    assert {each["id"]: each for each in world.sent()} == before
    assert len(before) == 2
    assert world.reconcile(world.now_ms + MINUTE).sent == 0


def test_a_device_that_comes_back_while_its_absence_is_sent_is_reported_as_back(world: World) -> None:
    cut(world)

    class Slow:
        def __init__(self, client: Any) -> None:
            self._client = client

        def send_message_batch(self, **arguments: Any) -> Any:
            world.record(lifecycle(Line.CONNECTED, world.now_ms, 1))
            return self._client.send_message_batch(**arguments)

    world.reconcile(sqs=Slow(world.sqs))
    assert world.words() == ["disconnected", "notice opened"]
    assert state(world).unsent == ()
    world.reconcile(world.now_ms + HOUR)
    assert world.words() == ["connected", "notice over"]


def test_two_judges_at_once_say_it_once(world: World) -> None:
    cut(world)

    class Overtaken:
        """Another judge decides between the reading and the writing of this one."""

        def __init__(self, client: Any) -> None:
            self._client = client

        def __getattr__(self, name: str) -> Any:
            if name == "put_item":
                world.reconcile()
            return getattr(self._client, name)

    assert world.reconcile(dynamodb=Overtaken(world.dynamodb)).sent == 0
    assert world.words() == ["disconnected", "notice opened"]


class Interfering:
    """Each time an item is to be written, somebody else has just written it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.version = 0

    def __getattr__(self, name: str) -> Any:
        if name == "put_item":
            self.version += 1
            self._world.record(lifecycle(Line.CONNECTED, START + self.version * S, self.version))
        return getattr(self._world.dynamodb, name)


def test_a_device_that_is_always_busy_comes_again(world: World) -> None:
    body = lifecycle(Line.CONNECTED, START + HOUR, 100)
    assert world.record(body, dynamodb=Interfering(world)) == {"m0"}
    assert world.record(body) == frozenset()
    assert state(world).revision == 6


def test_a_reconciler_ends_in_time_and_leaves_the_rest_due(world: World) -> None:
    world.record(*(lifecycle(Line.CONNECTED, START, device=f"home-{number}") for number in range(30)))
    world.now_ms = START + HOUR
    left = iter([60_000] * 10)
    done = world.reconciler().reconcile(range(BUCKETS), 0, lambda: next(left, 0))
    assert not done.is_complete
    assert 0 < done.sent <= done.devices < 30
    assert world.reconcile().sent == 30 - done.sent
    assert len(world.sent()) == 30


class Counting:
    """A client whose calls are counted; `after` the first call of a name there is no time left."""

    def __init__(self, client: Any, after: str) -> None:
        self._client = client
        self._after = after
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._client, name)

    def remaining_ms(self) -> int:
        return SENDING_MS - 1 if self.calls[self._after] else 60_000


def test_without_time_no_further_bucket_is_looked_at(world: World) -> None:
    world.now_ms = START + HOUR
    dynamodb = Counting(world.dynamodb, after="query")
    done = world.reconciler(dynamodb=dynamodb).reconcile(range(BUCKETS), 0, dynamodb.remaining_ms)
    assert not done.is_complete
    assert dynamodb.calls["query"] == 1


def test_without_time_no_further_batch_is_sent_and_none_is_lost(world: World) -> None:
    mine = [each for each in (f"home-{number}" for number in range(300)) if bucket_of(each) == 0]
    world.record(*(lifecycle(Line.CONNECTED, START, device=each) for each in mine))
    world.now_ms = START + HOUR
    sqs = Counting(world.sqs, after="send_message_batch")
    done = world.reconciler(sqs=sqs).reconcile([0], 0, sqs.remaining_ms)
    assert (done.sent, sqs.calls["send_message_batch"]) == (10, 1)
    assert not done.is_complete
    assert world.reconcile().sent == len(mine) - 10 > 0
    assert len(world.sent()) == len(mine)


def test_a_device_that_dynamodb_does_not_get_to_comes_again(world: World) -> None:
    class Throttled:
        def batch_get_item(self, RequestItems: Any) -> Any:  # noqa: N803 - boto3's word
            return {"Responses": {}, "UnprocessedKeys": RequestItems}

    assert world.record(lifecycle(Line.CONNECTED, START), dynamodb=Throttled()) == {"m0"}


class Refusing:
    """DynamoDB takes everything but `home-1`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_item(self, **arguments: Any) -> Any:
        if arguments["Item"]["device"]["S"] == "home-1":
            raise ClientError({"Error": {"Code": "ValidationException", "Message": "no"}}, "PutItem")
        return self._client.put_item(**arguments)


def test_no_device_suffers_for_another(world: World) -> None:
    names = ["home-0", "home-1", "home-2"]
    bodies = [lifecycle(Line.CONNECTED, START, device=each) for each in names]
    assert world.record(*bodies, dynamodb=Refusing(world.dynamodb)) == {"m1"}
    world.record(*bodies)
    assert world.reconcile(START + HOUR, dynamodb=Refusing(world.dynamodb)).sent == 2
    assert {each["subject"] for each in world.sent()} == {"home-0", "home-2"}
    assert world.reconcile().sent == 1


@pytest.mark.parametrize("known", ['{"sighting": {"line": "up"}}', '{"unsent": ["{}"]}', '{"unsent": [1]}'])
def test_a_damaged_item_is_nobody_elses_problem(world: World, known: str) -> None:
    names = ["home-0", "home-1", "home-2"]
    bodies = [lifecycle(Line.CONNECTED, START, device=each) for each in names]
    world.record(*bodies)
    (item,) = [
        each for each in world.dynamodb.scan(TableName=TABLE)["Items"] if each["device"]["S"] == "home-1"
    ]
    world.dynamodb.put_item(TableName=TABLE, Item=item | {"known": {"S": known}})
    assert world.record(*bodies) == {"m1"}
    assert world.reconcile(START + HOUR).sent == 2


def test_without_time_messages_come_again(world: World) -> None:
    bodies = [lifecycle(Line.CONNECTED, START, device=f"home-{number}") for number in range(3)]
    left = iter([30_000, 30_000])
    assert world.record(*bodies, remaining_ms=lambda: next(left, 0)) == {"m1", "m2"}
    assert world.record(*bodies) == frozenset()


def test_the_item_of_a_healthy_device_is_one_write_unit(world: World) -> None:
    world.record(lifecycle(Line.CONNECTED, START, device="h" * 120))
    world.record(heartbeat(1, device="h" * 120, oldest_urgent_s=1.5), heartbeats=True)
    (item,) = world.dynamodb.scan(TableName=TABLE)["Items"]
    size = sum(len(name) + len(next(iter(value.values()))) for name, value in item.items())
    assert size < 1_024


@pytest.fixture
def deployed(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment that the stacks give the reconciler."""
    for name, value in {
        "EVENTPLANE_SOURCE_QUEUE": "https://queue",
        "EVENTPLANE_PRESENCE_TABLE": TABLE,
        "EVENTPLANE_PRESENCE_LIMITS": json.dumps(asdict(LIMITS)),
        "EVENTPLANE_OUTBOX_QUEUE": world.outbox,
        "EVENTPLANE_TIMER_QUEUE": world.sqs.create_queue(QueueName="timers")["QueueUrl"],
    }.items():
        monkeypatch.setenv(name, value)
    reconciler.service.cache_clear()
    yield monkeypatch
    reconciler.service.cache_clear()


def test_the_handler_takes_down_judges_and_reconciles(world: World, deployed: pytest.MonkeyPatch) -> None:
    for source, body in (("connections", lifecycle(Line.CONNECTED, START)), ("heartbeats", heartbeat(1))):
        deployed.setenv("EVENTPLANE_SOURCE", source)
        batch = sqs_event(message("m1", body), message("m2", "?"))
        assert queue_function(recorder.service)(batch, LambdaContext()) == {
            "batchItemFailures": [{"itemIdentifier": "m2"}]
        }
    assert state(world).heartbeat
    assert state(world).sighting

    timer = Timer("home-1", state(world).due_ms or 0)
    batch = sqs_event(message("m1", timer.body), message("m2", '{"device": 1}'))
    assert queue_function(timers.service)(batch, LambdaContext()) == {
        "batchItemFailures": [{"itemIdentifier": "m2"}]
    }
    assert "connected" in world.words()

    world.record(lifecycle(Line.CONNECTED, START, device="home-2"))
    answer = reconciler.handle({"buckets": list(range(BUCKETS)), "overdue_ms": 60_000}, LambdaContext())
    assert answer == {"devices": 1, "sent": 1, "is_complete": True}
    assert world.words() == ["connected"]


@pytest.mark.parametrize(
    ("entry", "variable", "value"),
    [
        (recorder, "EVENTPLANE_SOURCE", "elsewhere"),
        (recorder, "EVENTPLANE_SOURCE", ""),
        (timers, "EVENTPLANE_OUTBOX_QUEUE", ""),
        (reconciler, "EVENTPLANE_OUTBOX_QUEUE", ""),
        (timers, "EVENTPLANE_TIMER_QUEUE", ""),
        (timers, "EVENTPLANE_PRESENCE_TABLE", ""),
        (
            timers,
            "EVENTPLANE_PRESENCE_LIMITS",
            json.dumps(asdict(LIMITS)).replace('"window_s": 300', '"window_s": 0'),
        ),
        (timers, "EVENTPLANE_PRESENCE_LIMITS", "[]"),
        (timers, "EVENTPLANE_PRESENCE_LIMITS", "{}"),
        (timers, "EVENTPLANE_PRESENCE_LIMITS", json.dumps(asdict(LIMITS) | {"connected_after_s": "soon"})),
    ],
)
def test_a_wrong_setting_is_named(
    deployed: pytest.MonkeyPatch, entry: ModuleType, variable: str, value: str
) -> None:
    deployed.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        entry.service()
    assert caught.value.variable == variable
