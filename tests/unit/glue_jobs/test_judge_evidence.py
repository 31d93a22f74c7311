"""Evidence against evidence: holes of the archive, newer versions, and records that contradict each other."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any, Final

import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import router_source, short_digest
from eventplane.ledger import LedgerRecord, to_line
from eventplane.names import PLANE
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.event_group import DeadLetterCount, HoleCount, HourCount
from glue_jobs.delivery_audit.findings import BROKEN_KINDS, INCOMPLETE_KINDS
from glue_jobs.delivery_audit.judge import judge
from glue_jobs.delivery_audit.rules import MissingRows
from tests.spark.small_archive import (
    ALARM,
    DAY,
    DIARY,
    HOUR_MS,
    NOON_MS,
    READING,
    WEBHOOK,
    SmallArchive,
    small_contract,
)
from tests.unit.glue_jobs.judging import FILES, at_noon, groups_of, hour, judged, nothing_is_accused, rules_of

NOON = NOON_MS // HOUR_MS


class TestHolesOfTheLedger:
    """An hour of the ledger whose records may be missing."""

    def test_events_without_a_record_are_unrecorded(self, archive: SmallArchive) -> None:
        archive.accept(archive.event(READING))
        archive.accept(archive.event(READING), at_ms=NOON_MS - 200_000)
        archive.accept(archive.event(DIARY))
        report = judged(archive, damaged=at_noon("ledger"))
        assert report.faults() == {"unrecorded": 3}
        assert report.route("readings")["unrecorded"] == report.route("readings")["expected"] == 2
        assert report.findings == []
        assert report.judgement.replay == []
        assert report.judgement.counts[HoleCount("ledger", NOON)] == 3

    @pytest.mark.parametrize("at_ms", [NOON_MS - 301_000, NOON_MS + HOUR_MS])
    def test_a_loss_beside_the_hole_stays_a_loss(self, archive: SmallArchive, at_ms: int) -> None:
        archive.accept(archive.event(), at_ms=at_ms)
        assert judged(archive, damaged=at_noon("ledger")).faults() == {"lost": 1}

    def test_a_record_that_proves_nothing_is_no_hole(self, archive: SmallArchive) -> None:
        archive.send()
        archive.alter(outcome=Outcome.EXPIRED)
        assert judged(archive, damaged=at_noon("ledger")).faults() == {"lost": 1}

    def test_a_young_event_is_pending_also_in_a_hole(self, archive: SmallArchive) -> None:
        archive.accept(archive.event())
        report = judged(archive, as_of="2026-03-01T12:30:00Z", damaged=at_noon("ledger"))
        assert report.faults() == {"pending": 1}

    def test_a_refused_item_whose_record_lies_in_it_is_not_lost(self, archive: SmallArchive) -> None:
        archive.refuse(b"garbage")
        archive.ledger.clear()
        report = judged(archive, damaged=at_noon("ledger"))
        assert report.faults() == {}
        assert report.findings == []
        assert report.judgement.counts[DeadLetterCount("unrecorded", "cloud", "not_json")] == 1


HELD: Final = {"ledger": [MissingRows(NOON_MS // 1_000 + 10, NOON_MS // 1_000 + 20, 2, NOON)]}


class TestGoneObjects:
    """Objects that are gone, of which the list of their writer has times and rows."""

    @pytest.mark.parametrize(("at_s", "lost"), [(9, 1), (10, 0), (20, 0), (21, 1)])
    def test_only_events_of_their_times_fit(self, archive: SmallArchive, at_s: int, lost: int) -> None:
        archive.accept(archive.event(), at_ms=NOON_MS + 1_000 * at_s)
        report = judged(archive, missing=HELD)
        assert report.faults() == {"lost" if lost else "unrecorded": 1}

    def test_they_go_before_an_hour_without_objects(self, archive: SmallArchive) -> None:
        archive.accept(archive.event(), at_ms=NOON_MS + 12_000)
        counts = judged(archive, missing=HELD, damaged=at_noon("ledger")).judgement.counts
        assert counts[HoleCount("ledger", NOON, NOON_MS // 1_000 + 12)] == 1

    def test_they_explain_no_more_than_they_held(self, archive: SmallArchive) -> None:
        for second in (10, 11, 12, 12, 20, 25):
            archive.accept(archive.event(), at_ms=NOON_MS + 1_000 * second)
        rules = rules_of(archive, missing=HELD)
        counts = judged(archive, missing=HELD).judgement.counts
        within = rules.within_rows(counts)
        report = judged(archive, missing=within.missing)
        assert report.faults() == {"unrecorded": 2, "lost": 4}
        assert len(report.judgement.replay) == 4
        assert within.within_rows(report.judgement.counts) is None
        assert rules.within_rows({HoleCount("ledger", NOON, NOON_MS // 1_000 + 10): 2}) is None

    def test_a_span_that_was_cut_to_nothing_excuses_nothing(self, archive: SmallArchive) -> None:
        archive.use(small_contract(inboxes={"help": WEBHOOK}))
        for _ in range(4):
            archive.send(ALARM)
        archive.handovers.clear()
        put_s = archive.ledger[0].decided_at_ms // 1_000
        held = {"handovers": [MissingRows(put_s + 60, put_s + 70, 1, NOON)]}
        within = rules_of(archive, missing=held).within_rows(judged(archive, missing=held).judgement.counts)
        assert judged(archive, missing=within.missing).consumed() == {("help.inbox", "lost"): 4}

    def test_a_handover_in_one_is_unrecorded_at_its_end(self, archive: SmallArchive) -> None:
        archive.use(small_contract(inboxes={"help": WEBHOOK}))
        archive.send(ALARM)
        archive.handovers.clear()
        put_s = archive.ledger[0].decided_at_ms // 1_000
        held = {"handovers": [MissingRows(put_s, put_s + 60, 1, NOON)]}
        assert judged(archive, missing=held).consumed() == {("help.inbox", "unrecorded"): 1}
        assert judged(archive).consumed() == {("help.inbox", "lost"): 1}


def newer(row: LedgerRecord, **members: Any) -> str:
    """The line of a row as a newer version writes it."""
    return json.dumps({**json.loads(to_line(row)), **members})


class TestNotUnderstood:
    """What a newer version wrote, or a writer cut: it neither proves nor accuses."""

    @pytest.mark.parametrize("members", [{"attempt": "1"}, {"attempt": 1.5}, {"decided_at_ms": "noon"}])
    def test_a_line_of_other_types(self, archive: SmallArchive, members: dict[str, Any]) -> None:
        archive.send()
        archive.bad_lines = [("ledger", newer(archive.ledger.pop(), **members))]
        report = judged(archive)
        assert report.faults() == {"not_understood": 1, "quarantined": 1}
        assert nothing_is_accused(report)
        (finding,) = report.findings
        assert (finding.kind, finding.hop, finding.route) == ("not_understood", "router", "readings")
        assert finding.kind in INCOMPLETE_KINDS

    @pytest.mark.parametrize(
        "change",
        [("{", '{"contract_version":["1"],'), ("}", ',"more":' + "[" * 100_000)],
        ids=["a list as version", "nested too deep"],
    )
    def test_a_foreign_line_ends_nothing(self, archive: SmallArchive, change: tuple[str, str]) -> None:
        archive.send()
        members = json.loads(to_line(archive.ledger.pop()))
        del members["contract_version"]
        line = json.dumps(members, separators=(",", ":"))
        archive.bad_lines = [("ledger", line.replace(*change))]
        report = judged(archive)
        assert report.faults() == {"not_understood": 1, "quarantined": 1}
        assert nothing_is_accused(report)

    @pytest.mark.parametrize(
        ("members", "reason"),
        [
            ({"outcome": "postponed"}, "unknown_outcome"),
            ({"basis": "guessed"}, "unknown_basis"),
            ({"contract_version": "sha256:of a newer one"}, "unknown_contract"),
        ],
    )
    def test_an_unknown_value(self, archive: SmallArchive, members: dict[str, Any], reason: str) -> None:
        archive.send()
        archive.alter(**members)
        report = judged(archive)
        assert report.faults() == {"not_understood": 1, "quarantined": 1}
        assert nothing_is_accused(report)
        assert [(each.kind, each.detail) for each in report.findings] == [("not_understood", reason)]
        assert report.rows() == {("tap", None): 1, ("ledger", reason): 1}

    @pytest.mark.parametrize("folder", ["tap", "ledger"])
    def test_a_row_with_unknown_members(self, archive: SmallArchive, folder: str) -> None:
        archive.send()
        report = judged(archive, **{folder: {"unknown_members": True}})
        assert report.faults() == {"not_understood": 1, "quarantined": 1}
        assert nothing_is_accused(report)
        assert report.judgement.not_in_tap == []

    def test_a_row_excuses_its_own_route_only(self, archive: SmallArchive) -> None:
        archive.use(small_contract(copies={"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"}))
        archive.send(ALARM)
        (row,) = (row for row in archive.ledger if row.route == "copies")
        archive.ledger = [replace(row, outcome="postponed")]  # type: ignore[arg-type]
        report = judged(archive)
        assert (report.route("copies")["not_understood"], report.route("alarms")["lost"]) == (1, 1)
        # Which routes a contract has that nobody knows, nobody knows.
        archive.ledger = [replace(row, contract_version="sha256:of a newer one")]
        assert judged(archive).faults() == {"not_understood": 2, "quarantined": 1}

    def test_a_row_that_is_understood_goes_before_one_that_is_not(self, archive: SmallArchive) -> None:
        archive.send()
        archive.ledger.append(replace(archive.ledger[-1], outcome="postponed"))  # type: ignore[arg-type]
        report = judged(archive)
        assert report.faults() == {"quarantined": 1}
        assert report.totals["delivered"] == 1

    def test_a_cut_line_that_names_its_event(self, archive: SmallArchive) -> None:
        event = archive.send()
        archive.bad_lines = [("ledger", to_line(archive.ledger.pop())[:-20])]
        report = judged(archive)
        assert report.faults() == {"not_understood": 1, "quarantined": 1}
        assert [(each.kind, each.id) for each in report.findings] == [("not_understood", event.id)]
        assert nothing_is_accused(report)


def test_useless_rows_are_quarantined(archive: SmallArchive) -> None:
    archive.send()
    good = archive.ledger[0]
    archive.ledger += [
        replace(good, id="nowhere", destination=None),
        replace(good, id="timeless", decided_at_ms=10**18),
        replace(good, id="nameless", entered_by=None),  # type: ignore[arg-type]
    ]
    archive.bad_lines = [("tap", "[]"), ("ledger", '{"decided_at_ms":177')]
    report = judged(archive)
    assert report.faults() == {"quarantined": 5}
    assert [(each.kind, each.id) for each in report.findings] == [("contradiction", "timeless")]
    assert report.rows() == {
        ("tap", None): 1,
        ("ledger", None): 1,
        ("tap", "unreadable_line"): 1,
        ("ledger", "unreadable_line"): 1,
        ("ledger", "delivered_nowhere"): 1,
        ("ledger", "impossible_time"): 1,
        ("ledger", "missing_member"): 1,
    }
    kept = {(each.archive, each.reason): each for each in report.judgement.quarantine}
    assert kept["tap", "unreadable_line"].text == "[]"
    nowhere = kept["ledger", "delivered_nowhere"]
    assert (nowhere.date, nowhere.file, nowhere.id) == (DAY, FILES["ledger"], "nowhere")
    assert json.loads(nowhere.text or "")["route"] == "readings"


class TestContradictions:
    """Tap and ledger, or two rows of one of them, do not fit together."""

    def test_what_was_decided_before_it_was_accepted(self, archive: SmallArchive) -> None:
        for early_ms in (5_020, 5_041):
            archive.send()
            archive.alter(decided_at_ms=archive.ledger[-1].decided_at_ms - early_ms)
        (finding,) = judged(archive).findings
        assert (finding.kind, finding.hop, finding.id) == ("causality", "router", archive.ledger[1].id)
        assert finding.detail == "decided 5001 ms before it was accepted"
        assert finding.kind in INCOMPLETE_KINDS

    def test_another_type_in_the_ledger(self, archive: SmallArchive) -> None:
        archive.send()
        archive.alter(type=ALARM)
        (finding,) = judged(archive).findings
        assert (finding.kind, finding.hop) == ("type_mismatch", "router")
        assert finding.detail == f"{READING} in the tap, {ALARM} in the ledger"
        assert finding.kind in BROKEN_KINDS

    @pytest.mark.parametrize(
        "members",
        [{"data": {"value": 7}}, {"subject": "x"}, {"time": "2026-03-01T00:00:00Z"}, {"anything": "x"}],
        ids=lambda each: "".join(each),
    )
    def test_another_event_of_the_same_id(self, archive: SmallArchive, members: dict[str, Any]) -> None:
        event = archive.send()
        archive.accept(event, at_ms=NOON_MS + 1)
        altered = json.dumps(json.loads(event.json) | members)
        archive.tap[0] = replace(archive.tap[0], event=altered)
        found = [each for each in judged(archive).findings if each.kind == "content_mismatch"]
        assert [(each.hop, each.id) for each in found] == [("archive", event.id)]
        assert short_digest(event.json.encode()) in str(found[0].detail)
        assert found[0].kind in BROKEN_KINDS

    @pytest.mark.parametrize(("digest", "kinds"), [("0" * 16, ["content_mismatch"]), (None, [])])
    def test_another_digest(self, archive: SmallArchive, digest: str | None, kinds: list[str]) -> None:
        archive.send()
        archive.alter(digest=digest)
        assert [each.kind for each in judged(archive).findings] == kinds

    @pytest.mark.parametrize(("hours", "kinds"), [("12", []), ("11", ["content_mismatch"])])
    def test_an_unexplained_redaction(self, archive: SmallArchive, hours: str, kinds: list[str]) -> None:
        archive.send()
        rules = replace(rules_of(archive), erased=frozenset({hour(f"2026-03-01T{hours}")}))
        (group,) = groups_of(archive, rules.history.contracts)
        redacted = group._replace(tap=[group.tap[0]._replace(is_redacted=True)])
        assert [each.kind for each in judge(redacted, rules).findings] == kinds

    def test_one_id_with_two_payloads(self, archive: SmallArchive) -> None:
        event = archive.send()
        archive.accept(event)
        assert [each.kind for each in judged(archive).findings] == ["duplicate"]
        other = archive.event(data={"value": "another"}, id=event.id, source=event.source)
        archive.accept(other)
        archive.route(other)
        report = judged(archive)
        assert [each.kind for each in report.findings] == ["reused_id", "duplicate"]
        reused = report.findings[0]
        assert (reused.hop, reused.detail) == ("device_cloud", "2 different payloads")
        assert reused.kind in BROKEN_KINDS
        # One copy is a second one of the first payload, and was not routed.
        assert (report.totals["tap_copies"], report.totals["duplicated"]) == (1, 0)
        assert report.judgement.counts[HourCount("tap_copies", "home-1", NOON)] == 1

    @pytest.mark.parametrize("members", [{"client_id": "home-2"}, {"sender": "home-2/"}])
    def test_a_sender_of_another_device(self, archive: SmallArchive, members: dict[str, str]) -> None:
        archive.send()
        row = archive.alter(**members)
        report = judged(archive)
        assert report.faults() == {}, "no event is missing"
        (finding,) = report.findings
        assert (finding.kind, finding.hop) == ("sender_mismatch", "router")
        assert finding.detail == f"the ledger names the sender {row.sender} and the client {row.client_id}"

    def test_a_frame_of_another_client_is_not_lost(self, archive: SmallArchive) -> None:
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


def test_equal_rows_of_one_object_are_copies(archive: SmallArchive) -> None:
    archive.send()
    archive.ledger.append(archive.ledger[-1])
    assert judged(archive, twice=True).faults() == {"duplicated": 1}


def test_what_the_tap_does_not_have_is_for_the_devices_to_judge(archive: SmallArchive) -> None:
    archive.use(small_contract("strict"))
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


def test_a_judgement_needs_no_spark() -> None:
    program = "import sys, glue_jobs.delivery_audit.judge; print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
