import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from edge import health_server as module
from edge.daemon import _endpoint
from edge.health_server import MAX_HEAD_BYTES, HealthResponse, HealthServer, pages
from edge.health_status import Health, HealthFinding
from edge.housekeeping import Snapshot, Snapshots
from edge.settings import HealthSettings
from tests.unit.edge.statuses import WELL

GOOD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:9100\r\n\r\n"


def fail() -> HealthResponse:
    raise ValueError("a bug")


@pytest.fixture
def server() -> Iterator[HealthServer]:
    it = HealthServer("127.0.0.9", 0, {"/healthz": lambda: HealthResponse(200, "well\n"), "/bug": fail})
    yield it
    it.close()


def connect(server: HealthServer) -> socket.socket:
    return socket.create_connection(("127.0.0.9", server.port), timeout=30)


def ask(server: HealthServer, request: bytes) -> bytes:
    """All that comes back until the server hangs up."""
    with connect(server) as line:
        line.sendall(request)
        answer = b""
        while more := line.recv(4096):
            answer += more
        return answer


@pytest.mark.source("P15")
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz?verbose HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\n\n", 200),
        (b"GET /healthz HTTP/1.1\r\nhost: LocalHost\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: evil.example:9100\r\n\r\n", 403),
        (b"GET /healthz HTTP/1.1\nhost:evil.example\n\n", 403),
        (GOOD.replace(b"Host", b"Origin: https://evil.example\r\nHost"), 403),
        (GOOD.replace(b"Host", b"origin: null\r\nHost"), 403),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /healthz/ HTTP/1.1\r\n\r\n", 404),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", 405),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 9\r\n\r\n", 405),
        (b"get /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET http://x/healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /a b HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"x" * (MAX_HEAD_BYTES + 1), 400),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 3 * MAX_HEAD_BYTES, 400),
    ],
)
def test_each_request_gets_its_status(server: HealthServer, request_: bytes, status: int) -> None:
    answer = ask(server, request_)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"\r\nAllow: GET\r\n" in answer) is (status == 405)
    assert answer.endswith(b"\r\n\r\nwell\n") is (status == 200)
    assert b"\r\nConnection: close\r\n" in answer


def test_a_client_that_hangs_up_early_harms_nobody(server: HealthServer) -> None:
    with connect(server) as line:
        line.sendall(b"GET /hea")
    with connect(server) as line:
        line.sendall(GOOD)
    assert ask(server, GOOD).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("sent", "answer", "clients"),
    [(b"GET /healthz HTTP/1.1\r\n", b"", 1), (GOOD, b"H", 1), (b"", b"", module._QUEUED)],
    ids=["slow", "never hangs up", "silent"],
)
def test_clients_that_linger_do_not_keep_the_next_one_waiting(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch, sent: bytes, answer: bytes, clients: int
) -> None:
    monkeypatch.setattr(module, "CONNECTION_S", 0.02)
    with contextlib.ExitStack() as others:
        for _ in range(clients):
            other = others.enter_context(connect(server))
            other.sendall(sent)
        assert ask(server, GOOD).startswith(b"HTTP/1.1 200")
        assert other.recv(1) == answer


def test_a_failing_page_ends_nothing_else(server: HealthServer, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(server, b"GET /bug HTTP/1.1\r\n\r\n") == b""
    assert "a page failed" in caplog.text
    assert ask(server, GOOD).startswith(b"HTTP/1.1 200")


def test_a_taken_port_costs_the_endpoint(server: HealthServer, caplog: pytest.LogCaptureFixture) -> None:
    with _endpoint(HealthSettings(host="127.0.0.9", port=server.port), Snapshots(lambda: None)) as endpoint:
        assert endpoint is None
    assert "set health.port to a free port" in caplog.text


def test_it_listens_at_an_ipv6_address_too_and_nobody_does_after_the_end() -> None:
    with contextlib.closing(HealthServer("::1", 0, {})) as server:
        socket.create_connection(("::1", server.port), timeout=30).close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("::1", server.port), timeout=30)


@pytest.mark.source("P15")
@pytest.mark.parametrize(("health", "status"), [(Health.DEGRADED, 200), (Health.FAILING, 503)])
def test_both_pages_are_made_by_the_loop(health: Health, status: int) -> None:
    findings = (HealthFinding("late", health, "it waits", "look"),)
    snapshots = Snapshots(lambda: snapshots.answer(lambda: Snapshot(WELL, findings, ())))
    by_path = pages(snapshots)
    answer = by_path["/healthz"]()
    assert answer.status == status
    document = json.loads(answer.body)
    assert (document["thing"], document["uptime_s"], document["pending"]) == ("home-1", 100, 0)
    assert [each["name"] for each in document["problems"]] == ["late"]
    assert by_path["/metrics"]().status == 200


def test_both_pages_report_a_loop_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    answers = [page() for page in pages(Snapshots(lambda: None)).values()]
    assert [each.status for each in answers] == [503, 503]
    assert "loop_stalled" in answers[0].body
    assert "did not turn" in answers[1].body
