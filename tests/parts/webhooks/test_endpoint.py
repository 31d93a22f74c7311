"""The HTTP connection to endpoints that work or fail, and the request for an endpoint's consent."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from eventplane.sinks import ANYWHERE, SinkReach, SinkScope
from lab.network import free_port
from lab.things import Authority
from lambdas.common.system import system_clock
from parts.provisioning.renewal import Pairs
from parts.webhooks.__main__ import main
from parts.webhooks.endpoint import (
    MAX_BODY_BYTES,
    MAX_IDLE_MS,
    EndpointResponse,
    ForbiddenTargetError,
    HttpSink,
    UnreachableError,
)
from tests.endpoint import EndpointServer, Play, answer, drips, says, silence

BODY = b'{"a":1}'
# The short one is for tests that wait for it.
SHORT_S = 0.3
LONG_S = 20.0


def endpoint_at(url: str, **options: Any) -> HttpSink:
    """The endpoint at `url`, which may be anywhere, unless `options` say otherwise."""
    return HttpSink(url, **{"timeout_s": LONG_S, "clock": system_clock, "reach": ANYWHERE, **options})


@contextmanager
def talking(*plays: Play, **options: Any) -> Iterator[tuple[EndpointServer, HttpSink]]:
    with EndpointServer(*plays) as server, closing(endpoint_at(server.url(), **options)) as endpoint:
        yield server, endpoint


def post(endpoint: HttpSink) -> EndpointResponse:
    return endpoint.send("POST", {"content-type": "text/plain"}, BODY)


def with_interim_answers(line: socket.socket, end: threading.Event) -> bool:
    """Three interim answers, the last alone in its packet, then the final one."""
    line.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
    line.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
    return answer(202, b"thank\nyou", x_trace="7")(line, end)


@pytest.mark.parametrize("play", [answer(202, b"thank\nyou", x_trace="7"), with_interim_answers])
def test_a_request_is_sent_whole_and_its_answer_returned(play: Play) -> None:
    with talking(play) as (server, endpoint):
        told = post(endpoint)
        assert post(endpoint).status == 204
    request, _ = server.received
    assert (request.method, request.target, request.body) == ("POST", "/events?site=7", BODY)
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert (told.status, told.phrase, told.excerpt) == (202, "Words", "thank you")
    assert told.headers == {"x-trace": "7", "content-length": "9"}
    assert server.connections == 1


def answers_and_closes(line: socket.socket, _end: object) -> bool:
    line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    return False


@pytest.mark.parametrize(
    ("play", "status", "connections"),
    [
        (answer(204), 204, 1),
        (answer(500, b"x" * 1_000), 500, 1),
        (answers_and_closes, 200, 2),
        (says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), 200, 2),
        # The status counts although the body is incomplete.
        (says(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"), 200, 2),
        (says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\nhalf"), 200, 2),
        (says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n"), 200, 2),
        (says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nabc\r\n"), 200, 2),
    ],
    ids=["empty", "error", "closed", "chunked", "half a body", "half a chunk", "no chunk", "below zero"],
)
def test_a_connection_is_used_again(play: Play, status: int, connections: int) -> None:
    with talking(play, answer(201)) as (server, endpoint):
        assert [post(endpoint).status, post(endpoint).status] == [status, 201]
        assert server.connections == connections


def test_a_connection_that_was_idle_for_long_is_replaced() -> None:
    now_ms = 0
    with talking(clock=lambda: now_ms) as (server, endpoint):
        post(endpoint)
        now_ms += MAX_IDLE_MS
        post(endpoint)
        assert server.connections == 1
        now_ms += MAX_IDLE_MS + 1
        post(endpoint)
        assert server.connections == 2


def heralds_for_ever(line: socket.socket, end: threading.Event) -> bool:
    while not end.wait(0.05):
        line.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
    return False


@pytest.mark.parametrize("play", [silence, drips, heralds_for_ever])
def test_an_attempt_ends_in_time_when_the_endpoint_is_slow(play: Play) -> None:
    with talking(play, timeout_s=SHORT_S) as (server, endpoint):
        with pytest.raises(UnreachableError, match=r"no answer within 0\.3 s"):
            post(endpoint)
        # The late connection is closed: its answer would be taken for the next one's.
        assert post(endpoint).status == 204
        assert server.connections == 2


def test_a_silent_kept_connection_gets_no_second_timeout() -> None:
    with talking(answer(204), silence, timeout_s=SHORT_S) as (server, endpoint):
        post(endpoint)
        with pytest.raises(UnreachableError, match="no answer within"):
            post(endpoint)
        assert len(server.received) == 2


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\ncontent-le", b"SSH-2.0-OpenSSH\r\n", b"\x00\x01\r\n\r\n"],
)
def test_an_incomplete_answer_is_a_failure(said: bytes) -> None:
    with talking(says(said)) as (_, endpoint), pytest.raises(UnreachableError):
        post(endpoint)


def test_an_endless_body_is_read_in_part() -> None:
    sent = 0

    def floods(line: socket.socket, _end: object) -> bool:
        nonlocal sent
        line.sendall(b"HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:  # until the other side closes
            line.sendall(b"1000\r\n" + b"x" * 4_096 + b"\r\n")
            sent += 4_096

    with talking(floods) as (server, endpoint):
        told = post(endpoint)
        assert (told.status, told.excerpt) == (400, "x" * 200)
        assert post(endpoint).status == 204
        assert server.connections == 2
    assert sent >= MAX_BODY_BYTES


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def server_side(identity: Pairs) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


def test_tls_with_a_trusted_certificate_keeps_its_connection(authority: Authority) -> None:
    with EndpointServer(tls=server_side(authority.issue("good"))) as server:
        tls = ssl.create_default_context(cafile=str(authority.ca))
        with closing(endpoint_at(server.url(), tls=tls)) as endpoint:
            assert post(endpoint).status == 204
            assert post(endpoint).status == 204
            assert server.connections == 1
    assert server.received[0].body == BODY


@pytest.mark.parametrize(
    ("name", "believes", "host", "said"),
    [
        ("stranger", False, "127.0.0.1", "not believed: unable to get local issuer"),
        ("other", True, "localhost", "not believed: Hostname mismatch"),
        ("old", True, "127.0.0.1", "certificate has expired"),
    ],
)
def test_a_wrong_certificate(authority: Authority, name: str, believes: bool, host: str, said: str) -> None:
    identity = authority.issue(name, age=timedelta(days=90 if name == "old" else 0))
    with EndpointServer(tls=server_side(identity)) as server:
        endpoint = endpoint_at(
            server.url(host), tls=ssl.create_default_context(cafile=str(authority.ca)) if believes else None
        )
        with pytest.raises(UnreachableError, match=said):
            post(endpoint)
        assert not server.received


def test_a_handshake_ends_in_time(authority: Authority) -> None:
    with EndpointServer(is_mute=True) as server:
        endpoint = endpoint_at(server.url().replace("http:", "https:"), timeout_s=SHORT_S)
        with pytest.raises(UnreachableError, match=r"no answer within 0\.3 s"):
            post(endpoint)


INTERNET = SinkReach(SinkScope.INTERNET, frozenset({443, 8443}))
PUBLIC = "93.184.215.14"
HOOK = "https://hook.example/in"


class Resolver:
    """Returns the addresses of each look-up in turn, and records where sockets connect to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.connected: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)
        monkeypatch.setattr(socket.socket, "connect", self._connect)

    def _look_up(self, _host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        found = self.answers.pop(0)
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 0, "", (each, port, 0, 0))
            if ":" in each
            else (socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, port))
            for each in found
        ]

    def _connect(self, address: tuple[str, int]) -> None:
        self.connected.append(address[0])
        raise ConnectionRefusedError


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("10.1.2.3", "private"),
        ("169.254.169.254", "link-local"),
        ("fd00:ec2::254", "private"),
        ("fe80::1%lo", "link-local"),
        ("::ffff:10.1.2.3", "IPv4-mapped"),
    ],
)
def test_no_connection_to_private_names(monkeypatch: pytest.MonkeyPatch, address: str, kind: str) -> None:
    resolver = Resolver(monkeypatch, [address])
    with pytest.raises(ForbiddenTargetError) as refused:
        post(endpoint_at(HOOK, reach=INTERNET))
    assert resolver.connected == []
    assert kind in refused.value.detail
    assert "hook.example leads to" in refused.value.detail


@pytest.mark.parametrize(
    ("answers", "urls", "problems"),
    [
        # The second look-up leads to a private address.
        ([[PUBLIC], ["127.0.0.1"]], [HOOK, HOOK], [UnreachableError, ForbiddenTargetError]),
        # Of several addresses only public ones are tried.
        ([["10.0.0.1", PUBLIC]], [HOOK], [UnreachableError]),
        # Only listed ports are connected to.
        (
            [[PUBLIC], [PUBLIC]],
            ["https://hook.example:22/", "https://hook.example:8443/"],
            [ForbiddenTargetError, UnreachableError],
        ),
    ],
    ids=["second look-up", "several addresses", "ports"],
)
def test_only_public_addresses_and_listed_ports_are_connected_to(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[list[str]],
    urls: list[str],
    problems: list[type[Exception]],
) -> None:
    resolver = Resolver(monkeypatch, *answers)
    endpoints = {url: endpoint_at(url, reach=INTERNET) for url in urls}
    for url, problem in zip(urls, problems, strict=True):
        with pytest.raises(problem):
            post(endpoints[url])
    assert resolver.connected == [PUBLIC]


ORIGIN = "eventplane-dev-alarm-centre"


@pytest.mark.parametrize(
    ("allowed", "rate", "status", "said"),
    [
        ({"webhook_allowed_origin": ORIGIN}, None, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "*"}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "120"}, 100, 0, "120 requests a minute"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "60"}, 100, 1, "`requests_per_minute: 60`"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "60"}, None, 1, "`requests_per_minute: 60`"),
        # More than the contract's limit, and more digits than int() converts.
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "60001"}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "9" * 4_301}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "-60"}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "\u00b2"}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "somebody.else"}, None, 1, "no consent: HTTP 200"),
        ({"allow": "OPTIONS, POST"}, None, 1, "no consent: HTTP 200"),
    ],
)
def test_only_the_header_counts_as_consent(
    allowed: dict[str, str], rate: int | None, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rate", str(rate)] if rate else []
    with EndpointServer(answer(200, **allowed)) as server:
        assert main([server.url(), "--origin", ORIGIN, *words]) == status
    assert said in capsys.readouterr().out
    (request,) = server.received
    assert (request.method, request.target) == ("OPTIONS", "/events?site=7")
    assert request.headers["webhook-request-origin"] == ORIGIN
    assert request.headers.get("webhook-request-rate") == (str(rate) if rate else None)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://events.example.com/v1", "is not https://"),
        ("https://10.0.0.1/v1", "is not a public address"),
        ("https://a:b@events.example.com/", "carries credentials"),
        ("events", "is not a URL with a host"),
    ],
)
def test_a_wrong_url_is_refused(url: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([url, "--origin", ORIGIN])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_unknown_host_is_plain(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert main(["https://nowhere.example.com/v1", "--origin", ORIGIN]) == 1
    out = capsys.readouterr().out
    assert "its host name has no address; see that the endpoint is up, and its address" in out
    assert "gaierror" not in out


def test_an_endpoint_that_is_down_gives_no_consent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"http://127.0.0.1:{free_port()}/", "--origin", ORIGIN]) == 1
    assert "no consent: ConnectionRefusedError" in capsys.readouterr().out
