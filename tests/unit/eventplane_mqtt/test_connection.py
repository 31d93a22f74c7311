"""One connection over a real socket to a broker that does only what a test tells it to."""

import fcntl
import re
import socket
import ssl
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from eventplane_mqtt import Connection
from eventplane_mqtt.link import Sending
from eventplane_mqtt.mailbox import Connected, Disconnected, Message, Received
from lab.certificates import Authority, DeviceIdentity
from tests.eventually import eventually
from tests.unit.eventplane_mqtt import broker_packets
from tests.unit.eventplane_mqtt.probe import ENDPOINT, SECONDS, Probe, Slow, files

CONNECT_BYTES = 15


class ScriptedBroker:
    """Listens on 127.0.0.1:`port`; `accept` a connection, then `send` to it and see what was `received`."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(SECONDS)
        self.port: int = self._server.getsockname()[1]
        self._peer: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self.hang_up()

    def accept(self) -> None:
        self._peer, _ = self._server.accept()
        self._peer.settimeout(SECONDS)

    def send(self, data: bytes) -> None:
        self._peer.sendall(data)

    def received(self, count: int) -> bytes:
        """The next `count` bytes; fewer at the end of the stream."""
        assert self._peer is not None
        data = b""
        while len(data) < count and (more := self._peer.recv(count - len(data))):
            data += more
        return data

    def has_delivered(self) -> bool:
        """Whether all that was sent is at the other side's kernel; `hang_up` may throw away the rest."""
        assert self._peer is not None
        return not any(fcntl.ioctl(self._peer, termios.TIOCOUTQ, bytes(4)))

    def hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as it:
        yield it


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port where connections are accepted and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def slow_connection(broker: ScriptedBroker, limit_bytes: int, host: str = ENDPOINT.host) -> Slow:
    """One that is up at `broker`, without subscriptions."""
    slow = Slow(broker.port, limit_bytes, host=host, clean_session=True, subscriptions=())
    broker.accept()
    broker.received(CONNECT_BYTES)
    broker.send(broker_packets.connack())
    assert isinstance(slow.mailbox.wait(SECONDS)[0], Connected)
    return slow


def test_leaving_bytes_give_time(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", broker.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
    connection, seen = slow_connection(broker, 1 << 20, "hub.home").connection, list[int]()
    monkeypatch.setattr(connection._session, "progressed", lambda left, _: seen.append(left))
    assert eventually(lambda: connection.publish("t", b"") and seen)


def test_what_the_kernel_holds_has_not_left_and_leaves_as_the_broker_takes_it(broker: ScriptedBroker) -> None:
    connection = slow_connection(broker, 1 << 20).connection
    session = connection._session

    def stuck_with(payload: bytes) -> Sending:
        assert connection.publish("t", payload)
        assert eventually(lambda: not (session.queued_bytes - session.taken_bytes or connection._unsent))
        return connection.sending(1.0)

    stuck = stuck_with(bytes(1 << 19))
    assert stuck.left < connection.queued_bytes
    # What only queues behind it is no sign that the line is alive.
    later = stuck_with(b"an alarm")
    assert later.left > stuck.left or later.moved_at == stuck.moved_at
    assert broker.received(1 << 19)
    assert eventually(lambda: connection.sending(2.0).left > stuck.left, SECONDS)
    assert connection.sending(3.0).moved_at > 1.0
    broker.received(connection.queued_bytes - CONNECT_BYTES - (1 << 19))
    assert eventually(lambda: connection.sending(4.0).left == connection.queued_bytes, SECONDS)
    connection.abandon()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"\x20", "hung up instead of CONNACK"), (broker_packets.connack(reason=3), "CONNECT refused")],
)
def test_the_end_is_reported_once(broker: ScriptedBroker, answer: bytes, reason: str) -> None:
    probe = Probe(broker.port)
    broker.accept()
    broker.received(CONNECT_BYTES)
    broker.send(answer)
    broker.hang_up()
    assert reason in probe.next(Disconnected).reason
    assert probe.connection.publish("t", b"too late") == 0
    probe.connection.acknowledge(1)
    probe.connection.close(SECONDS)
    probe.connection.abandon()
    assert probe.reports.empty()


@pytest.mark.parametrize("host", ["127.0.0.1", "two..dots", "a\0b", "x" * 64])
def test_a_host_that_cannot_be_reached_is_named(host: str) -> None:
    assert f"cannot connect to {host}:1" in Probe(1, host=host).next(Disconnected).reason


def test_a_connect_that_cannot_be_sent_ends_the_connection(black_hole: int) -> None:
    assert "U+0000" in Probe(black_hole, client_id="\0").next(Disconnected).reason


@pytest.mark.parametrize("end", [Connection.abandon, lambda connection: connection.close(0.1)])
def test_an_unanswered_connection_can_end(black_hole: int, end: Callable[[Connection], None]) -> None:
    probe = Probe(black_hole)
    end(probe.connection)
    probe.next(Disconnected)


def test_a_silent_address_hides_no_other(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):  # from here on the kernel drops what comes
            addresses = [full.getsockname(), ("127.0.0.1", broker.port)]
            found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
            probe = Probe(broker.port, connect_timeout_s=0.5)
            broker.accept()
            probe.connection.abandon()


def test_a_full_share_sends_pings(broker: ScriptedBroker) -> None:
    slow = slow_connection(broker, 10_000)
    slow.connection._session._keepalive.interval_s = 0.05  # on the wire it is in whole seconds
    broker.send(b"".join(broker_packets.publish(b"t", bytes(1_000), n) for n in range(1, 301)))
    for _ in range(3):  # none is answered
        assert broker.received(2) == b"\xc0\x00"
    assert slow.share.pauses == 1
    first = slow.mailbox.wait(0)
    assert isinstance(first[0], Received)
    slow.connection.acknowledge(first[0].mid)
    assert broker.received(4) == broker_packets.puback(1)
    slow.receive(300 - len(first))
    slow.connection.abandon()


def test_a_break_loses_nothing_received(broker: ScriptedBroker) -> None:
    def messages(*numbers: int) -> bytes:
        return b"".join(broker_packets.publish(b"t", b"%2d" % n + bytes(1_000), n) for n in numbers)

    slow = slow_connection(broker, 10_000)
    broker.send(messages(*range(1, 16)))
    assert eventually(lambda: slow.share.room == 0, SECONDS)
    broker.send(messages(16))
    assert eventually(lambda: slow.share.pauses > 0, SECONDS)
    broker.send(messages(*range(17, 51)))
    assert eventually(broker.has_delivered, SECONDS)
    broker.hang_up()
    # It cannot send, and finds out before it has read everything.
    slow.connection.publish("t", bytes(1_000_000))
    seen: list[Message] = []
    while not any(isinstance(each, Disconnected) for each in seen):
        seen += slow.mailbox.wait(SECONDS)
    seen += slow.mailbox.wait(0)
    assert [int(each.payload[:2]) for each in seen if isinstance(each, Received)] == list(range(1, 51))


def test_while_it_gathers_it_sends_at_once_and_may_be_abandoned(broker: ScriptedBroker) -> None:
    slow = slow_connection(broker, 100_000)
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


class TlsServer:
    """Asks for a certificate of the authority `trusted`, shakes hands once, and hangs up."""

    def __init__(self, server: DeviceIdentity, trusted: Path, most: ssl.TLSVersion) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(server.certificate, server.key)
        self._context.load_verify_locations(trusted)
        self._context.verify_mode, self._context.maximum_version = ssl.CERT_REQUIRED, most
        self._context.set_alpn_protocols(["http/1.1", "x-amzn-mqtt-ca"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self.agreed: list[str | None] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with (
            self._listener,
            suppress(OSError),
            self._listener.accept()[0] as peer,
            self._context.wrap_socket(peer, server_side=True) as wrapped,
        ):
            self.agreed.append(wrapped.selected_alpn_protocol())

    def end_of(self, probe: Probe) -> str:
        """Why a connection to it ended."""
        reason = probe.next(Disconnected).reason
        self._thread.join(SECONDS)
        return reason


STRANGERS, EXPIRED, EARLY = {"by": "strangers"}, {"age": timedelta(days=61)}, {"age": timedelta(days=-1)}


@pytest.mark.parametrize("most", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("server", "device", "host", "reason"),
    [
        (STRANGERS, {}, "127.0.0.1", "VERIFY_FAILED.*see that ca is the authority of this server"),
        (EXPIRED, {}, "127.0.0.1", "has expired.*see that the device's clock is right"),
        (EARLY, {}, "127.0.0.1", "not yet valid.*see that the device's clock is right"),
        ({}, {}, "localhost", "Hostname mismatch"),
        ({}, STRANGERS, "127.0.0.1", "unknown ca.*see that the device's certificate is registered"),
        ({}, EXPIRED, "127.0.0.1", "reports the device's certificate as expired: renew it"),
    ],
    ids=[
        "a server of another authority",
        "an expired server",
        "a server of the future",
        "a server of another name",
        "a device of another authority",
        "an expired device",
    ],
)
def test_a_failed_handshake_names_its_remedy(
    authority: Authority,
    tmp_path: Path,
    most: ssl.TLSVersion,
    server: dict[str, Any],
    device: dict[str, Any],
    host: str,
    reason: str,
) -> None:
    def issue(name: str, *, by: str = "", age: timedelta = timedelta()) -> DeviceIdentity:
        return (Authority(tmp_path / by) if by else authority).issue(name, age)

    it = TlsServer(issue("server", **server), authority.ca, most)
    tls = files(authority, issue("c", **device))
    ended = it.end_of(Probe(it.address[1], host=host, tls=tls))
    assert re.search(reason, ended), ended


def test_a_port_without_tls_is_named(authority: Authority, broker: ScriptedBroker) -> None:
    probe = Probe(broker.port, tls=files(authority, authority.issue("c")))
    broker.accept()
    broker.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "see that the port is one with TLS" in probe.next(Disconnected).reason


def test_a_handshake_that_nobody_answers_is_given_up(authority: Authority, black_hole: int) -> None:
    probe = Probe(black_hole, connect_timeout_s=0.1, tls=files(authority, authority.issue("c")))
    assert "the handshake of TLS got no answer in time" in probe.next(Disconnected).reason
