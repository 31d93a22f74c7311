"""What nobody handles is rightly not forwarded, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventplane.envelope import Envelope
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.reasons import Outcome, Reason
from tests.spark.small_archive import ALARM, READING, SmallArchive
from tests.unit.glue_jobs.judging import judged

KITCHEN = {"exact": {"room": "kitchen"}}


@pytest.fixture
def interested(archive: SmallArchive) -> SmallArchive:
    """Readers of both inboxes handle what is of the kitchen."""
    announced = [new_announcement(each, [KITCHEN]) for each in ("help", "care")]
    archive.contract, refused = with_interest(archive.contract, announced)
    assert refused == {}
    archive.contracts = [archive.contract]
    return archive


def hold_back(archive: SmallArchive, event: Envelope) -> None:
    """The router's last word on `event` is that nobody handles it."""
    row = archive.ledger[-1]
    assert row.id == event.id
    archive.ledger[-1] = replace(row, outcome=Outcome.NO_INTEREST, reason=Reason.NO_INTEREST)


def test_what_is_not_wanted_is_expected_not_to_be_forwarded(interested: SmallArchive) -> None:
    interested.send(READING, room="kitchen")
    hold_back(interested, interested.send(READING, room="bath"))
    hold_back(interested, interested.send(READING, room="bath", severitynumber=9))
    interested.send(ALARM, room="bath")  # urgent
    interested.send(READING, room="bath", severitynumber=17)  # urgent by its own word
    report = judged(interested)
    assert report.faults() == {}
    readings = report.route("readings")
    assert (readings["expected"], readings["delivered"], readings["no_interest"]) == (2, 2, 2)
    assert report.route("alarms")["delivered"] == 1


def test_what_is_wanted_and_held_back_is_lost(interested: SmallArchive) -> None:
    hold_back(interested, interested.send(READING, room="kitchen"))
    hold_back(interested, interested.send(ALARM))
    hold_back(interested, interested.send(READING, severitynumber=17))
    report = judged(interested)
    assert report.faults() == {"lost": 3}
    assert {each.detail for each in report.findings} == {
        "recorded as no_interest, no_interest; nothing bears it out"
    }


def test_what_is_not_wanted_and_vanishes_without_a_record_is_lost(interested: SmallArchive) -> None:
    interested.send(READING, room="kitchen")
    interested.accept(interested.event(READING, room="bath"))
    assert judged(interested).faults() == {"lost": 1}


def test_what_is_not_wanted_and_forwarded_all_the_same_is_misrouted(interested: SmallArchive) -> None:
    interested.send(READING, room="bath")
    assert judged(interested).faults() == {"misrouted": 1}


def test_copies_that_met_two_contracts_may_end_by_either(archive: SmallArchive) -> None:
    before = archive.contract
    event = archive.send(READING, room="bath")
    archive.contract, _ = with_interest(before, [new_announcement("care", [KITCHEN])])
    archive.contracts = [before, archive.contract]
    archive.accept(event)
    archive.route(event)
    hold_back(archive, event)
    report = judged(archive)
    assert set(report.faults()) <= {"duplicate"}
    assert report.route("readings")["delivered"] == 1
