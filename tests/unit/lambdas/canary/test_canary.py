"""The canary's alarm: measured when it arrives, missed when it does not, and nobody else's counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from eventplane.contract import Contract
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.names import CANARY_ALARM, CANARY_CLIENT
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from lambdas.canary.handler import Canary
from lambdas.canary.mqtt import CanaryPublishError
from lambdas.common.metrics import Delay, metrics
from tests.unit.lambdas.support import NOW_MS, Cloud, Run, event, message

OWN = Sender(CANARY_CLIENT)


def canary(sqs: Any, inbox: str, publish: Callable[[bytes], None], now_ms: int = NOW_MS) -> Canary:
    return Canary(publish=publish, sqs=sqs, inbox_url=inbox, clock=lambda: now_ms)


def loses(payload: bytes) -> None:
    """A publish that is taken and goes nowhere."""


def plenty() -> int:
    return 60_000


def none_left() -> int:
    return 0


def recorded() -> list[int]:
    """The delays that were written as metrics."""
    found: list[int] = metrics.provider.metric_set.get(Delay.CANARY.value, {}).get("Value", [])
    return found


def delivers(sqs: Any, inbox: str, sender: Sender = OWN) -> Callable[[bytes], None]:
    """What IoT Core and the router do with a publish."""

    def publish(payload: bytes) -> None:
        stamped = stamp_sender(parse_event(payload.decode()), sender)
        sqs.send_message(QueueUrl=inbox, MessageBody=stamped.json)

    return publish


def earlier(id: str, sent_at_ms: int) -> Envelope:
    attributes = {"id": id, "source": "/eventplane/cloud/canary", "type": CANARY_ALARM}
    return stamp_sender(write_event(attributes, {"sent_at_ms": sent_at_ms}), OWN)


def test_an_alarm_that_arrives_is_measured_and_leaves_the_inbox(sqs: Any, inbox: str) -> None:
    report = canary(sqs, inbox, delivers(sqs, inbox), now_ms=1).send(plenty)
    assert (report.problem, report.late) == (None, 0)
    assert report.delay_ms is not None
    # Sent at 1 ms by the canary's clock, and arrived now by that of SQS.
    assert recorded() == [report.delay_ms]
    assert report.delay_ms > NOW_MS
    assert "Messages" not in sqs.receive_message(QueueUrl=inbox)


def test_an_alarm_that_does_not_arrive_leaves_no_value(sqs: Any, inbox: str) -> None:
    report = canary(sqs, inbox, loses).send(none_left)
    assert (report.problem, report.delay_ms, recorded()) == (None, None, [])


def test_one_that_was_late_is_measured_by_the_next_invocation(sqs: Any, inbox: str) -> None:
    sqs.send_message(QueueUrl=inbox, MessageBody=earlier("before", 1).json)
    report = canary(sqs, inbox, delivers(sqs, inbox)).send(plenty)
    assert report.late == 1
    assert len(recorded()) == 2


def test_a_copy_is_not_a_second_alarm(sqs: Any, inbox: str) -> None:
    for _ in range(2):
        sqs.send_message(QueueUrl=inbox, MessageBody=earlier("before", 1).json)
    canary(sqs, inbox, loses).send(none_left)
    assert len(recorded()) == 1


def test_what_iot_core_refuses_is_reported_and_what_is_late_is_measured(sqs: Any, inbox: str) -> None:
    def refuses(payload: bytes) -> None:
        raise CanaryPublishError("upgrade", "403 Forbidden")

    sqs.send_message(QueueUrl=inbox, MessageBody=earlier("before", 1).json)
    report = canary(sqs, inbox, refuses).send(plenty)
    assert report.problem is not None
    assert "403 Forbidden" in report.problem
    assert (report.delay_ms, report.late, len(recorded())) == (None, 1, 1)


@pytest.mark.parametrize(
    "body",
    [
        stamp_sender(
            write_event({"id": "1", "source": "/x", "type": CANARY_ALARM}, {"sent_at_ms": 1}),
            Sender("home-1"),
        ).json,
        stamp_sender(
            write_event({"id": "1", "source": "/x", "type": CANARY_ALARM}, {"sent_at_ms": None}), OWN
        ).json,
        stamp_sender(event("1"), OWN).json,
        "no event",
    ],
)
def test_what_is_not_its_own_is_removed_and_not_measured(sqs: Any, inbox: str, body: str) -> None:
    sqs.send_message(QueueUrl=inbox, MessageBody=body)
    report = canary(sqs, inbox, loses).send(none_left)
    assert (report.late, recorded()) == (0, [])
    assert "Messages" not in sqs.receive_message(QueueUrl=inbox)


def frame_of(client_id: str, alarm: bytes) -> str:
    return frame_text(IngestFrame(alarm, "devices/canary/outbox", client_id, "AROA:canary", NOW_MS))


def published(contract: Contract) -> bytes:
    sent: list[bytes] = []
    canary(_NoSqs(), "", sent.append).send(none_left)
    return sent[0]


class _NoSqs:
    def receive_message(self, **request: Any) -> dict[str, Any]:
        return {}


def test_the_router_takes_it_to_its_inbox_and_wakes_nobody(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    assert run(message("m1", frame_of(CANARY_CLIENT, published(contract)))) == frozenset()
    (arrived,) = cloud.received("canary.inbox")
    assert parse_event(arrived["Body"]).sender == OWN
    assert [address for address in cloud.queues if cloud.received(address)] == []
    assert cloud.outcomes() == [(parse_event(arrived["Body"]).id, "canary.inbox", "delivered")]


def test_a_devices_canary_alarm_reaches_nobody(cloud: Cloud, run: Run, contract: Contract) -> None:
    """It can neither hide an outage nor flood the inbox."""
    run(message("m1", frame_of("home-1", published(contract))))
    assert [address for address in cloud.queues if cloud.received(address)] == []
    assert [outcome for _, _, outcome in cloud.outcomes()] == ["unrouted"]


def test_a_publish_without_a_client_id_is_refused(cloud: Cloud, run: Run, contract: Contract) -> None:
    """Why the canary connects over MQTT: IoT Core has "n/a" as the client id of a publish over HTTPS."""
    run(message("m1", frame_of("n/a", published(contract))))
    assert cloud.received("canary.inbox") == []
    (letter,) = cloud.received("operations.inbox")
    assert json.loads(letter["Body"])["deadletterreason"] == "bad_frame"
