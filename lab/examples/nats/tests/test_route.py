"""One event, all the way: SQS outbox, router function, NATS inbox, client; and back by the relay."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from eventplane.contract import Contract
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import Reason
from eventplane_client import ClientSettings, Mode, connect
from eventplane_client.errors import NothingThereError
from eventplane_client.sqs import SqsTransport
from eventplane_nats.connection import NatsLink
from eventplane_nats.relay import Relay
from eventplane_nats.streams import channels, make_stream
from lab.examples.nats.tests.server import NatsServer
from lambdas.common.metrics import metrics
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import queue_function
from lambdas.router import handler as router
from tests.fakes.aws import FakeAws
from tests.small_contract import small_contract
from tests.unit.lambdas.support import (
    BUCKET,
    INTEREST,
    SUBSCRIPTIONS,
    TABLE,
    Cloud,
    LambdaContext,
    deliver,
    deploy,
    sqs_event,
)

RING, SEEN = "org.example.ring.v1", "org.example.seen.v1"
ENVIRONMENT = "route"
SECONDS = 20.0


@pytest.fixture
def contract() -> Contract:
    """A bell over SQS rings at a desk over NATS, which says that it has seen it; the log gets both."""
    nats, service = {"transport": "nats"}, {"kind": "cloud_service"}
    ring, seen = ({"exact": {"type": each}} for each in (RING, SEEN))
    return small_contract(
        {
            "device": "device",
            "bell": {**service, "sends": [RING]},
            "desk": {**service, "sends": [SEEN], "inbox": nats, "outbox": nats},
            "log": service,
        },
        {
            "rings": (ring, "desk.inbox"),
            "seen": (seen, "bell.inbox"),
            "all": ({"any": [ring, seen]}, "log.inbox"),
        },
        {RING: {}, SEEN: {}},
    )


class Stub:
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
        """Put an event as the client library does over SQS."""
        url = self.outboxes[participant]
        transport = SqsTransport(
            participant, self.cloud.sqs, inbox="", outbox=url, visibility_s=0, max_receives=5
        )
        transport.put(event, SECONDS, durable=True)

    def route(self, participant: str) -> list[str]:
        """Invoke the router of the outbox once, as Lambda does; the messages that come again."""
        url = self.outboxes[participant]
        for name, value in {"SOURCE": f"{participant}.outbox", "SOURCE_QUEUE": url}.items():
            self._monkeypatch.setenv(f"EVENTPLANE_{name}", value)
        metrics.clear_metrics()
        function = queue_function(router.service)

        def process(messages: list[QueueMessage], _: Invocation) -> list[str]:
            context = LambdaContext(aws_request_id=f"request-{next(self._invocations)}")
            answer = function(sqs_event(*messages), context)
            return [each["itemIdentifier"] for each in answer["batchItemFailures"]]

        _, again = deliver(self.cloud.sqs, url, process, wait_s=0)
        return [*again]


@pytest.fixture
def plane(
    contract: Contract,
    nats_server: NatsServer,
    operator: NatsLink,
    fake_aws: FakeAws,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stub]:
    for channel in channels(contract):
        operator.run(make_stream(operator.jetstream, ENVIRONMENT, channel), SECONDS)
    yield Stub(contract, nats_server, fake_aws, tmp_path, monkeypatch)
    for channel in channels(contract):
        name = f"eventplane-{ENVIRONMENT}-{channel.participant}-{channel.box}"
        operator.run(operator.jetstream.delete_stream(name), SECONDS)


def desk_settings(server: NatsServer, root: Path) -> ClientSettings:
    return ClientSettings(
        f"{server.url}/{ENVIRONMENT}", "desk", state=f"sqlite:{root / 'desk.db'}", mode=Mode.EXACTLY_ONCE
    )


def ring(id: str) -> Envelope:
    return write_event({"id": id, "source": "/bells/1", "type": RING}, {"door": "front"})


def test_an_event_goes_over_nats_and_back(plane: Stub, nats_server: NatsServer, tmp_path: Path) -> None:
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


def test_nats_down_delays_no_other_inbox(plane: Stub, nats_server: NatsServer, tmp_path: Path) -> None:
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


def test_the_relay_passes_non_events(plane: Stub, nats_server: NatsServer, operator: NatsLink) -> None:
    """SQS takes a mebibyte, a relay that met the limit would try for ever; the router makes dead letters."""
    outbox = f"eventplane-{ENVIRONMENT}-desk-outbox"
    for body in (b"", b"\x00\xff garbage", b"\0" * 1_000_000):
        operator.run(operator.jetstream.publish(outbox, body), SECONDS)
    with Relay("desk", nats_server.url, ENVIRONMENT, plane.cloud.sqs) as relay:
        assert relay.relay(SECONDS) == 3
    found = plane.cloud.sqs.receive_message(
        QueueUrl=plane.outboxes["desk"], MaxNumberOfMessages=10, VisibilityTimeout=0
    )["Messages"]
    *_, large = sorted((each["Body"] for each in found), key=len)
    assert len(large.encode()) <= 1024 * 1024
    with pytest.raises(EnvelopeError, match=Reason.TOO_LARGE):
        parse_event(large)
    assert plane.route("desk") == []
    assert {outcome for _, _, outcome in plane.cloud.outcomes()} == {"dead_lettered", "unrouted"}


def test_the_relay_keeps_refused_messages(plane: Stub, nats_server: NatsServer, tmp_path: Path) -> None:
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
