"""The device's health: its status, and the server that answers with it."""

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from edge import health_server as module
from edge.daemon import _endpoint
from edge.health_server import MAX_HEAD_BYTES, HealthResponse, HealthServer, pages
from edge.health_status import (
    Backlog,
    DeviceStatus,
    Health,
    HealthFinding,
    Progress,
    Watchdog,
    judge,
    overall,
    summary,
    to_json,
)
from edge.housekeeping import Snapshot, Snapshots
from edge.settings import HealthSettings
from eventplane.contract import Priority
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.builders import WELL, backlog, with_link

LIMITS = HealthSettings(urgent_age_s=60.0, normal_age_s=900.0)
LOCAL, URGENT, CLOUD = LinkName.LOCAL, LinkName.URGENT, LinkName.CLOUD


def judged(status: DeviceStatus, stuck: str | None = None) -> str:
    """The health and the names of what is wrong."""
    findings = judge(status, LIMITS, stuck)
    assert all(each.problem and each.remedy for each in findings)
    names = " ".join(each.name for each in findings)
    return f"{overall(findings)}: {names}" if names else str(overall(findings))


def late(*backlog: Backlog) -> DeviceStatus:
    return WELL._replace(backlog=backlog)


def flooded(since_s: float | None) -> DeviceStatus:
    return with_link(WELL, LOCAL, dropped=7, since_drop_s=since_s)


def certified(days: float | None) -> DeviceStatus:
    return WELL._replace(certificate_left_s=None if days is None else days * 86_400.0)


OLD, OLD_NORMAL = backlog(1e6), backlog(1e6, Priority.NORMAL)
AT_HOME = backlog(60.0, destination="call.inbox", link=LOCAL)
NO_ROUTE = backlog(0.0, destination="gone.inbox", link=None)
NO_DISK = WELL._replace(disk_failure="read-only", pressure=1.0)
PROFILE = with_link(WELL, LOCAL, complaint="mosquitto.conf:3: 'many' is no port")
SECOND_DOWN = with_link(WELL, URGENT, False, 60.0)

STATUSES = {
    "it moves": (late(backlog(59.9), backlog(899.9, Priority.NORMAL)), "ok"),
    "no network": (
        with_link(late(OLD, OLD_NORMAL), CLOUD, False, 1e6),
        "degraded: cloud_down",
    ),
    "an urgent event is late": (late(backlog(60.0)), "failing: late"),
    "a normal event is late": (late(backlog(900.0, Priority.NORMAL)), "failing: late"),
    "a low event may be late": (late(backlog(1e6, Priority.LOW)), "ok"),
    "a service does not confirm": (late(AT_HOME), "failing: late"),
    "nor without the cloud": (with_link(late(AT_HOME), CLOUD, False, 5.0), "failing: late cloud_down"),
    "no route takes it": (late(NO_ROUTE), "degraded: no_route"),
    "nothing waits": (late(OLD._replace(pending=0)), "ok"),
    "the cloud is just back": (with_link(late(OLD), CLOUD, True, 59.9), "ok"),
    "the cloud is back for long": (with_link(late(OLD), CLOUD, True, 60.0), "failing: late"),
    "the broker restarts": (with_link(WELL, LOCAL, False, 59.9), "degraded: local_broker_down"),
    "the broker stays away": (with_link(WELL, LOCAL, False, 60.0), "failing: local_broker_down"),
    "the broker has forgotten us": (WELL._replace(sessions_lost=1), "degraded: session_lost"),
    "no flood": (flooded(None), "ok"),
    "a flood in the last minute": (flooded(59.9), "degraded: flooded"),
    "a flood before that": (flooded(60.0), "ok"),
    "no urgent session": (with_link(WELL, URGENT, False, 5.0), "degraded: urgent_session_down"),
    "no urgent session for long": (SECOND_DOWN, "failing: urgent_session_down"),
    "no session at all": (with_link(SECOND_DOWN, LOCAL, False, 5.0), "degraded: local_broker_down"),
    "room is left": (WELL._replace(pressure=0.69), "ok"),
    "the spool fills": (WELL._replace(pressure=0.7), "degraded: spool_filling"),
    "the spool is full": (WELL._replace(pressure=0.85), "failing: spool_full"),
    "no disk says more than full": (with_link(NO_DISK, CLOUD, False, 5.0), "failing: no_disk cloud_down"),
    "a broken contract": (WELL._replace(contract_refused=True), "degraded: contract_refused"),
    "a certificate for a month": (certified(31), "ok"),
    "a certificate for less": (certified(29), "degraded: certificate_expires"),
    "an expired certificate": (certified(-1), "degraded: certificate_expires"),
    "without a certificate": (certified(None), "ok"),
    "a budget of bytes is used up": (
        late(OLD_NORMAL)._replace(is_budget_used_up=True),
        "degraded: data_budget_used_up",
    ),
    "a broken profile": (PROFILE, "degraded: profile_refused"),
}


@pytest.mark.source("P15")
@pytest.mark.parametrize(("status", "judgement"), STATUSES.values(), ids=STATUSES)
def test_a_status_is_judged(status: DeviceStatus, judgement: str) -> None:
    assert judged(status) == judgement


def test_a_stuck_uplink_is_failing_and_the_gravest_problem_comes_first() -> None:
    status = with_link(WELL, CLOUD, False, 5.0)
    assert judged(status, "nothing moves") == "failing: stuck cloud_down"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (flooded(0.0), "local session"),
        (PROFILE, "mosquitto.conf:3"),
        (WELL._replace(disk_failure="read-only file system"), "read-only file system"),
    ],
)
def test_a_problem_names_its_cause(status: DeviceStatus, words: str) -> None:
    (finding,) = judge(status, LIMITS)
    assert words in finding.problem
    assert words in summary(status, [finding])


def test_the_health_document_has_problem_and_remedy() -> None:
    findings = judge(with_link(WELL, LOCAL, False, 75.0), LIMITS)
    document = json.loads(to_json(findings, thing="home-1"))
    assert (document["status"], document["thing"]) == ("failing", "home-1")
    (problem,) = document["problems"]
    assert problem["problem"] == "no connection to the home's broker for 75 s"
    assert problem["remedy"].startswith("see whether Mosquitto runs")


def test_the_summary_is_one_line() -> None:
    status = with_link(late(backlog(1.0)), CLOUD, False, 5.0)
    assert summary(status, judge(status, LIMITS)) == (
        "degraded: local up, urgent up, cloud down; 3 deliveries pending; "
        "no connection to the cloud for 5 s; events are kept"
    )


PATIENCE_S = 90.0


class Line:
    """A watchdog that looks at a line; `after` seconds pass first."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.watchdog = Watchdog(10.0, self.now)

    def complaint(self, connection: int, answered: int, waiting: int, after: float = 10.0) -> str | None:
        self.now += after
        return self.watchdog.complaint(Progress(connection, answered, waiting), self.now, PATIENCE_S)


def test_it_is_due_once_an_interval() -> None:
    watchdog = Watchdog(10.0, 0.0)
    assert [watchdog.is_due(at) for at in (0.0, 0.1, 9.9, 10.0, 10.1, 35.0, 44.9, 45.0)] == [
        True, False, False, True, False, True, False, True,
    ]  # fmt: skip
    assert watchdog.deadline() == 55.0
    nobody_asks = Watchdog(None, 0.0)
    assert nobody_asks.deadline() is None
    assert not nobody_asks.is_due(1e9)


@pytest.mark.source("P15")
def test_a_connected_uplink_with_a_backlog_and_no_acknowledgement_is_stuck_until_it_moves() -> None:
    line = Line()
    line.complaint(1, 5, 2)
    assert line.complaint(1, 5, 2, after=89.9) is None
    assert line.complaint(1, 5, 2, after=0.1) == (
        "2 deliveries wait and the connected cloud answered no publish for 90 s"
    )
    assert line.complaint(1, 5, 2, after=500.0) is not None
    assert line.complaint(1, 6, 2) is None


@pytest.mark.parametrize(
    ("looks", "every_s"),
    [
        ([Progress(1, done, 1_000) for done in range(20)], 80.0),
        ([Progress(0, 5, 1_000)] * 20, 1_000.0),
        ([Progress(connection, 5, 1_000) for connection in range(1, 20)], 60.0),
        ([Progress(1, 5, 0)] * 20, 1_000.0),
        ([Progress(1, 5, 1, left) for left in range(20)], 80.0),
    ],
    ids=[
        "the cloud answers",
        "the cloud is away",
        "the uplink reconnects to a silent cloud",
        "nothing waits",
        "a large publish leaves",
    ],
)
def test_what_moves_is_away_or_idle_is_not_stuck(looks: list[Progress], every_s: float) -> None:
    watchdog = Watchdog(10.0, 0.0)
    complaints = [watchdog.complaint(each, every_s * n, PATIENCE_S) for n, each in enumerate(looks, start=1)]
    assert complaints == [None] * len(looks)


def test_what_begins_to_wait_after_a_long_quiet_gets_the_whole_patience() -> None:
    line = Line()
    line.complaint(1, 5, 0)
    assert line.complaint(1, 5, 1, after=1_000.0) is None
    assert line.complaint(1, 5, 1, after=89.0) is None
    assert line.complaint(1, 5, 1, after=1.0) is not None


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
