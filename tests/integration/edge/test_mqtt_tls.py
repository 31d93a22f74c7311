"""Mutual TLS against a real broker, and everything that can be wrong with it."""

from __future__ import annotations

import getpass
import shutil
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from edge.provisioning.renewal import Identity
from eventplane_mqtt import TlsFiles
from eventplane_mqtt.endpoint import TlsFileError
from eventplane_mqtt.mailbox import Acknowledged, Connected, Disconnected, Received
from local.certificates import Authority
from local.ports import free_port, is_listening
from local.process import Child, Supervisor
from tests.integration.edge.conftest import SECONDS
from tests.integration.edge.probe import Probe


class TlsBroker:
    """A Mosquitto that asks for client certificates and shows the `server` certificate."""

    def __init__(
        self, supervisor: Supervisor, directory: Path, ca: Path, server: Identity, extra: str = ""
    ) -> None:
        self.port = free_port()
        configuration = directory / "tls.conf"
        configuration.write_text(
            f"user {getpass.getuser()}\nallow_anonymous true\nmax_inflight_messages 20000\n"
            f"max_queued_messages 100000\nlistener {self.port} 127.0.0.1\ncafile {ca}\n"
            f"certfile {server.certificate}\nkeyfile {server.key}\nrequire_certificate true\n{extra}"
        )
        program = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "mosquitto"
        self.child: Child = supervisor.start(
            "tls", [program, "-c", str(configuration)], ready=lambda: is_listening(self.port)
        )


@pytest.fixture
def start(supervisor: Supervisor, tmp_path: Path, authority: Authority) -> Callable[..., TlsBroker]:
    """Starts the broker, with a server certificate of the test's authority unless another is given."""

    def start(server: Identity | None = None, extra: str = "") -> TlsBroker:
        return TlsBroker(supervisor, tmp_path, authority.ca, server or authority.issue("server"), extra)

    return start


def files(authority: Authority, identity: Identity) -> TlsFiles:
    return TlsFiles(authority.ca, identity.certificate, identity.key)


@pytest.mark.parametrize("extra", ["", "tls_version tlsv1.2\n"])
def test_ten_thousand_messages_and_large_ones_pass_both_ways(
    start: Callable[..., TlsBroker], authority: Authority, extra: str
) -> None:
    probe = Probe(start(extra=extra).port, tls=files(authority, authority.issue("c")))
    probe.next(Connected)
    payloads = [b"%d" % number for number in range(10_000)] + [bytes([n]) * 250_000 for n in range(40)]
    mids = [probe.connection.publish("t", payload) for payload in payloads]
    received: list[bytes] = []
    acknowledged: list[int] = []
    while len(received) < len(payloads) or len(acknowledged) < len(mids):
        report = probe.reports.get(timeout=SECONDS)
        if isinstance(report, Received):
            received.append(report.payload)
            probe.connection.acknowledge(report.mid)
        elif isinstance(report, Acknowledged):
            acknowledged.append(report.mid)
    assert received == payloads
    assert sorted(acknowledged) == sorted(mids)
    probe.close()


def test_a_broker_that_is_killed_is_a_lost_connection(
    start: Callable[..., TlsBroker], authority: Authority
) -> None:
    broker = start()
    probe = Probe(broker.port, tls=files(authority, authority.issue("c")))
    probe.next(Connected)
    broker.child.kill()
    assert "connection lost" in probe.next(Disconnected).reason


@pytest.mark.parametrize("extra", ["", "tls_version tlsv1.2\n"])
def test_a_device_that_the_broker_does_not_trust_reads_why(
    start: Callable[..., TlsBroker], authority: Authority, tmp_path: Path, extra: str
) -> None:
    stranger = Authority(tmp_path / "strangers").issue("c")
    probe = Probe(start(extra=extra).port, tls=files(authority, stranger))
    reason = probe.next(Disconnected).reason
    assert "unknown ca" in reason
    assert "see that the device's certificate is registered" in reason


def test_a_device_whose_certificate_has_expired_reads_it(
    start: Callable[..., TlsBroker], authority: Authority
) -> None:
    expired = authority.issue("c", age=timedelta(days=61))
    probe = Probe(start().port, tls=files(authority, expired))
    assert "the device's certificate as expired: renew it" in probe.next(Disconnected).reason


def test_a_broker_that_the_device_does_not_trust_is_refused(
    start: Callable[..., TlsBroker], authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "strangers").issue("server")
    probe = Probe(start(stranger).port, tls=files(authority, authority.issue("c")))
    reason = probe.next(Disconnected).reason
    assert "CERTIFICATE_VERIFY_FAILED" in reason
    assert "see that ca is the authority of this server" in reason


@pytest.mark.parametrize(
    ("age", "problem"),
    [(timedelta(days=61), "has expired"), (timedelta(days=-1), "not yet valid")],
)
def test_a_broker_whose_certificate_is_out_of_its_time_points_to_the_clock(
    start: Callable[..., TlsBroker], authority: Authority, age: timedelta, problem: str
) -> None:
    probe = Probe(start(authority.issue("server", age=age)).port, tls=files(authority, authority.issue("c")))
    reason = probe.next(Disconnected).reason
    assert problem in reason
    assert "see that the device's clock is right" in reason


def test_a_broker_of_another_name_is_refused(start: Callable[..., TlsBroker], authority: Authority) -> None:
    probe = Probe(start().port, host="localhost", tls=files(authority, authority.issue("c")))
    assert "Hostname mismatch" in probe.next(Disconnected).reason


def test_a_port_without_tls_is_named(mosquitto: Callable[[str], Any], authority: Authority) -> None:
    probe = Probe(mosquitto("home").port, tls=files(authority, authority.issue("c")))
    assert "cannot connect" in probe.next(Disconnected).reason


def test_a_handshake_that_nobody_answers_is_given_up(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        probe = Probe(
            hole.getsockname()[1], connect_timeout_s=0.2, tls=files(authority, authority.issue("c"))
        )
        assert "no answer in time" in probe.next(Disconnected).reason


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(authority: Authority, mode: int) -> None:
    identity = authority.issue("c")
    identity.key.chmod(mode)
    with pytest.raises(TlsFileError) as error:
        files(authority, identity).context()
    assert error.value.path == identity.key
    assert error.value.remedy == f"chmod 600 {identity.key}"
    probe = Probe(1, tls=files(authority, identity))
    assert f"chmod 600 {identity.key}" in probe.next(Disconnected).reason


def test_each_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    good = files(authority, authority.issue("c"))
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.touch(0o600)
    garbage.write_text("-----BEGIN GARBAGE-----\n")
    other = authority.issue("other").key
    cases: list[tuple[dict[str, Path], Path]] = [
        *(({name: bad}, bad) for name in ("ca", "key") for bad in (missing, garbage)),
        ({"certificate": missing}, missing),
        ({"certificate": garbage}, garbage),
        ({"key": other}, other),
    ]
    for change, named in cases:
        with pytest.raises(TlsFileError) as error:
            replace(good, **change).context()
        assert str(named) in str(error.value)
        assert error.value.remedy


def test_only_the_given_authority_is_trusted(authority: Authority) -> None:
    context = files(authority, authority.issue("c")).context()
    assert context.cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 1}
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_on_the_port_of_https_it_asks_for_mqtt_by_name(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.set_alpn_protocols(["http/1.1", "x-amzn-mqtt-ca"])
    agreed: list[str | None] = []

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as peer, context.wrap_socket(peer, server_side=True) as wrapped:
            agreed.append(wrapped.selected_alpn_protocol())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", listener.getsockname())]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        probe = Probe(443, tls=files(authority, authority.issue("c")))
        thread.join(SECONDS)
        probe.next(Disconnected)
    assert agreed == ["x-amzn-mqtt-ca"]
