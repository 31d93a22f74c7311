"""One connection against a real broker, and against none."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import pytest

from eventplane_mqtt import Connection, Endpoint
from eventplane_mqtt.mailbox import (
    Acknowledged,
    Connected,
    Disconnected,
    LinkName,
    Mailbox,
    Message,
    Received,
)
from local.mosquitto import Broker
from local.ports import free_port
from tests.integration.edge.conftest import SECONDS, wait_for
from tests.integration.edge.probe import Probe
from tests.integration.edge.scripted_broker import ScriptedBroker
from tests.integration.mqtt import TestClient
from tests.unit.eventplane_mqtt import broker_packets

Protocol = Literal["3.1.1", "5"]
both_protocols = pytest.mark.parametrize("protocol", ["3.1.1", "5"])


@pytest.fixture
def broker(mosquitto: Callable[[str], Broker]) -> Broker:
    return mosquitto("home")


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port where connections are accepted and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@both_protocols
def test_it_reports_what_happens(broker: Broker, protocol: Protocol) -> None:
    probe = Probe(broker.port, protocol=protocol)
    probe.next(Connected)
    mid = probe.connection.publish("t", b"hello")
    reports = [probe.reports.get(timeout=SECONDS) for _ in range(2)]
    assert Acknowledged(LinkName.LOCAL, 7, mid) in reports
    received = next(each for each in reports if isinstance(each, Received))
    assert (received.topic, received.payload) == ("t", b"hello")
    probe.connection.acknowledge(received.mid)
    probe.connection.close(SECONDS)
    probe.next(Disconnected)


@pytest.mark.source("P6", "C1")
@both_protocols
def test_what_was_not_acknowledged_comes_again_on_the_next_connection(
    broker: Broker, protocol: Protocol
) -> None:
    probe = Probe(broker.port, protocol=protocol)
    probe.next(Connected)
    probe.connection.publish("t", b"hello")
    reports = [probe.reports.get(timeout=SECONDS) for _ in range(2)]
    assert sum(isinstance(each, Received) for each in reports) == 1
    probe.connection.close(SECONDS)
    again = Probe(broker.port, protocol=protocol)
    # The broker's SUBACK comes after its backlog, which is an answer as well.
    again.next(Connected)
    assert again.next(Received).payload == b"hello"
    again.connection.close(SECONDS)


def test_after_its_end_it_is_harmless_and_says_so_once(broker: Broker) -> None:
    probe = Probe(broker.port)
    probe.next(Connected)
    broker.child.kill()
    assert "lost" in probe.next(Disconnected).reason
    assert probe.connection.publish("t", b"too late") == 0
    probe.connection.acknowledge(1)
    probe.connection.close(SECONDS)
    probe.connection.abandon()
    assert probe.reports.empty()


def test_it_survives_its_end_while_it_is_used(broker: Broker) -> None:
    probe = Probe(broker.port)
    probe.next(Connected)
    for number in range(20_000):
        probe.connection.acknowledge(1)
        if probe.connection.publish("t", b"x") == 0:
            break
        if number == 200:
            broker.child.kill()
    probe.connection.close(SECONDS)


def test_nobody_there_is_a_reason(broker: Broker) -> None:
    probe = Probe(free_port())
    assert "refused" in probe.next(Disconnected).reason


@pytest.mark.parametrize("end", [Connection.abandon, lambda connection: connection.close(0.1)])
def test_nobody_answers_is_no_reason_to_hang(black_hole: int, end: Callable[[Connection], None]) -> None:
    probe = Probe(black_hole)
    end(probe.connection)
    probe.next(Disconnected)


@both_protocols
def test_ten_thousand_messages_go_both_ways_and_each_is_acknowledged_once(
    broker: Broker, protocol: Protocol
) -> None:
    probe = Probe(broker.port, protocol=protocol)
    probe.next(Connected)
    payloads = [b"%d" % number for number in range(10_000)]
    mids = [probe.connection.publish("t", payload) for payload in payloads]
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
    again = Probe(broker.port, protocol=protocol)
    again.next(Connected)
    again.close()


@pytest.mark.source("P6")
def test_paho_and_we_understand_each_other(broker: Broker) -> None:
    payloads = [bytes([number]) * 5_000 for number in range(256)]
    probe = Probe(broker.port, subscriptions=("from/paho",))
    probe.next(Connected)
    with TestClient("paho", "127.0.0.1", broker.port) as paho:
        paho.subscribe("to/paho")
        assert paho.publish_all("from/paho", payloads)
        for received in probe.gather(Received, len(payloads)):
            probe.connection.acknowledge(received.mid)
            probe.connection.publish("to/paho", received.payload)
        probe.gather(Acknowledged, len(payloads))
        wait_for(lambda: [payload for _, payload in paho.messages] == payloads)
    probe.close()


@both_protocols
@pytest.mark.parametrize("size", [0, 1, 127, 128, 65_536, 256 * 1024])
def test_a_payload_of_any_size_arrives_whole(broker: Broker, protocol: Protocol, size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    probe = Probe(broker.port, protocol=protocol)
    probe.next(Connected)
    for _ in range(20):
        probe.connection.publish("t", payload)
    assert [each.payload for each in probe.gather(Received, 20)] == [payload] * 20
    probe.close()


@pytest.mark.source("C1")
def test_at_qos_0_it_arrives_and_nothing_is_acknowledged(broker: Broker) -> None:
    probe = Probe(broker.port)
    probe.next(Connected)
    assert probe.connection.publish("t", b"x", qos=0) == 0
    received = probe.next(Received)
    assert (received.mid, received.payload) == (0, b"x")
    probe.close()


def test_more_filters_than_fit_one_subscribe(broker: Broker) -> None:
    topics = tuple(f"t/{number}" for number in range(30))
    probe = Probe(broker.port, subscriptions=topics)
    probe.next(Connected)
    for topic in topics:
        probe.connection.publish(topic, b"x")
    assert {each.topic for each in probe.gather(Received, 30)} == set(topics)
    probe.close()


@pytest.mark.source("P-W6")
def test_mosquittos_window_is_kept_though_we_publish_more_at_once(broker: Broker) -> None:
    # MQTT 5: Mosquitto announces a receive maximum and hangs up on who exceeds it.
    probe = Probe(broker.port, protocol="5", subscriptions=())
    probe.next(Connected)
    mids = [probe.connection.publish("t", b"x") for _ in range(30_000)]
    assert sorted(each.mid for each in probe.gather(Acknowledged, len(mids))) == sorted(mids)
    probe.close()


def test_an_idle_line_stays_up_by_its_pings() -> None:
    with ScriptedBroker() as broker:
        probe = Probe(broker.port, keepalive_s=1, subscriptions=())
        broker.accept()
        broker.received(15)
        broker.send(broker_packets.connack())
        probe.next(Connected)
        for _ in range(2):
            assert broker.received(2) == b"\xc0\x00"
            broker.send(broker_packets.PINGRESP)
        assert broker.received(2) == b"\xc0\x00"
        assert probe.reports.empty()
        assert "no answer to PINGREQ within 1 s" in probe.next(Disconnected).reason


def test_a_broker_that_stopped_is_noticed_though_there_is_much_to_send(broker: Broker) -> None:
    probe = Probe(broker.port, keepalive_s=1, subscriptions=())
    probe.next(Connected)
    os.kill(broker.child.pid or 0, signal.SIGSTOP)
    try:
        for _ in range(200):
            probe.connection.publish("t", bytes(100_000))
        reason = probe.next(Disconnected).reason
        assert "no answer to PINGREQ" in reason or "timed out" in reason
    finally:
        os.kill(broker.child.pid or 0, signal.SIGCONT)


def test_what_the_broker_says_in_parting_is_the_reason() -> None:
    with ScriptedBroker() as broker:
        probe = Probe(broker.port, protocol="5", subscriptions=())
        broker.accept()
        broker.send(broker_packets.connack(5))
        probe.next(Connected)
        broker.send(broker_packets.disconnect(0x8E))
        assert "session taken over; another connection uses client id 'c'" in probe.next(Disconnected).reason


@pytest.mark.source("C10")
def test_after_a_restart_of_the_broker_a_new_connection_stands(broker: Broker) -> None:
    probe = Probe(broker.port)
    probe.next(Connected)
    broker.child.restart()
    assert "lost" in probe.next(Disconnected).reason
    again = Probe(broker.port)
    again.next(Connected)
    again.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "hung up instead of CONNACK"),
        (b"\x20", "hung up instead of CONNACK"),
        (broker_packets.connack() + b"\x90\x03\x00", "hung up instead of SUBACK"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "broke the protocol"),
        (broker_packets.connack() * 2, "CONNACK: a second one"),
        (broker_packets.connack(reason=3), "CONNECT refused: server unavailable"),
        (broker_packets.connack() + b"\x40\xff\xff\xff\x7f", "more than the limit"),
    ],
)
def test_whatever_answers_has_a_reason(answer: bytes, reason: str) -> None:
    with ScriptedBroker() as broker:
        probe = Probe(broker.port)
        broker.accept()
        broker.received(15)
        broker.send(answer)
        broker.hang_up()
        assert reason in probe.next(Disconnected).reason


def test_who_never_answers_is_given_up() -> None:
    with ScriptedBroker() as broker:
        probe = Probe(broker.port, connect_timeout_s=0.2)
        assert "no answer to CONNECT within 0.2 s" in probe.next(Disconnected).reason


@pytest.mark.parametrize("host", ["no-such-host.invalid", "two..dots", "x" * 64, "a\0b"])
def test_a_name_that_is_not_there_is_a_reason(host: str) -> None:
    probe = Probe(1, host=host)
    assert f"cannot connect to {host}:1" in probe.next(Disconnected).reason


def test_an_address_that_swallows_everything_does_not_hide_the_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):  # from here on the kernel drops what comes
            addresses = [full.getsockname(), ("127.0.0.1", broker.port)]
            found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
            probe = Probe(broker.port, connect_timeout_s=1.0)
            probe.next(Connected)
            probe.close()


def test_a_text_that_cannot_be_sent_is_a_reason_too(broker: Broker) -> None:
    probe = Probe(broker.port, client_id="\0")
    assert "U+0000" in probe.next(Disconnected).reason


def test_many_connections_leave_nothing_open(broker: Broker) -> None:
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    for port in [broker.port, free_port()] * 5:
        probe = Probe(port)
        probe.connection.close(SECONDS)
        probe.gather(Disconnected, 1)
        probe.connection.publish("t", b"")
    assert len(list(files.iterdir())) <= before


class Slow:
    """A connection with a share, whose loop takes messages only when a test says so."""

    def __init__(self, port: int, limit_bytes: int, **changes: Any) -> None:
        self.mailbox: Mailbox[Message] = Mailbox()
        self.share = self.mailbox.share(LinkName.LOCAL, limit_bytes)
        endpoint = replace(Endpoint("127.0.0.1", port, "c", False, 30, 10.0, ("t",)), **changes)
        self.connection = Connection(endpoint, LinkName.LOCAL, 7, self.mailbox.put, self.share)
        self.most_bytes = 0
        put = self.share.put

        def measure(messages: Iterable[Received]) -> None:
            put(messages)
            self.most_bytes = max(self.most_bytes, self.share.waiting_bytes)

        self.share.put = measure  # type: ignore[method-assign]

    def batches(self) -> Iterator[list[Message]]:
        while True:
            batch = self.mailbox.wait(SECONDS)
            assert batch, "nothing came"
            yield batch
            self.connection.acknowledge(*(each.mid for each in batch if isinstance(each, Received)))

    def receive(self, count: int) -> list[Received]:
        """Take and acknowledge `count` messages."""
        found: list[Received] = []
        for batch in self.batches():
            assert not any(isinstance(each, Disconnected) for each in batch), batch
            found += [each for each in batch if isinstance(each, Received)]
            if len(found) >= count:
                return found
        return found


def left_waiting(broker: Broker, payloads: list[bytes]) -> None:
    """Payloads that wait in the broker for the lasting session of client `c`."""
    probe = Probe(broker.port)
    probe.next(Connected)
    probe.close()
    with TestClient("sender", "127.0.0.1", broker.port) as sender:
        assert sender.publish_all("t", payloads)


@pytest.mark.source("P6")
@both_protocols
def test_a_backlog_stays_in_the_broker_while_the_share_is_full(broker: Broker, protocol: Protocol) -> None:
    payloads = [b"%5d" % number + bytes(20_000) for number in range(1_000)]
    left_waiting(broker, payloads)
    slow = Slow(broker.port, 200_000, protocol=protocol)
    wait_for(lambda: slow.share.pauses == 1)
    received = slow.receive(len(payloads))
    assert [each.payload for each in received] == payloads
    # A share, and what one piece of the socket adds to it.
    assert 200_000 <= slow.most_bytes <= 200_000 + 65_536 + 21_000
    slow.connection.close(SECONDS)


def test_a_backlog_before_suback_does_not_end_the_connection() -> None:
    # Mosquitto sends SUBACK after its whole backlog, which can take longer than an answer may.
    with ScriptedBroker() as broker:
        probe = Probe(broker.port, connect_timeout_s=0.2)
        broker.accept()
        broker.send(broker_packets.connack(present=True))
        until = monotonic() + 1.0
        broker.send(broker_packets.publish(b"t", b"", 1))
        probe.next(Connected)
        while monotonic() < until:
            probe.connection.acknowledge(probe.next(Received).mid)
            broker.send(broker_packets.publish(b"t", b"", 1))
        broker.send(broker_packets.suback(1, b"\1"))
        probe.next(Received)
        probe.connection.abandon()
        assert probe.next(Disconnected).reason == "abandoned"


def test_mosquittos_suback_may_come_after_a_backlog_that_takes_longer_than_an_answer(broker: Broker) -> None:
    first = Probe(broker.port)
    first.next(Connected)
    first.close()
    sender = Probe(broker.port, client_id="sender", subscriptions=())
    sender.next(Connected)
    mids = [sender.connection.publish("t", bytes(4_000)) for _ in range(15_000)]
    sender.gather(Acknowledged, len(mids))
    sender.close()
    probe = Probe(broker.port, connect_timeout_s=0.5)
    probe.next(Connected)
    for _ in mids:
        # Each takes its time, as the loop does: all of them take longer than the timeout.
        probe.connection.acknowledge(probe.next(Received).mid)
    probe.close()


def test_while_the_share_is_full_pings_go_out_and_the_broker_is_not_presumed_dead() -> None:
    with ScriptedBroker() as broker:
        slow = Slow(broker.port, 10_000, keepalive_s=1, subscriptions=())
        broker.accept()
        broker.received(15)
        broker.send(broker_packets.connack())
        assert isinstance(slow.mailbox.wait(SECONDS)[0], Connected)
        broker.send(b"".join(broker_packets.publish(b"t", bytes(1_000), n) for n in range(1, 301)))
        for _ in range(4):  # none is answered
            assert broker.received(2) == b"\xc0\x00"
        assert slow.share.pauses == 1
        first = slow.mailbox.wait(0)
        assert isinstance(first[0], Received)
        slow.connection.acknowledge(first[0].mid)
        assert broker.received(4) == broker_packets.puback(1)
        slow.receive(300 - len(first))
        slow.connection.abandon()


def test_a_qos_0_flood_delays_no_qos_1_message(broker: Broker) -> None:
    slow = Slow(broker.port, 40_000)
    assert isinstance(slow.mailbox.wait(SECONDS)[0], Connected)
    flood = Probe(broker.port, client_id="flood", subscriptions=())
    flood.next(Connected)
    for _ in range(2_000):
        flood.connection.publish("t", bytes(1_000), qos=0)
    flood.connection.publish("t", b"alarm")
    # Nobody takes anything from the mailbox, and still it arrives.
    wait_for(lambda: slow.share.waiting > 0 and slow.share._messages[-1].payload == b"alarm")
    assert slow.share.pauses == 0
    assert slow.share.waiting_bytes <= 20_000 + 2 * 1_300
    assert slow.share.dropped + slow.share.waiting == 2_001
    flood.close()
    slow.connection.close(SECONDS)


def test_what_came_before_the_line_broke_is_received_though_the_share_was_full() -> None:
    def messages(*numbers: int) -> bytes:
        return b"".join(broker_packets.publish(b"t", b"%2d" % n + bytes(1_000), n) for n in numbers)

    with ScriptedBroker() as broker:
        slow = Slow(broker.port, 10_000, clean_session=True, subscriptions=())
        broker.accept()
        broker.send(broker_packets.connack() + messages(*range(1, 16)))
        wait_for(lambda: slow.share.room == 0)
        broker.send(messages(16))
        wait_for(lambda: slow.share.pauses > 0)
        broker.send(messages(*range(17, 51)))
        wait_for(broker.has_delivered)
        broker.hang_up()
        # It cannot send, and finds out before it has read everything.
        slow.connection.publish("t", bytes(1_000_000))
        seen: list[Message] = []
        while not any(isinstance(each, Disconnected) for each in seen):
            seen += slow.mailbox.wait(SECONDS)
        seen += slow.mailbox.wait(0)
    assert [int(each.payload[:2]) for each in seen if isinstance(each, Received)] == list(range(1, 51))


def test_while_it_gathers_it_sends_at_once_and_may_be_abandoned() -> None:
    with ScriptedBroker() as broker:
        slow = Slow(broker.port, 100_000, clean_session=True, subscriptions=())
        broker.accept()
        broker.received(15)
        broker.send(broker_packets.connack())
        assert isinstance(slow.mailbox.wait(SECONDS)[0], Connected)
        slow.share.gathers(4 * SECONDS)
        slow.share.gathers = lambda _: None  # type: ignore[method-assign]
        broker.send(broker_packets.publish(b"t", b"", 1))
        assert len(slow.mailbox.wait(SECONDS)) == 1
        broker.send(broker_packets.publish(b"t", b"", 2))
        slow.connection.acknowledge(1)
        assert broker.received(4) == broker_packets.puback(1)
        assert slow.mailbox.wait(0) == []
        slow.connection.abandon()
        assert isinstance(slow.mailbox.wait(SECONDS)[0], Disconnected)
