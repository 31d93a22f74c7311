"""A connection, also through a proxy."""

import fcntl
import logging
import os
import re
import socket
import ssl
import termios
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from edge.command_line import main
from eventplane_mqtt import Connection, Login
from eventplane_mqtt.endpoint import Proxy
from eventplane_mqtt.mailbox import Connected, Disconnected, Message, Received
from eventplane_mqtt.proxy import MOST_ANSWER_BYTES
from eventplane_mqtt.reconnection import Sending
from lab.things import Authority, DeviceIdentity
from tests.endpoint import EndpointServer, Play, answer, drips, says, silence, tunnel
from tests.eventually import eventually
from tests.unit.edge.fakes import contract
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


SECRET = "pass:wörd"
ASKED = answer(407, proxy_authenticate='Digest realm="d", Basic realm="hospital"')


@pytest.fixture
def login(tmp_path: Path) -> Login:
    file = tmp_path / "password"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    return Login("ward 3", file)


def refusal(play: Play, login: Login | None = None, host: str = "cloud.example") -> str:
    """Why the connection through a proxy that does `play` ended."""
    with EndpointServer(play) as server:
        proxy = Proxy("127.0.0.1", server.port, login)
        reason = Probe(8883, host=host, proxy=proxy, connect_timeout_s=0.3).next(Disconnected).reason
        assert f"by the proxy 127.0.0.1:{server.port}: " in reason, reason
        return reason


@pytest.mark.parametrize(("port", "protocol"), [(8883, None), (443, "x-amzn-mqtt-ca")])
@pytest.mark.parametrize("has_login", [False, True])
def test_tls_goes_through_the_tunnel(
    authority: Authority, login: Login, port: int, protocol: str | None, has_login: bool
) -> None:
    broker = TlsServer(authority.issue("server"), authority.ca, ssl.TLSVersion.TLSv1_3)
    with EndpointServer(tunnel(broker.address[1])) as server:
        proxy = Proxy("localhost", server.port, login if has_login else None)
        tls = files(authority, authority.issue("c"))
        broker.end_of(Probe(port, proxy=proxy, tls=tls))
        (asked,) = server.received
    assert broker.agreed == [protocol]
    assert (asked.method, asked.target) == ("CONNECT", f"127.0.0.1:{port}")
    given = f"Basic {b64encode(f'ward 3:{SECRET}'.encode()).decode()}" if has_login else None
    assert asked.headers == {"host": asked.target, **({"proxy-authorization": given} if given else {})}


@pytest.mark.parametrize(
    ("host", "asked"),
    [("2001:db8::1", "[2001:db8::1]:8883"), ("bröker.example", "xn--brker-kua.example:8883")],
)
def test_each_kind_of_host_is_asked_for_in_its_form(host: str, asked: str) -> None:
    with EndpointServer(answer(403)) as server:
        Probe(8883, host=host, proxy=Proxy("127.0.0.1", server.port)).next(Disconnected)
        assert [each.target for each in server.received] == [asked]


@pytest.mark.parametrize(
    ("play", "has_login", "reason"),
    [
        (ASKED, False, "it asks for a user name and password (407); set them"),
        (ASKED, True, "does not accept our user name and password (407); see that it knows them"),
        (answer(407), True, "does not accept our user name and password (407)"),
        (answer(407, proxy_authenticate="NTLM"), True, "it asks for NTLM (407); have it accept Basic"),
        (answer(403, b"<html>" * 10_000), False, "it does not allow that (403); have it allow CONNECT"),
        (answer(502), False, "it cannot connect (502); see that this is the right host"),
        (answer(503), False, "(503); see whether the proxy is overloaded"),
        (answer(504), False, "it gets no answer from there (504)"),
        (answer(302, location="http://login.example"), False, "status 302; see that host and port are those"),
        (says(b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 403 No\r\n\r\n"), False, "(403)"),
        (says(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000), False, f"more than {MOST_ANSWER_BYTES} bytes"),
        (says(b"HTTP/1.1 200 OK\r\nx: " + b"x" * MOST_ANSWER_BYTES), False, "head of its answer has more"),
        (says(b"HTTP/1.1 200 OK\r\n\r\n\x20\x02\0\0"), False, "bytes that are not the broker's"),
        (says(b"SSH-2.0-OpenSSH\r\n\r\n"), False, "its answer is not HTTP"),
        (says(b"HTTP/1.1 2000 OK\r\n\r\n"), False, "its answer is not HTTP"),
        (says(b"HTTP/1.1 \x1b[2J OK\r\n\r\n"), False, "its answer is not HTTP"),
        (says(), False, "it hung up instead of an answer"),
        (silence, False, "it gave no answer in time"),
        (drips, False, "it gave no answer in time"),
    ],
)
def test_a_proxy_that_does_not_connect_is_named_with_the_remedy(
    play: Play, has_login: bool, reason: str, login: Login, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = refusal(play, login if has_login else None)
    assert reason in said
    assert said.isprintable()
    assert SECRET not in said + caplog.text


@pytest.mark.parametrize("host", ["two..dots", "a\r\nX-Header: y", "a b", "x" * 64])
def test_a_host_that_is_none_does_not_reach_the_proxy(host: str) -> None:
    with EndpointServer() as server:
        reason = Probe(8883, host=host, proxy=Proxy("127.0.0.1", server.port)).next(Disconnected).reason
        assert "is no host name" in reason
        assert not server.received


@pytest.mark.parametrize(
    ("play", "warning"),
    [(ASKED, "(407); set them"), (None, "Connection refused; see that its host"), (tunnel, "")],
)
def test_check_tells_what_the_proxy_says(
    tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str], play: Play | None, warning: str
) -> None:
    (tmp_path / "contract.json").write_bytes(contract().canonical)
    identity, file = authority.issue("home-1"), tmp_path / "edge.toml"
    with (
        EndpointServer() as broker,
        EndpointServer(tunnel(broker.port) if play is tunnel else play or ASKED) as it,
    ):
        file.write_text(
            'thing = "home-1"\ncontract = "contract.json"\nspool = "spool.db"\n'
            '[cloud]\nhost = "cloud.example"\n'
            f'rule = "r"\nca = "{authority.ca}"\ncertificate = "{identity.certificate}"\n'
            f'key = "{identity.key}"\n'
            f'proxy_host = "127.0.0.1"\nproxy_port = {it.port if play else 1}\n'
        )
        assert main(["check", "--settings", str(file)]) == os.EX_OK
    said = capsys.readouterr().out
    assert ("no connection with cloud.example:8883 by the proxy" in said) == bool(warning)
    assert warning in said
