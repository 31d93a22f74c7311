"""The canary: its publish over a WebSocket, its alarm, its check of all queues, and its function."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from os import urandom
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from eventplane.envelope import parse_event, write_event
from eventplane.function_settings import CanarySettings
from eventplane.ingest import IngestFrame, frame_text
from eventplane.names import CANARY_ALARM, CANARY_CLIENT
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from lambdas.canary import handler
from lambdas.canary.handler import Canary, Report
from lambdas.canary.mqtt import CanaryPublishError, DataEndpoint, MqttPublisher, data_endpoint
from lambdas.canary.queues import Queues
from lambdas.common import system
from lambdas.common.metrics import metrics
from tests.fakes.client import ScriptedClient
from tests.fakes.faults import FailingClient
from tests.unit.lambdas.support import NOW_MS, Cloud, LambdaContext, deploy, event, figures, message

PREFIX = "eventplane-dev-"
OWN = Sender(CANARY_CLIENT)


@dataclass
class Gateway:
    """What a server was asked: the request line and headers, and the MQTT packets with the type of each.

    `answers` has what it answers to a packet of a type, in frames; without one it closes the connection.
    """

    address: tuple[str, int] = ("", 0)
    status: str = "101 Switching Protocols"
    answers: dict[int, bytes] = field(
        default_factory=lambda: {1: b"\x20\x02\x00\x00", 3: b"\x40\x02\x00\x01", 14: b""}
    )
    request: str = ""
    packets: list[bytes] = field(default_factory=list)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """Serves one connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    it = Gateway(address=listener.getsockname()[:2])
    thread = threading.Thread(target=_serve, args=(listener, it))
    thread.start()
    yield it
    listener.close()
    thread.join(timeout=5)


def _serve(listener: socket.socket, gateway: Gateway) -> None:
    listener.settimeout(5)
    try:
        connection, _ = listener.accept()
    except OSError:
        return  # no connection
    with connection, connection.makefile("rb") as stream:
        connection.settimeout(5)
        lines = iter(stream.readline, b"\r\n")
        gateway.request = b"".join(lines).decode()
        key = next(
            line.split(": ")[1]
            for line in gateway.request.splitlines()
            if line.startswith("Sec-WebSocket-Key")
        )
        digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()  # noqa: S324 - as RFC 6455 has it
        accept = base64.b64encode(digest).decode()
        connection.sendall(f"HTTP/1.1 {gateway.status}\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        for packet in _messages(stream.read):
            gateway.packets.append(packet)
            answer = gateway.answers.get(packet[0] >> 4)
            if answer is None:
                connection.sendall(b"\x88\x02\x03\xf0")
                return
            # Each byte in a frame of its own: a stream has no borders.
            connection.sendall(b"".join(b"\x82\x01" + bytes([each]) for each in answer))


def _messages(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while head := read(2):
        size = head[1] & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", read(2))
        mask = read(4)
        yield bytes(each ^ mask[at % 4] for at, each in enumerate(read(size)))


HOST = "a1-ats.iot.eu-central-1.amazonaws.com"


def publisher(gateway: Gateway, token: str | None = "token/+=") -> MqttPublisher:  # noqa: S107 - no secret
    endpoint = DataEndpoint(host=HOST, address=gateway.address, is_tls=False)
    return MqttPublisher(
        endpoint=lambda: endpoint,
        credentials=Credentials("AKIDEXAMPLE", "secret", token),
        region="eu-central-1",
        client_id=CANARY_CLIENT,
        timeout_s=5,
        random_bytes=urandom,
    )


def test_a_publish_has_a_client_id_and_is_acknowledged(gateway: Gateway) -> None:
    payload = b"x" * 300  # longer than one digit of a remaining length, and than a frame's short length
    publisher(gateway).publish("$aws/rules/urgent/devices/canary/outbox", payload)
    connect, publish = gateway.packets[:2]
    assert connect[2:] == b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x07+canary"
    topic = b"$aws/rules/urgent/devices/canary/outbox"
    body = len(topic).to_bytes(2, "big") + topic + b"\x00\x01" + payload
    assert publish == b"\x32" + bytes([len(body) % 128 | 0x80, len(body) // 128]) + body


@pytest.mark.parametrize("token", ["token/+=", None])
def test_the_session_token_is_not_signed(gateway: Gateway, token: str | None) -> None:
    publisher(gateway, token).publish("topic", b"{}")
    line, *headers = gateway.request.splitlines()
    query = urlsplit(line.split(" ")[1]).query
    assert f"Host: {HOST}" in headers
    assert query.endswith("&X-Amz-Security-Token=token%2F%2B%3D") is (token is not None)
    assert ("Security-Token" in gateway.request) is (token is not None)
    assert "X-Amz-Signature" in query.partition("&X-Amz-Security-Token")[0]
    found = parse_qs(query)
    assert found["X-Amz-Credential"][0].endswith("/eu-central-1/iotdevicegateway/aws4_request")
    assert found["X-Amz-SignedHeaders"] == ["host"]


@pytest.mark.parametrize(
    ("refusal", "step", "detail"),
    [
        ({"status": "403 Forbidden"}, "upgrade", "403 Forbidden"),
        ({"answers": {1: b"\x20\x02\x00\x05"}}, "mqtt_connect", "20020005"),
        ({"answers": {}}, "mqtt_connect", "was closed"),
        ({"answers": {1: b"\x20\x02\x00\x00"}}, "publish", "was closed"),
    ],
)
def test_a_refusal_names_the_step(gateway: Gateway, refusal: dict[str, Any], step: str, detail: str) -> None:
    for name, value in refusal.items():
        setattr(gateway, name, value)
    with pytest.raises(CanaryPublishError, match=detail) as caught:
        publisher(gateway).publish("topic", b"{}")
    assert caught.value.step == step


def test_an_endpoint_without_a_listener_is_a_failed_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()[:2]
    with pytest.raises(CanaryPublishError) as caught:
        publisher(Gateway(address=address)).publish("topic", b"{}")
    assert caught.value.step == "connect"


def iot(host: str) -> Any:
    """AWS IoT's control plane, of an account whose endpoint is at `host`."""
    hosts = {"iot:Data-ATS": host}
    script = Mock(describe_endpoint=lambda **asked: {"endpointAddress": hosts[asked["endpointType"]]})
    return ScriptedClient("iot", script)


def test_the_endpoint_is_the_accounts_over_tls_unless_another_is_set() -> None:
    aws = data_endpoint(iot(HOST), "https://data-ats.iot.eu-central-1.amazonaws.com")
    assert (aws.host, aws.address, aws.is_tls) == (HOST, (HOST, 443), True)
    emulated = data_endpoint(iot("a1-ats.iot.us-east-1.localhost:4566"), "http://127.0.0.1:4566")
    assert (emulated.address, emulated.is_tls) == (("127.0.0.1", 4566), False)


def test_an_unknown_endpoint_is_a_failed_step() -> None:
    with pytest.raises(CanaryPublishError, match="ServiceUnavailable") as caught:
        data_endpoint(
            FailingClient(iot(HOST), code="ServiceUnavailable"),
            "https://data-ats.iot.eu-central-1.amazonaws.com",
        )
    assert caught.value.step == "endpoint"


def written() -> dict[str, list[float]]:
    """The values of metrics."""
    return {name: each["Value"] for name, each in metrics.provider.metric_set.items()}


class Inbox:
    """The canary's inbox, which a publish gets to unless it is lost."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.url = cloud.queue(f"{PREFIX}canary-inbox")

    def put(self, body: str) -> None:
        self.cloud.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def deliver(self, payload: bytes) -> None:
        """What IoT Core and the router do with a publish, in a second."""
        self.cloud.clock.advance(1)
        self.put(stamp_sender(parse_event(payload), OWN).json)

    def lose(self, payload: bytes) -> None:
        self.cloud.clock.advance(1)

    def send(self, publish: Callable[[bytes], None], remaining_ms: int = 0) -> Report:
        """What becomes of an alarm."""
        canary = Canary(
            publish=publish,
            sqs=self.cloud.sqs,
            inbox_url=self.url,
            clock=self.cloud.clock,
            random_bytes=urandom,
        )
        report = canary.send(lambda: remaining_ms)
        assert self.cloud.sqs.bodies(self.url) == []
        return report

    def earlier(self, sent_at_ms: Any = NOW_MS, sender: Sender = OWN) -> str:
        """An alarm that was sent before."""
        attributes = {"id": "before", "source": "/eventplane/cloud/canary", "type": CANARY_ALARM}
        return stamp_sender(write_event(attributes, {"sent_at_ms": sent_at_ms}), sender).json


@pytest.fixture
def inbox(cloud: Cloud) -> Inbox:
    return Inbox(cloud)


class TestAlarm:
    @pytest.mark.lost_answers
    def test_an_alarm_that_arrives_is_measured_and_removed(self, inbox: Inbox) -> None:
        report = inbox.send(inbox.deliver, 60_000)
        assert (report.problem, report.delay_ms, report.late) == (None, 1_000, 0)
        assert list(written().values()) == [[1_000]]

    @pytest.mark.lost_answers
    def test_a_late_alarm_is_measured_once_by_the_next_invocation(self, inbox: Inbox) -> None:
        for _ in range(2):
            inbox.put(inbox.earlier())
        assert inbox.send(inbox.deliver, 60_000).late == 1
        assert [len(each) for each in written().values()] == [2]

    def test_a_refused_publish_is_reported_and_a_late_alarm_still_measured(self, inbox: Inbox) -> None:
        inbox.put(inbox.earlier())
        report = inbox.send(Mock(side_effect=CanaryPublishError("upgrade", "403 Forbidden")), 60_000)
        assert "403 Forbidden" in (report.problem or "")
        assert (report.delay_ms, report.late, len(written())) == (None, 1, 1)

    @pytest.mark.parametrize("kind", ["another sender", "without time", "another type", "no event"])
    def test_foreign_messages_are_removed_and_not_measured(self, inbox: Inbox, kind: str) -> None:
        bodies = {
            "another sender": inbox.earlier(sender=Sender("home-1")),
            "without time": inbox.earlier(sent_at_ms=None),
            "another type": stamp_sender(event("1"), OWN).json,
        }
        inbox.put(bodies.get(kind, kind))
        report = inbox.send(inbox.lose)
        assert (report.problem, report.delay_ms, report.late, written()) == (None, None, 0, {})

    @pytest.mark.parametrize(
        ("client_id", "outcomes"),
        [
            (CANARY_CLIENT, [("canary.inbox", "delivered")]),
            # A device's can neither hide an outage nor flood the inbox.
            ("home-1", [(None, "unrouted")]),
            # Why the canary connects over MQTT: so IoT Core calls the client of a publish over HTTPS.
            ("n/a", [(None, "dead_lettered"), ("operations.inbox", "delivered")]),
        ],
    )
    def test_the_router_delivers_it_to_the_canary_s_inbox_only(
        self, cloud: Cloud, client_id: str, outcomes: list[tuple[str | None, str]]
    ) -> None:
        sent: list[bytes] = []
        Inbox(cloud).send(sent.append)
        frame = IngestFrame(sent[0], "devices/canary/outbox", client_id, "AROA:canary", NOW_MS)
        assert cloud.route(message("m1", frame_text(frame))) == frozenset()
        assert sorted((row[1:] for row in cloud.outcomes()), key=str, reverse=True) == sorted(
            outcomes, key=str, reverse=True
        )
        assert cloud.copies() == {address: 1 for address, _ in outcomes if address}


class TestQueues:
    @pytest.fixture
    def queues(self, cloud: Cloud) -> Queues:
        return Queues(sqs=cloud.sqs, prefix=PREFIX, clock=cloud.clock, pool=system.threads.pool(8))

    def fill(self, cloud: Cloud, name: str, number: int = 1) -> str:
        url = cloud.queue(name)
        for _ in range(number):
            cloud.sqs.send_message(QueueUrl=url, MessageBody="{}")
        return url

    def test_dead_letters_of_all_queues_are_one_figure(self, cloud: Cloud, queues: Queues) -> None:
        queues.look()
        # The figures of an empty plane show that the check ran.
        assert written() == {"DeadLetters": [0], "Backlog": [0]}
        metrics.clear_metrics()
        for name, number in (("dev-tap-dlq", 2), ("dev-watch-dlq", 1), ("prod-tap-dlq", 4)):
            self.fill(cloud, f"eventplane-{name}", number)
        look = queues.look()
        assert look.dead_letters == {f"{PREFIX}tap-dlq": 2, f"{PREFIX}watch-dlq": 1}
        assert (written()["DeadLetters"], look.backlog_s) == ([3], {})

    def test_a_queue_that_is_never_empty_has_a_growing_backlog(self, cloud: Cloud, queues: Queues) -> None:
        name = f"{PREFIX}tap"
        url = self.fill(cloud, name)
        self.fill(cloud, f"{PREFIX}carers-replies")
        for passed_s, backlog in ((0, {name: 0}), (900, {name: 900}), (300, {}), (300, {name: 0})):
            cloud.clock.advance(passed_s)
            if not backlog:
                cloud.sqs.take(url)
            assert queues.look().backlog_s == backlog
            if not backlog:
                cloud.sqs.send_message(QueueUrl=url, MessageBody="{}")

    def test_a_failed_check_writes_no_figures(self, cloud: Cloud) -> None:
        self.fill(cloud, f"{PREFIX}tap")
        unwilling = FailingClient(cloud.sqs, "get_queue_attributes")
        with pytest.raises(ClientError):
            Queues(sqs=unwilling, prefix=PREFIX, clock=cloud.clock, pool=system.threads.pool(8)).look()
        assert written() == {}

    def test_a_queue_that_was_just_deleted_does_not_hide_the_others(
        self, cloud: Cloud, queues: Queues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.fill(cloud, f"{PREFIX}tap-dlq", 2)
        gone = self.fill(cloud, f"{PREFIX}watch-dlq")
        listing = cloud.sqs.list_queues(QueueNamePrefix=PREFIX)
        cloud.sqs.delete_queue(QueueUrl=gone)
        # The listing is from before the deletion.
        monkeypatch.setattr(cloud.sqs, "list_queues", lambda **_: listing)
        assert queues.look().dead_letters == {f"{PREFIX}tap-dlq": 2}


@pytest.mark.lost_answers
class TestFunction:
    @pytest.fixture(autouse=True)
    def deployed(self, cloud: Cloud, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = CanarySettings(ingest_topic="topic", inbox_queue=inbox.url, queue_prefix=PREFIX)
        deploy(monkeypatch, tmp_path, None, {})
        for name, value in {**settings.variables(), "AWS_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setattr(handler, "services", handler.wire)

    def test_it_checks_the_queues(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = handler.handle({"do": "queues"}, LambdaContext())
        assert found == {"dead_letters": {}, "backlog_s": {}}
        assert figures(capsys.readouterr().out)["DeadLetters"] == 0

    def test_it_publishes_under_its_client_id(self, cloud: Cloud, gateway: Gateway) -> None:
        host, port = gateway.address
        cloud.aws.others["iot-data"] = Mock()
        cloud.aws.others["iot-data"].meta.endpoint_url = f"http://{host}:{port}"
        cloud.aws.others["iot"] = iot(f"{host}:{port}")
        answer: dict[str, Any] = handler.handle({"do": "alarm"}, LambdaContext(remaining_ms=0))
        assert (answer["problem"], answer["delay_ms"]) == (None, None)
        assert b"+canary" in gateway.packets[0]
        assert json.loads(gateway.packets[1].split(b"\x00\x01", 1)[1])["id"] == answer["id"]
