"""What the functions put into inboxes is noted as it is stored, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from eventplane.envelope import Envelope, write_event
from eventplane.sqs_binding import pack
from local.chaos.fault_proxy import Failure, Target
from local.proxy import Answer, Call
from local.up.observer import ObservingProxy

INBOX = "http://127.0.0.1:1/000000000000/eventplane-local-alarm-centre-inbox"
INBOXES = {"eventplane-local-alarm-centre-inbox": "alarm-centre"}


class Notes:
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, str]] = []
        self.arrivals: list[tuple[str, str]] = []
        self.times: list[float] = []

    def sent(self, event: Envelope, sender: str, now_ms: float) -> None:
        self.sends.append((sender, event.id))
        self.times.append(now_ms)

    def received(self, inbox: str, key: tuple[str, str], now_ms: float) -> None:
        self.arrivals.append((inbox, key[1]))


class Proxy(ObservingProxy):
    """Answers by itself, in the cloud's place."""

    refused: frozenset[str] = frozenset()

    def forward(self, call: Call) -> Answer:
        entries = json.loads(call.body).get("Entries", []) if call.service == "sqs" else []
        stored = [{"Id": each["Id"]} for each in entries if each["Id"] not in self.refused]
        return Answer(200, [], json.dumps({"Successful": stored, "Failed": []}).encode())


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def proxy(notes: Notes) -> Iterator[Proxy]:
    proxy = Proxy("http://127.0.0.1:1")
    proxy.observe(INBOXES, notes)
    with proxy:
        yield proxy


def event(id: str) -> Envelope:
    recorded = "2026-01-01T00:00:00Z"
    attributes = {"id": id, "source": "/homes/home-1/voice-service", "type": "org.x.v1"}
    return write_event({**attributes, "time": recorded, "senderservice": "voice-service"}, {})


def call(service: str, action: str, body: Mapping[str, Any], method: str = "POST") -> Call:
    signed = f"AWS4-HMAC-SHA256 Credential=K/20260101/us-east-1/{service}/aws4_request, Signature=0"
    headers = {"Authorization": signed, "X-Amz-Target": action} if action else {"Authorization": signed}
    return Call(method, "/bucket/key", headers, json.dumps(body).encode())


def send(url: str, *bodies: str) -> Call:
    entries = [{"Id": str(index), "MessageBody": body} for index, body in enumerate(bodies)]
    return call("sqs", "AmazonSQS.SendMessageBatch", {"QueueUrl": url, "Entries": entries})


def test_each_event_that_a_queue_stored_is_noted_with_when_it_was_recorded(
    proxy: Proxy, notes: Notes
) -> None:
    (message,) = pack([event("1"), event("2")], {}, 10)
    proxy.refused = frozenset(["1"])
    proxy.answer(send(INBOX, message.body, event("3").json))
    assert notes.arrivals == [("alarm-centre", "1"), ("alarm-centre", "2")]
    assert notes.sends == [("voice-service", "1"), ("voice-service", "2")]
    assert notes.times == [1_767_225_600_000.0] * 2
    assert proxy.routed == 2


def test_other_queues_and_bodies_that_are_no_event_are_not_noted(proxy: Proxy, notes: Notes) -> None:
    proxy.answer(send(INBOX.replace("alarm-centre-inbox", "ledger"), event("1").json))
    proxy.answer(send(INBOX, "no event"))
    assert notes.arrivals == []


def test_objects_are_counted_while_s3_works(proxy: Proxy) -> None:
    put = call("s3", "", {}, "PUT")
    proxy.answer(put)
    proxy.begin(Target("s3"), Failure.UNAVAILABLE)
    answer = proxy.answer(put)
    assert answer
    assert (answer.status, proxy.put_objects) == (503, 1)


def test_an_outage_that_nobody_has_met_can_be_ended_at_once(proxy: Proxy) -> None:
    proxy.begin(Target("s3"), Failure.UNAVAILABLE)
    proxy.end(Target("s3"), unmet=True)
    answer = proxy.answer(call("s3", "", {}, "PUT"))
    assert answer
    assert answer.status == 200
