"""What a trace shows of an event in its home, by what its device reports afterwards."""

from datetime import date

import pytest

from contract import load_contract
from eventplane.device_reports import DISCARDED, MANIFEST
from eventplane.envelope import write_event
from operations.archive import Days
from operations.command import END_UNKNOWN
from operations.trace import Trace, traces
from tests.unit.operations.support import (
    ACCEPTED_MS,
    ALARM,
    LATER,
    MINUTE_MS,
    MemoryArchive,
    line,
    manifest,
    packed,
    report,
)

CONTRACT = load_contract()
DAY = date(2026, 1, 1)
TAP = "tap/date=2026-01-01/hour=00/a.json.gz"
NOT_YET = "unknown: no manifest of home-1 states its end yet"
UNREAD = f"{NOT_YET}; 1 reports of home-1 cannot be read or contradict others"
GIVEN_UP = report(
    DISCARDED,
    {
        "deliveries": [
            {"destination": "call-service.inbox", "outcome": "expired", "reason": "x", "ranges": [[6, 8]]}
        ]
    },
    2 * MINUTE_MS,
)


def traced(*reports: str, before: str = "") -> Trace:
    archive = MemoryArchive()
    archive.write(TAP, *filter(None, [before]), line(ALARM), *reports)
    (found,) = traces(("/homes/1/voice", "17"), Days(archive, DAY, DAY), [], CONTRACT)
    return found


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ((manifest(7), LATER), "handled by call-service"),
        ((manifest(7, final=True),), "handled by call-service"),
        ((manifest(5, MINUTE_MS, 6, 8), LATER), "handled by call-service"),
        ((manifest(6, MINUTE_MS, 7), LATER), "waiting in home-1: call-service has not taken it"),
        ((manifest(6, MINUTE_MS, 7), manifest(9, 2 * MINUTE_MS), LATER), "handled by call-service"),
        # What ended may have been given up, which the device reports later.
        ((manifest(7),), "unknown: it has ended, and whether home-1 gave it up is not reported yet"),
        ((manifest(7), GIVEN_UP, LATER), "expired by home-1: x"),
        ((manifest(8, at=8), LATER), "lost: home-1 stored it, and not for call-service"),
        (
            (manifest(7), manifest(6, 2 * MINUTE_MS, 7), LATER),
            "waiting in home-1: call-service has not taken it",
        ),
        # Words of another device, of another life of its spool, and of a time before.
        ((manifest(7, device="home-2"), LATER), NOT_YET),
        ((manifest(7, epoch="e2"), LATER), NOT_YET),
        ((manifest(7, -MINUTE_MS, number=7), LATER), NOT_YET),
        ((report(MANIFEST, {"statements": [{"destination": 1}, 7], "epoch": "e1"}, 1), LATER), UNREAD),
        ((report(MANIFEST, {"statements": "none"}, 1), LATER), UNREAD),
        # Numbers that contradict each other.
        ((manifest(7, MINUTE_MS, 7), LATER), NOT_YET),
        ((manifest(7), manifest(6, MINUTE_MS + 1), LATER), UNREAD.replace("; 1", "; 2")),
    ],
)
def test_reports_say_what_became_of_an_alarm_at_home(reports: tuple[str, ...], said: str) -> None:
    found = {each.inbox: str(each) for each in traced(*reports).accounts}
    assert found["call-service.inbox"] == said


@pytest.mark.parametrize("ranges", [7, [7], [[7]], [["6", "8"]], [[6, 8, 9]], [None], {"6": 8}, "68"])
def test_a_damaged_report_of_losses_proves_nothing(ranges: object) -> None:
    lost = {"destination": "call-service.inbox", "outcome": "expired", "reason": "x", "ranges": ranges}
    found = traced(report(DISCARDED, {"deliveries": [lost]}, MINUTE_MS), manifest(7, 0), LATER)
    assert any("gave it up is not reported yet; 1 reports" in str(each) for each in found.accounts)


@pytest.mark.parametrize("pending", [7, "7", {"7": 7}, ["7"], [[7]], [None]])
def test_a_damaged_manifest_proves_nothing(pending: object) -> None:
    stated = {"destination": "call-service.inbox", "first": 7, "last": 7, "count": 1, "acknowledged_to": 7}
    damaged = {"epoch": "e1", "statements": [{**stated, "pending": pending}]}
    assert UNREAD in {str(each) for each in traced(report(MANIFEST, damaged, MINUTE_MS), LATER).accounts}


def test_the_first_copy_tells_of_its_home() -> None:
    again = line(write_event({**ALARM.attributes, "devicesequence": "8"}, {}), 1).replace("m-17", "m-18")
    said = {each.inbox: str(each) for each in traced(manifest(7), LATER, before=again).accounts}
    assert said["call-service.inbox"] == "handled by call-service"


def test_unread_reports_may_have_given_it_up() -> None:
    archive = MemoryArchive()
    archive.write(TAP, line(ALARM), manifest(7), LATER)
    archive.objects["tap/date=2026-01-01/hour=01/cut.json.gz"] = packed([GIVEN_UP])[:30]
    (found,) = traces(("/homes/1/voice", "17"), Days(archive, DAY, DAY), [], CONTRACT)
    said = {each.inbox: str(each) for each in found.accounts}["call-service.inbox"]
    assert said.startswith("unknown: it has ended")
    assert "cut.json.gz cannot be read" in said


def test_what_was_due_by_a_lost_contract_is_unknown() -> None:
    found = traced(manifest(7).replace(CONTRACT.version, "0123456789abcdef"), LATER)
    assert "unknown: the archive has no contract 0123456789abcdef, by which home-1 decided" in [
        str(each) for each in found.accounts
    ]


def test_the_tap_is_read_once_for_all_homes() -> None:
    archive = MemoryArchive()
    archive.write(TAP, line(ALARM), line(ALARM, device="home-2"), manifest(7), LATER)
    opened = list[str]()
    days = Days(archive, DAY, DAY)
    archive.open = lambda name, read=archive.open: (opened.append(name), read(name))[1]  # type: ignore[method-assign, misc]
    assert len(traces(("/homes/1/voice", "17"), days, [], CONTRACT)) == 2
    assert opened.count(TAP) == 2  # once for the event, once for the reports


def test_the_step_has_the_time_at_which_it_was_taken_at_the_latest() -> None:
    (step,) = (each for each in traced(manifest(7), LATER).stations if "home" in each.where)
    assert (step.at_ms, step.what) == (ACCEPTED_MS + MINUTE_MS, "taken by call-service")


def test_what_rang_at_home_hides_nothing_of_the_cloud() -> None:
    found = traced(manifest(7), LATER)
    assert found.status == END_UNKNOWN
    assert {each.inbox for each in found.accounts} > {"call-service.inbox", "alarm-centre.inbox"}
    assert "unknown" in str(found.accounts[0])
