"""One event, all the way: SQS outbox, router function, NATS inbox, client; and back by the relay."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from eventplane.contract import Contract, compile_contract
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import Reason
from eventplane_client import ClientSettings, Mode, connect
from eventplane_client.errors import NothingThereError
from eventplane_client.sqs import SqsTransport
from eventplane_nats.connection import Connection
from eventplane_nats.relay import Relay
from eventplane_nats.streams import channels, make_stream
from lambdas.common.metrics import metrics
from lambdas.common.queue_function import queue_function
from lambdas.router import handler as router
from local.nats import NatsServer
from tests.fakes.aws import FakeAws
from tests.unit.lambdas.support import BUCKET, INTEREST, SUBSCRIPTIONS, TABLE, Cloud, LambdaContext, deploy

pytestmark = pytest.mark.source("P13", "N1")

RING, SEEN = "org.example.ring.v1", "org.example.seen.v1"
ENVIRONMENT = "route"
SECONDS = 20.0


@pytest.fixture
def contract() -> Contract:
    """A bell over SQS rings at a desk over NATS, which says that it has seen it; the log gets both."""
    nats = {"transport": "nats"}
    service = {"kind": "cloud_service", "description": "x"}
    either = {"any": [{"exact": {"type": RING}}, {"exact": {"type": SEEN}}]}
    return compile_contract(
        {
            "format": 7,
            "name": "route",
            "participants": {
                "device": {"kind": "device", "description": "x"},
                "bell": {**service, "sends": [RING]},
                "desk": {**service, "sends": [SEEN], "inbox": nats, "outbox": nats},
                "log": service,
            },
            "event_types": {RING: {"description": "x"}, SEEN: {"description": "x"}},
            "routes": {
                "rings": {"filter": {"exact": {"type": RING}}, "to": "desk.inbox"},
                "seen": {"filter": {"exact": {"type": SEEN}}, "to": "bell.inbox"},
                "all": {"filter": either, "to": "log.inbox"},
            },
        },
        "test",
    )


class Plane:
    """The contract deployed: queues, tables and archive in memory, streams in NATS, the router's handler."""

    def __init__(
        self,
        contract: Contract,
        server: NatsServer,
        aws: FakeAws,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.cloud = Cloud(aws, contract)
        self.outboxes = {
            name: self.cloud.queue(f"eventplane-{ENVIRONMENT}-{name}-outbox") for name in ("bell", "desk")
        }
        self.inboxes = {
            **self.cloud.queues,
            "desk.inbox": f"{server.url}/eventplane-{ENVIRONMENT}-desk-inbox",
        }
        self._monkeypatch = monkeypatch
        self._invocations = itertools.count()
        settings = {
            "QUEUES": self.inboxes,
            "PRIORITY": "normal",
            "LEDGER_QUEUE": self.cloud.ledger,
            "ARCHIVE_BUCKET": BUCKET,
            "CONTRACTS_TABLE": TABLE,
            "SUBSCRIPTIONS_TABLE": SUBSCRIPTIONS,
            "INTEREST_TABLE": INTEREST,
            "CONTRACT_REFRESH_S": "30",
        }
        deploy(monkeypatch, root, contract, settings)

    def put(self, participant: str, event: Envelope) -> None:
        """As the client library does over SQS."""
        url = self.outboxes[participant]
        transport = SqsTransport(
            participant, self.cloud.sqs, inbox="", outbox=url, visibility_s=0, max_receives=5
        )
        transport.put(event, SECONDS, durable=True)

    def route(self, participant: str) -> list[str]:
        """Invoke the router of the outbox once, as Lambda does; the ids of messages that come again."""
        url = self.outboxes[participant]
        for name, value in {"SOURCE": f"{participant}.outbox", "SOURCE_QUEUE": url}.items():
            self._monkeypatch.setenv(f"EVENTPLANE_{name}", value)
        metrics.clear_metrics()
        found = self.cloud.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        )["Messages"]
        records = [
            {
                "messageId": each["MessageId"],
                "receiptHandle": each["ReceiptHandle"],
                "body": each["Body"],
                "attributes": each["Attributes"],
            }
            for each in found
        ]
        answer = queue_function(router.service)(
            {"Records": records}, LambdaContext(aws_request_id=f"request-{next(self._invocations)}")
        )
        failed = [each["itemIdentifier"] for each in answer["batchItemFailures"]]
        for each in found:
            if each["MessageId"] in failed:
                self.cloud.sqs.change_message_visibility(
                    QueueUrl=url, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0
                )
            else:
                self.cloud.sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
        return failed


@pytest.fixture
def plane(
    contract: Contract,
    nats_server: NatsServer,
    operator: Connection,
    fake_aws: FakeAws,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Plane]:
    for channel in channels(contract):
        operator.run(make_stream(operator.jetstream, ENVIRONMENT, channel), SECONDS)
    yield Plane(contract, nats_server, fake_aws, tmp_path, monkeypatch)
    for channel in channels(contract):
        name = f"eventplane-{ENVIRONMENT}-{channel.participant}-{channel.box}"
        operator.run(operator.jetstream.delete_stream(name), SECONDS)


def desk_settings(server: NatsServer, root: Path) -> ClientSettings:
    return ClientSettings(
        "desk", f"{server.url}/{ENVIRONMENT}", state=f"sqlite:{root / 'desk.db'}", mode=Mode.EXACTLY_ONCE
    )


def ring(id: str) -> Envelope:
    return write_event({"id": id, "source": "/bells/1", "type": RING}, {"door": "front"})


def test_an_event_goes_from_sqs_through_the_router_to_a_reader_over_nats_and_the_answer_comes_back(
    plane: Plane, nats_server: NatsServer, tmp_path: Path
) -> None:
    plane.put("bell", ring("1"))
    assert plane.route("bell") == []
    with connect(desk_settings(nats_server, tmp_path)) as desk, desk.subscribe() as inbox:
        got = inbox.get(SECONDS)
        assert (got.id, str(got.sender), got.data()) == ("1", "bell", {"door": "front"})
        seen = write_event({"id": "2", "source": "/desks/1", "type": SEEN}, {"ring": got.id})
        desk.put(seen)
        with pytest.raises(NothingThereError):
            inbox.get(0)
    with Relay("desk", nats_server.url, ENVIRONMENT, plane.cloud.sqs) as relay:
        assert relay.relay(SECONDS) == 1
        assert relay.relay(0) == 0
    assert plane.route("desk") == []
    (answer,) = plane.cloud.received("bell.inbox")
    assert json.loads(answer["Body"])["senderservice"] == "desk"
    outcomes = set(plane.cloud.outcomes())
    assert {("1", "desk.inbox", "delivered"), ("2", "bell.inbox", "delivered")} <= outcomes


@pytest.mark.source("P17")
def test_what_a_service_over_nats_sends_into_an_ordered_inbox_is_numbered(
    plane: Plane, nats_server: NatsServer, contract: Contract, tmp_path: Path
) -> None:
    document = json.loads(contract.canonical)
    document["participants"]["bell"]["inbox"]["ordering"] = "source"
    file = tmp_path / "ordered.json"
    file.write_bytes(compile_contract(document, "ordered").canonical)
    settings = replace(desk_settings(nats_server, tmp_path), contract=str(file))
    with connect(settings) as desk:
        for number in (1, 2):
            desk.put(write_event({"id": str(number), "source": "/desks/1", "type": SEEN}, {}))
    with Relay("desk", nats_server.url, ENVIRONMENT, plane.cloud.sqs) as relay:
        assert relay.relay(SECONDS) == 2
    sent = plane.cloud.sqs.receive_message(QueueUrl=plane.outboxes["desk"], MaxNumberOfMessages=10)[
        "Messages"
    ]
    positions = sorted(json.loads(each["Body"])["orderin"] for each in sent)
    assert [each.rpartition("/")[2] for each in positions] == ["1", "2"]


def test_while_nats_is_down_the_message_comes_again_and_other_inboxes_have_it_already(
    plane: Plane, nats_server: NatsServer, tmp_path: Path
) -> None:
    plane.put("bell", ring("down"))
    nats_server.child.kill()
    try:
        assert len(plane.route("bell")) == 1
    finally:
        nats_server.child.start()
    assert [json.loads(each["Body"])["id"] for each in plane.cloud.received("log.inbox")] == ["down"]
    assert ("down", "desk.inbox", "delivered") not in plane.cloud.outcomes()
    assert plane.route("bell") == []
    assert ("down", "desk.inbox", "delivered") in plane.cloud.outcomes()
    with connect(desk_settings(nats_server, tmp_path)) as desk, desk.subscribe() as inbox:
        assert inbox.get(SECONDS).id == "down"
        with pytest.raises(NothingThereError):
            inbox.get(0)


def test_the_relay_passes_on_what_is_no_event_and_the_router_makes_the_dead_letter(
    plane: Plane, nats_server: NatsServer, operator: Connection
) -> None:
    outbox = f"eventplane-{ENVIRONMENT}-desk-outbox"
    for body in (b"", b"\x00\xff garbage"):
        operator.run(operator.jetstream.publish(outbox, body), SECONDS)
    with Relay("desk", nats_server.url, ENVIRONMENT, plane.cloud.sqs) as relay:
        assert relay.relay(SECONDS) == 2
    assert plane.route("desk") == []
    assert {outcome for _, _, outcome in plane.cloud.outcomes()} == {"dead_lettered", "unrouted"}


def test_the_relay_is_not_stopped_by_what_is_too_large_for_the_queue(
    plane: Plane, nats_server: NatsServer, operator: Connection
) -> None:
    class Bounded:
        """SQS takes a mebibyte, which moto does not know; a relay that meets the limit would try for ever."""

        def get_queue_url(self, **named: Any) -> Any:
            return plane.cloud.sqs.get_queue_url(**named)

        def send_message(self, **named: Any) -> Any:
            assert len(named["MessageBody"].encode()) <= 1024 * 1024
            sent.append(named["MessageBody"])

    sent: list[str] = []
    outbox = f"eventplane-{ENVIRONMENT}-desk-outbox"
    operator.run(operator.jetstream.publish(outbox, b"\0" * 1_000_000), SECONDS)
    operator.run(operator.jetstream.publish(outbox, b"next"), SECONDS)
    with Relay("desk", nats_server.url, ENVIRONMENT, Bounded()) as relay:
        assert relay.relay(SECONDS) == 2
    assert sent[1] == "next"
    with pytest.raises(EnvelopeError, match=Reason.TOO_LARGE):
        parse_event(sent[0])


def test_the_relay_keeps_what_the_queue_does_not_take(
    plane: Plane, nats_server: NatsServer, tmp_path: Path
) -> None:
    class Down:
        """SQS does not answer at first; then the relay is told to end."""

        def __init__(self) -> None:
            self.relay: Relay | None = None

        def get_queue_url(self, **named: Any) -> Any:
            return plane.cloud.sqs.get_queue_url(**named)

        def send_message(self, **named: Any) -> Any:
            assert self.relay
            self.relay.stop()
            raise EndpointConnectionError(endpoint_url="https://sqs")

    with connect(desk_settings(nats_server, tmp_path)) as desk:
        desk.put(write_event({"id": "kept", "source": "/desks/1", "type": SEEN}, {}))
    down = Down()
    with Relay("desk", nats_server.url, ENVIRONMENT, down) as relay:
        down.relay = relay
        relay.run()
    with Relay("desk", nats_server.url, ENVIRONMENT, plane.cloud.sqs) as relay:
        assert relay.relay(SECONDS) == 1
    assert plane.route("desk") == []
    assert ("kept", "bell.inbox", "delivered") in plane.cloud.outcomes()
