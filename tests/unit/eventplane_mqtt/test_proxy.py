"""The way through an HTTP proxy, to a broker and to a refusal."""

import logging
import os
import ssl
from base64 import b64encode
from pathlib import Path

import pytest

from edge.command_line import main
from eventplane_mqtt import Login
from eventplane_mqtt.endpoint import Proxy
from eventplane_mqtt.mailbox import Disconnected
from eventplane_mqtt.proxy import MOST_ANSWER_BYTES
from lab.certificates import Authority
from tests.endpoint import EndpointServer, Play, answer, drips, says, silence, tunnel
from tests.unit.edge.fakes import contract
from tests.unit.eventplane_mqtt.probe import Probe, files
from tests.unit.eventplane_mqtt.test_connection import TlsServer

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
