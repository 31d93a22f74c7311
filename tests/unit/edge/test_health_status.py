from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from edge.health.status import (
    Backlog,
    Health,
    Progress,
    Status,
    Watchdog,
    judge,
    overall,
    summary,
    to_json,
)
from edge.settings import HealthSettings
from eventplane.contract import Priority
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.statuses import WELL, waiting, with_link

LIMITS = HealthSettings(urgent_age_s=60.0, normal_age_s=900.0)
LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD


def judged(status: Status, stuck: str | None = None) -> tuple[Health, list[str]]:
    findings = judge(status, LIMITS, stuck)
    assert all(each.problem and each.remedy for each in findings)
    return overall(findings), [each.name for each in findings]


def late(*backlog: Backlog) -> Status:
    return replace(WELL, backlog=backlog)


def test_a_device_whose_line_moves_is_well() -> None:
    assert judged(late(waiting(59.9), waiting(899.9, Priority.NORMAL))) == (Health.OK, [])


def test_a_device_without_network_is_not_failing_however_long_and_whatever_waits() -> None:
    status = with_link(late(waiting(1e6), waiting(1e6, Priority.NORMAL)), CLOUD, False, 1e6)
    assert judged(status) == (Health.DEGRADED, ["cloud_down"])


@pytest.mark.parametrize(
    ("backlog", "health"),
    [
        (waiting(60.0), Health.FAILING),
        (waiting(900.0, Priority.NORMAL), Health.FAILING),
        (waiting(1e6, Priority.LOW), Health.OK),
        (waiting(60.0, destination="call.inbox", link=LOCAL), Health.FAILING),
        (waiting(0.0, destination="gone.inbox", link=None), Health.DEGRADED),
        (replace(waiting(1e6), pending=0), Health.OK),
    ],
)
def test_what_could_be_delivered_and_is_not_makes_it_unwell(backlog: Backlog, health: Health) -> None:
    assert judged(late(backlog))[0] is health


@pytest.mark.parametrize(("up_s", "health"), [(59.9, Health.OK), (60.0, Health.FAILING)])
def test_what_waited_while_cut_off_has_as_long_again_to_be_delivered(up_s: float, health: Health) -> None:
    assert judged(with_link(late(waiting(1e6)), CLOUD, True, up_s))[0] is health


def test_a_late_event_for_a_service_does_not_depend_on_the_cloud() -> None:
    status = with_link(late(waiting(60.0, destination="call.inbox", link=LOCAL)), CLOUD, False, 5.0)
    assert judged(status) == (Health.FAILING, ["late", "cloud_down"])


@pytest.mark.parametrize(
    ("down_s", "health"), [(0.5, Health.DEGRADED), (59.9, Health.DEGRADED), (60.0, Health.FAILING)]
)
def test_the_homes_broker_may_restart_but_not_stay_away(down_s: float, health: Health) -> None:
    assert judged(with_link(WELL, LOCAL, False, down_s)) == (health, ["local_broker_down"])


@pytest.mark.parametrize(("since_s", "flooded"), [(None, False), (0.0, True), (59.9, True), (60.0, False)])
def test_dropped_messages_are_reported_for_a_minute(since_s: float | None, flooded: bool) -> None:
    link = replace(WELL.links[LOCAL], dropped=7, since_drop_s=since_s)
    status = replace(WELL, links={**WELL.links, LOCAL: link})
    assert judged(status) == ((Health.DEGRADED, ["flooded"]) if flooded else (Health.OK, []))
    assert all("local session" in each.problem for each in judge(status, LIMITS))


def test_every_problem_is_in_the_reference() -> None:
    root = Path(__file__).parents[3]
    code = "".join(each.read_text() for each in (root / "edge" / "health").glob("*.py"))
    names = re.findall(r'Finding\(\s*"(\w+)"', code)
    assert {"no_disk", "loop_stalled"} <= set(names)
    page = (root / "docs" / "reference" / "device.md").read_text()
    assert all(f"| `{name}` |" in page for name in names)


def test_urgent_outboxes_without_a_session_are_reported_unless_the_broker_is_down() -> None:
    assert judged(with_link(WELL, LinkName.URGENT, False, 5.0)) == (Health.DEGRADED, ["urgent_session_down"])
    down = with_link(WELL, LinkName.URGENT, False, 60.0)
    assert judged(down) == (Health.FAILING, ["urgent_session_down"])
    assert judged(with_link(down, LOCAL, False, 5.0)) == (Health.DEGRADED, ["local_broker_down"])


@pytest.mark.parametrize(
    ("pressure", "expected"),
    [
        (0.69, (Health.OK, [])),
        (0.7, (Health.DEGRADED, ["spool_filling"])),
        (0.85, (Health.FAILING, ["spool_full"])),
    ],
)
def test_a_spool_that_fills_is_said_before_it_is_full(
    pressure: float, expected: tuple[Health, list[str]]
) -> None:
    assert judged(replace(WELL, pressure=pressure)) == expected


def test_a_missing_disk_is_the_first_thing_to_read() -> None:
    """Without one the spool admits nothing: that it is full as well would say less."""
    status = with_link(replace(WELL, disk_failure="read-only file system", pressure=1.0), CLOUD, False, 5.0)
    assert judged(status) == (Health.FAILING, ["no_disk", "cloud_down"])
    assert "read-only file system" in summary(status, judge(status, LIMITS))


def test_a_refused_contract_is_said_while_the_old_one_works() -> None:
    assert judged(replace(WELL, contract_refused=True)) == (Health.DEGRADED, ["contract_refused"])


def test_a_stuck_line_is_failing_and_the_gravest_comes_first() -> None:
    status = with_link(WELL, CLOUD, False, 5.0)
    assert judged(status, "nothing moves") == (Health.FAILING, ["stuck", "cloud_down"])


def test_the_document_says_what_is_wrong_and_what_to_do() -> None:
    findings = judge(with_link(WELL, LOCAL, False, 75.0), LIMITS)
    document = json.loads(to_json(findings, thing="home-1"))
    assert (document["status"], document["thing"]) == ("failing", "home-1")
    (problem,) = document["problems"]
    assert problem["problem"] == "no connection to the home's broker for 75 s"
    assert problem["remedy"].startswith("see whether Mosquitto runs")


def test_the_summary_is_one_line() -> None:
    status = with_link(late(waiting(1.0)), CLOUD, False, 5.0)
    assert summary(status, judge(status, LIMITS)) == (
        "degraded: local up, urgent up, cloud down; 3 deliveries pending; "
        "no connection to the cloud for 5 s; events are kept"
    )


@pytest.mark.parametrize(
    ("days", "health"), [(31, Health.OK), (29, Health.DEGRADED), (-1, Health.DEGRADED), (None, Health.OK)]
)
def test_a_certificate_that_expires_is_said_while_there_is_time(days: int | None, health: Health) -> None:
    left_s = None if days is None else days * 86_400.0
    assert judged(replace(WELL, certificate_left_s=left_s))[0] is health


def test_a_broken_profile_is_reported_while_the_link_is_up() -> None:
    link = replace(WELL.links[LOCAL], complaint="mosquitto.conf:3: 'many' is no port; write a number")
    found = replace(WELL, links={**WELL.links, LOCAL: link})
    assert judged(found) == (Health.DEGRADED, ["profile_refused"])
    assert "mosquitto.conf:3" in judge(found, LIMITS)[0].problem


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


def test_it_wakes_nobody_when_nobody_asks() -> None:
    watchdog = Watchdog(None, 0.0)
    assert watchdog.deadline() is None
    assert not watchdog.is_due(1e9)


@pytest.mark.source("P15")
def test_a_connected_line_with_a_backlog_and_no_acknowledgement_is_stuck() -> None:
    line = Line()
    line.complaint(1, 5, 2)
    assert line.complaint(1, 5, 2, after=89.9) is None
    assert line.complaint(1, 5, 2, after=0.1) == (
        "2 deliveries wait and the connected cloud answered no publish for 90 s"
    )


def test_it_recovers_when_the_line_moves_again() -> None:
    line = Line()
    line.complaint(1, 5, 2)
    assert line.complaint(1, 5, 2, after=500.0) is not None
    assert line.complaint(1, 6, 2) is None


@pytest.mark.parametrize(
    ("looks", "every_s"),
    [
        ([Progress(1, done, 1_000) for done in range(20)], 80.0),
        ([Progress(0, 5, 1_000)] * 20, 1_000.0),
        ([Progress(connection, 5, 1_000) for connection in range(1, 20)], 60.0),
        ([Progress(1, 5, 0)] * 20, 1_000.0),
    ],
    ids=[
        "the cloud answers",
        "the cloud is away",
        "the uplink reconnects to a silent cloud",
        "nothing waits",
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
