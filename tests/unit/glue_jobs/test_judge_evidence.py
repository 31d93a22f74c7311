"""Evidence against evidence: holes of the archive, newer versions, and records that contradict each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract import compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import router_source
from eventplane.ledger import HandoverRecord, LedgerRecord, to_line
from eventplane.reasons import Outcome
from eventplane.sender import PLANE
from glue_jobs.common.hours import Hour
from glue_jobs.delivery_audit.event_group import (
    DeadLetterCount,
    EventGroup,
    HandoverRow,
    HoleCount,
    HourCount,
    Judgement,
    TapRow,
)
from glue_jobs.delivery_audit.findings import BROKEN_KINDS, INCOMPLETE_KINDS
from glue_jobs.delivery_audit.judge import judge
from tests.spark.small_archive import (
    ALARM,
    DIARY,
    NOON_MS,
    READING,
    SmallArchive,
    small_contract,
)
from tests.unit.glue_jobs.judging import (
    Judged,
    groups_of,
    hour,
    judged,
    rules_of,
)

HOUR_MS = 3_600_000
NOON = NOON_MS // HOUR_MS
NO_LEDGER_AT_NOON: Mapping[str, frozenset[Hour]] = {"ledger": frozenset({hour("2026-03-01T12")})}
NO_HANDOVERS_AT_NOON: Mapping[str, frozenset[Hour]] = {"handovers": frozenset({hour("2026-03-01T12")})}


@pytest.fixture
def webhook(archive: SmallArchive) -> SmallArchive:
    """Alarms go to a webhook that tries for ten minutes."""
    document = json.loads(small_contract().canonical)
    document["participants"]["help"]["inbox"] |= {"webhook": {"timeout_s": 5, "give_up_after_s": 600}}
    archive.contract = compile_contract(document, "test")
    archive.contracts = [archive.contract]
    return archive


def handed_over(archive: SmallArchive, at_ms: int = NOON_MS, **more: Any) -> HandoverRecord:
    """The webhook's record of the last event of the ledger, or of the event that `more` names."""
    row = archive.ledger[-1]
    known = {"source": row.source, "id": row.id, "type": row.type, "sender": row.sender, **more}
    return HandoverRecord(
        **{
            "decided_at_ms": at_ms + 900,
            "entered_at_ms": at_ms + 100,
            "channel": "help.inbox",
            "contract_version": archive.contract.version,
            "outcome": Outcome.DELIVERED,
            "reason": None,
            "status": 204,
            "attempt": 1,
            "message_id": "m",
            **known,
        }
    )


def nothing_is_accused(report: Judged) -> bool:
    return not any(each.kind in BROKEN_KINDS for each in report.findings) and not report.judgement.replay


def test_events_without_a_record_in_an_hour_that_the_ledger_lacks_are_unrecorded(
    archive: SmallArchive,
) -> None:
    archive.accept(archive.event(READING))
    early = archive.event(READING, at_ms=NOON_MS - 200_000)
    archive.accept(early, at_ms=NOON_MS - 200_000)
    archive.accept(archive.event(DIARY))
    report = judged(archive, damaged=NO_LEDGER_AT_NOON)
    assert report.faults() == {"unrecorded": 3}
    assert report.route("readings")["unrecorded"] == report.route("readings")["expected"] == 2
    assert nothing_is_accused(report)
    assert report.findings == []
    assert report.judgement.counts[HoleCount("ledger", NOON)] == 3


@pytest.mark.parametrize("at_ms", [NOON_MS - 301_000, NOON_MS + HOUR_MS])
def test_a_loss_beside_the_hole_stays_a_loss(archive: SmallArchive, at_ms: int) -> None:
    archive.accept(archive.event(READING, at_ms=at_ms), at_ms=at_ms)
    assert judged(archive, damaged=NO_LEDGER_AT_NOON).faults() == {"lost": 1}


def test_a_record_that_proves_nothing_is_no_hole(archive: SmallArchive) -> None:
    event = archive.event(READING)
    archive.accept(event)
    archive.ledger.append(archive.record(event, route="readings", outcome=Outcome.EXPIRED))
    assert judged(archive, damaged=NO_LEDGER_AT_NOON).faults() == {"lost": 1}


def test_a_young_event_is_pending_also_in_a_hole(archive: SmallArchive) -> None:
    archive.accept(archive.event(READING))
    report = judged(archive, as_of="2026-03-01T12:30:00Z", damaged=NO_LEDGER_AT_NOON)
    assert report.faults() == {"pending": 1}


def test_a_handover_proves_that_the_ledger_lacks_a_record(webhook: SmallArchive) -> None:
    webhook.send(ALARM)
    webhook.handovers = [handed_over(webhook)]
    webhook.ledger.clear()
    report = judged(webhook)
    assert report.faults() == {"unrecorded": 1}
    assert report.findings == []
    assert report.consumed() == {("help.inbox", "delivered"): 1}
    assert report.judgement.counts[HoleCount("ledger", NOON)] == 1


def test_one_handover_does_not_prove_two_deliveries(webhook: SmallArchive) -> None:
    document = json.loads(webhook.contract.canonical)
    document["routes"]["copies"] = document["routes"]["alarms"]
    webhook.contract = compile_contract(document, "test")
    webhook.contracts = [webhook.contract]
    webhook.send(ALARM)
    webhook.handovers = [handed_over(webhook)]
    webhook.ledger = [row for row in webhook.ledger if row.route == "alarms"]
    report = judged(webhook)
    assert report.faults() == {"lost": 1}
    assert (report.route("alarms")["delivered"], report.route("copies")["lost"]) == (1, 1)


def test_a_handover_where_the_record_has_another_end_is_forged(webhook: SmallArchive) -> None:
    webhook.send(ALARM, expirytime="2026-03-01T12:00:00Z")
    webhook.handovers = [handed_over(webhook)]
    webhook.ledger[-1] = replace(webhook.ledger[-1], outcome=Outcome.EXPIRED)
    report = judged(webhook)
    assert report.faults() == {"expired": 1}
    assert report.consumed() == {}
    assert {(each.kind, each.hop) for each in report.findings} == {
        ("expired", "router"),
        ("forged", "inbox_consumer"),
    }


def test_a_handover_of_an_unknown_event_is_forged_unless_the_ledger_has_a_hole(
    webhook: SmallArchive,
) -> None:
    webhook.send(ALARM)
    webhook.handovers = [handed_over(webhook, id="unknown", sender="help"), handed_over(webhook)]
    assert [each.kind for each in judged(webhook).findings] == ["forged"]
    report = judged(webhook, damaged=NO_LEDGER_AT_NOON)
    assert report.findings == []
    assert report.judgement.counts[HoleCount("ledger", NOON)] == 1


def test_a_delivery_whose_handover_lies_in_a_hole_is_unrecorded_at_its_end(webhook: SmallArchive) -> None:
    webhook.send(ALARM)
    early_ms = NOON_MS - 600_000
    webhook.send(ALARM, at_ms=early_ms)  # tried until the hole
    lost_ms = NOON_MS - 2 * HOUR_MS
    lost = webhook.send(ALARM, at_ms=lost_ms)
    report = judged(webhook, damaged=NO_HANDOVERS_AT_NOON)
    assert report.consumed() == {("help.inbox", "unrecorded"): 2, ("help.inbox", "lost"): 1}
    assert [(each.kind, each.id) for each in report.findings] == [("lost", lost.id)]
    assert report.judgement.counts[HoleCount("handovers", NOON)] == 2


def test_a_refused_item_whose_record_lies_in_a_hole_is_not_lost(archive: SmallArchive) -> None:
    archive.refuse(b"garbage")
    archive.ledger.clear()
    report = judged(archive, damaged=NO_LEDGER_AT_NOON)
    assert report.faults() == {}
    assert report.findings == []
    assert report.judgement.counts[DeadLetterCount("unrecorded", "cloud", "not_json")] == 1


def newer(row: LedgerRecord, **members: Any) -> str:
    """The line of a row as a newer version writes it."""
    return json.dumps({**json.loads(to_line(row)), **members})


@pytest.mark.parametrize("members", [{"attempt": "1"}, {"attempt": 1.5}, {"decided_at_ms": "noon"}])
def test_a_line_whose_members_have_other_types_is_not_understood(
    archive: SmallArchive, members: dict[str, Any]
) -> None:
    archive.send()
    archive.bad_lines = [("ledger", newer(archive.ledger.pop(), **members))]
    report = judged(archive)
    assert report.faults() == {"not_understood": 1, "quarantined": 1}
    assert nothing_is_accused(report)
    (finding,) = report.findings
    assert (finding.kind, finding.hop, finding.route) == ("not_understood", "router", "readings")
    assert finding.kind in INCOMPLETE_KINDS


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"outcome": "postponed"}, "unknown_outcome"),
        ({"basis": "guessed"}, "unknown_basis"),
        ({"contract_version": "sha256:of a newer one"}, "unknown_contract"),
    ],
)
def test_a_row_of_a_newer_version_is_not_understood(
    archive: SmallArchive, members: dict[str, Any], reason: str
) -> None:
    archive.send()
    archive.ledger[-1] = replace(archive.ledger[-1], **members)
    report = judged(archive)
    assert report.faults() == {"not_understood": 1, "quarantined": 1}
    assert nothing_is_accused(report)
    assert [(each.kind, each.detail) for each in report.findings] == [("not_understood", reason)]
    assert report.rows() == {("tap", None): 1, ("ledger", reason): 1}


def test_a_row_with_unknown_members_is_not_understood(archive: SmallArchive) -> None:
    archive.send()
    report = judged_with(archive, "ledger", unknown_members=True)
    assert report.faults() == {"not_understood": 1, "quarantined": 1}
    assert nothing_is_accused(report)
    report = judged_with(archive, "tap", unknown_members=True)
    assert report.faults() == {"not_understood": 1, "quarantined": 1}
    assert report.judgement.not_in_tap == []


def test_a_handover_that_is_not_understood_accuses_nobody(webhook: SmallArchive) -> None:
    webhook.send(ALARM)
    webhook.handovers = [replace(handed_over(webhook), outcome="postponed")]  # type: ignore[arg-type]
    report = judged(webhook)
    assert report.consumed() == {("help.inbox", "not_understood"): 1}
    assert nothing_is_accused(report)
    assert [(each.kind, each.hop) for each in report.findings] == [("not_understood", "inbox_consumer")]


def test_a_row_that_is_not_understood_excuses_its_own_route_only(archive: SmallArchive) -> None:
    archive.contract = small_contract(copies={"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"})
    archive.contracts = [archive.contract]
    archive.send(ALARM)
    (row,) = (row for row in archive.ledger if row.route == "copies")
    archive.ledger = [replace(row, outcome="postponed")]  # type: ignore[arg-type]
    report = judged(archive)
    assert (report.route("copies")["not_understood"], report.route("alarms")["lost"]) == (1, 1)
    # Which routes a contract has that nobody knows, nobody knows.
    archive.ledger = [replace(row, contract_version="sha256:of a newer one")]
    assert judged(archive).faults() == {"not_understood": 2, "quarantined": 1}


def test_a_row_that_is_understood_goes_before_one_that_is_not(archive: SmallArchive) -> None:
    archive.send()
    archive.ledger.append(replace(archive.ledger[-1], outcome="postponed"))  # type: ignore[arg-type]
    report = judged(archive)
    assert report.faults() == {"quarantined": 1}
    assert report.totals["delivered"] == 1


def test_a_cut_line_that_names_its_event_is_not_understood(archive: SmallArchive) -> None:
    event = archive.send()
    archive.bad_lines = [("ledger", to_line(archive.ledger.pop())[:-20])]
    report = judged(archive)
    assert report.faults() == {"not_understood": 1, "quarantined": 1}
    assert [(each.kind, each.id) for each in report.findings] == [("not_understood", event.id)]
    assert nothing_is_accused(report)


def test_a_line_that_names_nothing_is_quarantined_and_says_no_more(archive: SmallArchive) -> None:
    archive.send()
    archive.bad_lines = [("ledger", '{"decided_at_ms":177'), ("tap", "[]")]
    report = judged(archive)
    assert report.faults() == {"quarantined": 2}
    assert report.findings == []


def test_what_was_decided_before_it_was_accepted_is_found(archive: SmallArchive) -> None:
    archive.send()
    archive.send()
    for number, early_ms in ((0, 5_020), (1, 5_041)):
        row = archive.ledger[number]
        archive.ledger[number] = replace(row, decided_at_ms=row.decided_at_ms - early_ms)
    (finding,) = judged(archive).findings
    assert (finding.kind, finding.hop, finding.id) == ("causality", "router", archive.ledger[1].id)
    assert finding.detail == "decided 5001 ms before it was accepted"
    assert finding.kind in INCOMPLETE_KINDS


def test_another_type_in_the_ledger_is_found(archive: SmallArchive) -> None:
    archive.send()
    archive.ledger[-1] = replace(archive.ledger[-1], type=ALARM)
    (finding,) = judged(archive).findings
    assert (finding.kind, finding.hop) == ("type_mismatch", "router")
    assert finding.detail == f"{READING} in the tap, {ALARM} in the ledger"
    assert finding.kind in BROKEN_KINDS


def test_one_id_with_two_payloads_is_found(archive: SmallArchive) -> None:
    event = archive.send()
    archive.accept(event)
    assert [each.kind for each in judged(archive).findings] == ["duplicate"]
    other = archive.event(data={"value": "another"}, id=event.id, source=event.source)
    archive.accept(other)
    archive.route(other)
    report = judged(archive)
    findings = report.findings
    assert [each.kind for each in findings] == ["reused_id", "duplicate"]
    assert (findings[0].hop, findings[0].detail) == ("device_cloud", "2 different payloads")
    assert findings[0].kind in BROKEN_KINDS
    # One copy is a second one of the first payload, and was not routed.
    assert (report.totals["tap_copies"], report.totals["duplicated"]) == (1, 0)
    key = HourCount("tap_copies", "home-1", NOON)
    assert report.judgement.counts[key] == 1


def test_a_sender_on_another_device_than_its_client_is_found(archive: SmallArchive) -> None:
    archive.send()
    archive.ledger[-1] = replace(archive.ledger[-1], client_id="home-2")
    (finding,) = judged(archive).findings
    assert (finding.kind, finding.hop) == ("sender_mismatch", "router")
    assert finding.detail == "the ledger names the sender home-1/ and the client home-2"
    # The same where the sender is the one that is wrong: no event is missing.
    archive.ledger[-1] = replace(archive.ledger[-1], client_id="home-1", sender="home-2/")
    report = judged(archive)
    assert report.faults() == {}
    (finding,) = report.findings
    assert (finding.kind, finding.hop) == ("sender_mismatch", "router")


def test_a_handover_before_its_event_was_in_the_inbox_is_found(webhook: SmallArchive) -> None:
    webhook.send(ALARM)
    webhook.handovers = [handed_over(webhook, at_ms=NOON_MS - 6_000)]
    (finding,) = judged(webhook).findings
    assert (finding.kind, finding.hop) == ("causality", "inbox_consumer")
    assert finding.detail == "handed over 5140 ms before it was put into the inbox"


def test_a_frame_that_has_another_client_in_the_tap_is_neither_lost_nor_forged(
    archive: SmallArchive,
) -> None:
    archive.send()
    archive.tap[-1] = replace(archive.tap[-1], client_id="home-2")
    report = judged(archive)
    assert report.faults() == {}
    assert report.judgement.not_in_tap == []
    (finding,) = report.findings
    assert (finding.kind, finding.hop, finding.device) == ("sender_mismatch", "archive", "home-2")
    assert finding.detail == "home-2/ in the tap, home-1/ in the ledger"


def test_nothing_is_late_for_an_archive_that_is_complete(archive: SmallArchive) -> None:
    archive.send()
    archive.tap[-1] = replace(archive.tap[-1], archived_at_ms=NOON_MS + 3 * HOUR_MS)
    assert [each.kind for each in judged(archive).findings] == ["late"]
    assert judged(archive, lateness_s=0).findings == []


def test_rows_that_lie_in_two_objects_count_once(webhook: SmallArchive) -> None:
    webhook.send(ALARM)
    webhook.handovers = [handed_over(webhook)]
    webhook.send(READING)
    webhook.refuse(b"garbage")
    once, twice = judged(webhook), judged(webhook, twice=True)
    assert twice.judgement == once.judgement


def test_equal_rows_of_one_object_are_copies(archive: SmallArchive) -> None:
    archive.send()
    archive.ledger.append(archive.ledger[-1])
    assert judged(archive, twice=True).faults() == {"duplicated": 1}


def test_what_the_tap_does_not_have_is_for_the_devices_to_judge(archive: SmallArchive) -> None:
    archive.contract = small_contract("strict")
    archive.contracts = [archive.contract]
    delivered = archive.route(archive.event())
    refused = archive.record(archive.event(), outcome=Outcome.DEAD_LETTERED, reason="payload_invalid")
    written = archive.event(DEAD_LETTER_TYPE, source=router_source("home-1"))
    letter = archive.record(written, route="alarms", destination="help.inbox")
    own = replace(letter, outcome=Outcome.DELIVERED, sender=PLANE)
    archive.ledger = [*delivered, refused, replace(own, id="of the plane"), replace(own, sender="home-1/")]
    report = judged(archive)
    assert {(each.id, each.route) for each in report.judgement.not_in_tap} == {
        (delivered[0].id, "readings"),
        (refused.id, "(every route)"),
        (letter.id, "alarms"),
    }
    assert report.faults() == {"unexplained": 3, "dead_lettered": 1}
    assert report.totals["internal"] == 1
    assert report.findings == []


def judged_with(archive: SmallArchive, name: str, **members: Any) -> Judged:
    """Judge the archive whose rows of one folder have other `members`."""
    rules, made = rules_of(archive), Judgement()
    for group in groups_of(archive, rules.history.contracts):
        rows: list[TapRow | HandoverRow] = [row._replace(**members) for row in getattr(group, name)]
        changed: EventGroup = group._replace(**{name: rows})
        judge(changed, rules, made)
    return Judged(made)


def test_a_judgement_needs_no_spark() -> None:
    program = "import sys, glue_jobs.delivery_audit.judge; print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
