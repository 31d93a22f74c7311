"""One connection against a real Mosquitto; over a scripted one it is in tests/unit/eventplane_mqtt."""

import os
import signal
from pathlib import Path
from typing import Literal

import pytest

from eventplane_mqtt.mailbox import Acknowledged, Connected, Disconnected, LinkName, Received
from lab.mosquitto import Broker, start_cloud_broker
from lab.network import free_port
from lab.process import Supervisor
from lab.things import Authority
from tests.integration.edge.conftest import SECONDS, wait_for
from tests.integration.mqtt import TestClient
from tests.listeners import sockets_of
from tests.unit.eventplane_mqtt.probe import Probe, Slow, files

Protocol = Literal["3.1.1", "5"]
both_protocols = pytest.mark.parametrize("protocol", ["3.1.1", "5"])


@pytest.fixture
def own(request: pytest.FixtureRequest) -> dict[str, object]:
    """A session and a topic of the test's own at the broker that all tests here share."""
    name = request.node.name
    return {"client_id": name, "subscriptions": (name,)}


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.mark.source("P6", "C1")
@both_protocols
def test_it_reports_what_happens_and_what_was_not_acknowledged_comes_again(
    shared_broker: Broker, own: dict[str, object], topic: str, protocol: Protocol
) -> None:
    probe = Probe(shared_broker.port, protocol=protocol, **own)
    probe.next(Connected)
    mid = probe.connection.publish(topic, b"hello")
    reports = [probe.reports.get(timeout=SECONDS) for _ in range(2)]
    assert Acknowledged(LinkName.LOCAL, 7, mid) in reports
    received = next(each for each in reports if isinstance(each, Received))
    assert (received.topic, received.payload) == (topic, b"hello")
    probe.close()
    again = Probe(shared_broker.port, protocol=protocol, **own)
    # The broker's SUBACK comes after its backlog, which is an answer as well.
    again.next(Connected)
    received = again.next(Received)
    assert received.payload == b"hello"
    again.connection.acknowledge(received.mid)
    again.close()
    assert again.reports.empty()


def exchange(probe: Probe, topic: str, payloads: list[bytes]) -> None:
    """Publish to oneself, and acknowledge what comes: each once, in order."""
    probe.next(Connected)
    mids = [probe.connection.publish(topic, payload) for payload in payloads]
    received: list[Received] = []
    acknowledged: list[int] = []
    while len(received) < len(payloads) or len(acknowledged) < len(mids):
        report = probe.reports.get(timeout=SECONDS)
        if isinstance(report, Received):
            received.append(report)
            probe.connection.acknowledge(report.mid)
        elif isinstance(report, Acknowledged):
            assert report.failure is None
            acknowledged.append(report.mid)
    assert [each.payload for each in received] == payloads
    assert sorted(acknowledged) == sorted(mids)
    probe.close()


MANY = [b"%d" % number for number in range(10_000)]


@pytest.mark.source("P-W6")
@both_protocols
def test_many_messages_go_both_ways_and_each_is_acknowledged_once(
    shared_broker: Broker, own: dict[str, object], topic: str, protocol: Protocol
) -> None:
    # MQTT 5: Mosquitto announces a receive maximum and hangs up on who exceeds it.
    exchange(Probe(shared_broker.port, protocol=protocol, **own), topic, MANY)
    sizes = [0, 1, 127, 128, 65_536, 256 * 1024]
    payloads = [bytes(number % 251 for number in range(size)) for size in sizes for _ in range(20)]
    again = Probe(shared_broker.port, protocol=protocol, **own)
    exchange(again, topic, payloads)


@pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])
def test_over_tls_as_well(
    supervisor: Supervisor, tmp_path: Path, authority: Authority, topic: str, version: str
) -> None:
    limits = f"max_inflight_messages 20000\ntls_version {version}\n"
    broker = start_cloud_broker(supervisor, tmp_path / "tls", authority, limits)
    tls = files(authority, authority.issue("c"))
    payloads = [*MANY, *(bytes([n]) * 250_000 for n in range(40))]
    exchange(Probe(broker.port, tls=tls, subscriptions=(topic,)), topic, payloads)


@pytest.mark.source("P6")
def test_paho_and_we_understand_each_other(shared_broker: Broker, own: dict[str, object], topic: str) -> None:
    payloads = [bytes([number]) * 5_000 for number in range(256)]
    probe = Probe(shared_broker.port, **own)
    probe.next(Connected)
    with TestClient("paho", "127.0.0.1", shared_broker.port) as paho:
        paho.subscribe("to/paho")
        assert paho.publish_all(topic, payloads)
        for received in probe.gather(Received, len(payloads)):
            probe.connection.acknowledge(received.mid)
            probe.connection.publish("to/paho", received.payload)
        probe.gather(Acknowledged, len(payloads))
        wait_for(lambda: [payload for _, payload in paho.messages] == payloads)
    probe.close()


@pytest.mark.source("C10")
def test_a_silent_broker_is_noticed(shared_broker: Broker, topic: str) -> None:
    probe = Probe(shared_broker.port, client_id=topic, keepalive_s=1, subscriptions=())
    probe.next(Connected)
    os.kill(shared_broker.child.pid or 0, signal.SIGSTOP)
    try:
        for _ in range(200):
            probe.connection.publish("t", bytes(100_000))
        reason = probe.next(Disconnected).reason
        assert "no answer to PINGREQ" in reason or "timed out" in reason
    finally:
        os.kill(shared_broker.child.pid or 0, signal.SIGCONT)
    probe = Probe(shared_broker.port, client_id=topic)
    probe.next(Connected)
    for number in range(20_000):
        probe.connection.acknowledge(1)
        if probe.connection.publish("t", b"x") == 0:
            break
        if number == 200:
            shared_broker.child.kill()
    assert "lost" in probe.gather(Disconnected, 1)[0].reason
    shared_broker.child.start()
    again = Probe(shared_broker.port, client_id=topic)
    again.next(Connected)
    again.close()


def test_many_connections_leave_nothing_open(shared_broker: Broker) -> None:
    before = len([*sockets_of(os.getpid())])
    for port in [shared_broker.port, free_port()] * 5:
        probe = Probe(port)
        probe.connection.close(SECONDS)
        probe.gather(Disconnected, 1)
        probe.connection.publish("t", b"")
    assert len([*sockets_of(os.getpid())]) <= before


@pytest.mark.source("P6")
@both_protocols
def test_a_backlog_stays_in_the_broker_while_the_share_is_full(
    shared_broker: Broker, own: dict[str, object], topic: str, protocol: Protocol
) -> None:
    payloads = [b"%5d" % number + bytes(20_000) for number in range(1_000)]
    probe = Probe(shared_broker.port, **own)
    probe.next(Connected)
    probe.close()
    with TestClient("sender", "127.0.0.1", shared_broker.port) as sender:
        assert sender.publish_all(topic, payloads)
    slow = Slow(shared_broker.port, 200_000, protocol=protocol, **own)
    wait_for(lambda: slow.share.pauses == 1)
    received = slow.receive(len(payloads))
    assert [each.payload for each in received] == payloads
    # A share, and what one piece of the socket adds to it.
    assert 200_000 <= slow.most_bytes <= 200_000 + 65_536 + 21_000
    slow.connection.close(SECONDS)


def test_qos_0_delays_no_qos_1(shared_broker: Broker, own: dict[str, object], topic: str) -> None:
    slow = Slow(shared_broker.port, 40_000, **own)
    assert isinstance(slow.mailbox.wait(SECONDS)[0], Connected)
    flood = Probe(shared_broker.port, client_id="flood", subscriptions=())
    flood.next(Connected)
    for _ in range(2_000):
        flood.connection.publish(topic, bytes(1_000), qos=0)
    flood.connection.publish(topic, b"alarm")
    # Nobody takes anything from the mailbox, and still it arrives.
    wait_for(lambda: slow.share.waiting > 0 and slow.share._messages[-1].payload == b"alarm")
    assert slow.share.pauses == 0
    assert slow.share.waiting_bytes <= 20_000 + 2 * 1_300
    assert slow.share.dropped + slow.share.waiting == 2_001
    flood.close()
    slow.connection.close(SECONDS)
