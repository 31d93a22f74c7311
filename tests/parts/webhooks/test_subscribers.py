"""Many sinks behind one inbox: each gets its own events, and none waits for a slow or failing one."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract.subscription import Subscription, new_subscription
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.envelope import parse_event
from lambdas.common.queue_function import queue_function
from lambdas.common.system import system_clock
from parts.webhooks import receiver, subscribers, wiring
from parts.webhooks.endpoint import MAX_IDLE_MS, HttpSink
from parts.webhooks.signing import subscription_key
from tests.endpoint import EndpointServer, answer, silence
from tests.parts.webhooks.conftest import sink_settings
from tests.plane import shipped_contract
from tests.unit.lambdas.support import (
    SUBSCRIPTIONS,
    Cloud,
    LambdaContext,
    deploy,
    event,
    figures,
    message,
    sqs_event,
)

MASTER = b"m" * 48


def subscription(name: str, url: str, **settings: Any) -> Subscription:
    document = {"protocol": "HTTP", "sink": url, "filters": [], "protocolsettings": settings}
    return new_subscription("carers", name, {"sql": "TRUE"}, "2026-01-01T00:00:00Z", json.dumps(document))


@pytest.fixture
def table(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SubscriptionTable]:
    """The environment that the stacks give the function, with an empty table."""
    settings = sink_settings(cloud, base64.b64encode(MASTER).decode())
    deploy(monkeypatch, tmp_path, shipped_contract(), {"SUBSCRIPTIONS_TABLE": SUBSCRIPTIONS, **settings})
    monkeypatch.setattr(subscribers, "TIMEOUT_S", 1)
    reader = cache(subscribers.service)
    monkeypatch.setattr(subscribers, "handle", queue_function(reader))
    yield cloud.subscriptions
    if reader.cache_info().currsize:
        reader().process.__self__._endpoints.close()


def batch(*routes: str, first: int = 1) -> dict[str, Any]:
    """One event for each of these subscriptions of the carers."""
    messages = [
        replace(message(f"m{at}", event(str(at)).json), sent_at_ms=system_clock())
        for at, _ in enumerate(routes, first)
    ]
    records = sqs_event(*messages)
    for record, route in zip(records["Records"], routes, strict=True):
        record["messageAttributes"] = {"route": {"stringValue": f"carers-subscribes-{route}"}}
    return records


def failed(records: dict[str, Any]) -> list[str]:
    # Each invocation has an id of its own, which names its object in the archive.
    id = f"request-{records['Records'][0]['messageId']}"
    answered = subscribers.handle(records, LambdaContext(id, remaining_ms=60_000))
    return [each["itemIdentifier"] for each in answered["batchItemFailures"]]


def ids(server: EndpointServer) -> list[str]:
    return [parse_event(each.body).id for each in server.received]


def test_each_sink_gets_its_own_events_signed_with_its_own_key(table: SubscriptionTable) -> None:
    with EndpointServer() as one, EndpointServer() as other:
        table.write(subscription("one", one.url()))
        assert failed(batch("one")) == []
        # A new subscription is found with its first event.
        table.write(subscription("other", other.url()))
        assert failed(batch("one", "other", "one", first=2)) == []
        assert (ids(one), ids(other)) == (["1", "2", "4"], ["3"])
        (request,) = other.received
        for route, is_own in (("other", True), ("one", False)):
            key = base64.b64encode(subscription_key(MASTER, f"carers-subscribes-{route}")).decode()
            assert receiver.is_genuine([key], request.headers, request.body) is is_own


@pytest.mark.parametrize(
    "play",
    [silence, answer(500), answer(503)],
    ids=["silent", "failing", "busy"],
)
def test_a_failing_sink_does_not_delay_the_others(table: SubscriptionTable, play: Any) -> None:
    with EndpointServer(*[play] * 10) as bad, EndpointServer() as good:
        table.write(subscription("bad", bad.url()))
        table.write(subscription("good", good.url()))
        assert failed(batch("bad", "good", "bad", "good", "bad")) == ["m1", "m3", "m5"]
        assert ids(good) == ["2", "4"]


def test_late_events_are_redelivered(table: SubscriptionTable, monkeypatch: pytest.MonkeyPatch) -> None:
    with EndpointServer() as server:
        table.write(subscription("slow", server.url()))
        monkeypatch.setattr(subscribers, "ENDPOINT_MS", 0)
        assert failed(batch("slow", "slow")) == ["m1", "m2"]
        assert server.received == []
        monkeypatch.setattr(subscribers, "ENDPOINT_MS", 15_000)
        assert failed(batch("slow", "slow")) == []


def test_an_ended_subscription(
    cloud: Cloud, table: SubscriptionTable, caplog: pytest.LogCaptureFixture
) -> None:
    with EndpointServer() as server:
        ending = table.write(subscription("ending", server.url()))
        assert ending is not None
        assert failed(batch("ending")) == []
        table.remove(ending)
        # It is known until the next look, or until an event of an unknown route.
        assert failed(batch("other", first=2)) == []
        assert failed(batch("ending", first=3)) == []
        assert ids(server) == ["1"]
    dropped = [vars(each) for each in caplog.records if each.message.startswith("dropped")]
    assert [(each["event_id"], each["route"]) for each in dropped] == [
        ("2", "carers-subscribes-other"),
        ("3", "carers-subscribes-ending"),
    ]
    assert len(cloud.keys("handovers/")) == 1


def test_figures_cover_all_sinks(table: SubscriptionTable, capsys: pytest.CaptureFixture[str]) -> None:
    with EndpointServer() as good, EndpointServer(answer(422), answer(500)) as bad:
        table.write(subscription("good", good.url()))
        table.write(subscription("bad", bad.url()))
        failed(batch("good", "bad", "ended", "good", "bad", "ended", "ended"))
    assert figures(capsys.readouterr().out) == {
        "Messages": 7,
        "Delivered": 2,
        "DeadLettered": 1,
        "Dropped": 3,
        "Retried": 1,
    }


def test_idle_sinks_are_closed(table: SubscriptionTable, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = system_clock()
    for module in (subscribers, wiring):
        monkeypatch.setattr(module, "system_clock", lambda: now_ms)
    endpoints: list[HttpSink] = []

    class Recorded(HttpSink):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            endpoints.append(self)

    monkeypatch.setattr(wiring, "HttpSink", Recorded)
    with EndpointServer() as one, EndpointServer() as other:
        for name, server in (("one", one), ("other", other)):
            table.write(subscription(name, server.url()))
            assert failed(batch(name)) == []
        assert all(each._connection for each in endpoints)
        now_ms += MAX_IDLE_MS + 1
        assert failed(batch("one", first=2)) == []
        assert [bool(each._connection) for each in endpoints] == [True, False]
        assert ids(one) == ["1", "2"]


def test_a_route_that_cannot_be_read_is_not_presumed_ended(cloud: Cloud, table: SubscriptionTable) -> None:
    with EndpointServer() as server:
        table.write(subscription("one", server.url()))
        assert failed(batch("one")) == []
        cloud.dynamodb.delete_table(TableName=SUBSCRIPTIONS)
        # A known route keeps its events; whether the other one has ended is unknown.
        assert failed(batch("other", first=2)) == ["m2"]
        assert failed(batch("one", first=3)) == []
        assert ids(server) == ["1", "3"]


def test_each_sink_has_its_letter(cloud: Cloud, table: SubscriptionTable) -> None:
    with EndpointServer(answer(400), answer(204)) as one, EndpointServer(answer(400), answer(400)) as other:
        for name, server in (("one", one), ("other", other)):
            table.write(subscription(name, server.url()))
        for first in (1, 3):
            records = batch("one", "other", first=first)
            for record in records["Records"]:
                record["body"] = records["Records"][0]["body"]
            assert failed(records) == []
    letters = [parse_event(body) for body in cloud.bodies("outbox")]
    assert len({each.key for each in letters}) == 3
    assert {(each.data()["reason"], each.data()["channel"]) for each in letters} == {
        ("endpoint_refused", "subscribers.inbox")
    }
    routes = sorted(each.data()["route"] for each in letters)
    assert routes == ["carers-subscribes-one", *["carers-subscribes-other"] * 2]
    rows = sorted((each["id"], each["route"], each["outcome"]) for each in cloud.lines("handovers/"))
    assert rows == [
        ("1", "carers-subscribes-one", "dead_lettered"),
        ("1", "carers-subscribes-other", "dead_lettered"),
        ("3", "carers-subscribes-one", "delivered"),
        ("3", "carers-subscribes-other", "dead_lettered"),
    ]


def test_a_private_sink_is_not_asked(table: SubscriptionTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPLANE_SINKS", "internet")
    with EndpointServer() as server:
        table.write(subscription("inside", server.url()))
        assert failed(batch("inside")) == ["m1"]
        assert server.connections == 0
