"""The job as Glue runs it: what it writes, over which window, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from pyspark.sql import SparkSession

from contract import load_contract
from eventplane import replay
from eventplane.envelope import Envelope, parse_event
from eventplane.names import VERDICT
from glue_jobs.delivery_audit import event_group, publication
from glue_jobs.delivery_audit.errors import (
    AlteredContractError,
    EmptyWindowError,
    NoArchiveError,
    NoContractError,
    OutboxError,
)
from glue_jobs.delivery_audit.main import main
from local.audits import read_report
from tests.spark.reading import Audit, faults
from tests.spark.small_archive import ALARM, DAY, DIARY, NOON_MS, READING, SmallArchive, small_contract


def test_a_right_archive_has_nothing_to_complain_about(
    archive: SmallArchive, audit: Audit, spark: SparkSession, tmp_path: Path
) -> None:
    for home in ("home-1", "home-2"):
        archive.send(ALARM, home)
        archive.send(READING, home)
        archive.send(READING, home)
    report = audit()
    assert faults(report) == {}
    assert report["totals"]["events_archived"] == 6
    assert report["totals"]["expected"] == report["totals"]["delivered"] == 6
    assert report["by_destination"] == {
        "care.inbox": {"delivered_unique": 4, "delivered_total": 4, "may_expire": 0},
        "help.inbox": {"delivered_unique": 2, "delivered_total": 2, "may_expire": 0},
    }
    assert report["contract_versions"][0]["version"] == archive.contract.version
    assert report["window"]["first_accepted_ms"] == NOON_MS
    assert report["findings"] == []
    # What main returned is what stands in the file, and the tables say the same.
    assert read_report(tmp_path / "audit") == report
    routes = spark.read.parquet(str(tmp_path / "audit" / "routes")).orderBy("route").collect()
    assert [(str(row["date"]), row["route"], row["expected"]) for row in routes] == [
        (DAY, "alarms", 2),
        (DAY, "readings", 4),
    ]


def test_a_day_s_audit_sees_what_was_accepted_on_that_day(archive: SmallArchive, audit: Audit) -> None:
    midnight = NOON_MS + 12 * 3_600_000
    archive.send()
    archive.send(at_ms=midnight - 1)  # archived and decided after midnight
    archive.send(at_ms=midnight)
    report = audit(DAY)
    assert faults(report) == {}
    assert report["totals"]["delivered"] == 2
    assert faults(audit("all")) == {}


def test_repeating_a_day_replaces_its_tables_and_keeps_its_reports(
    archive: SmallArchive, audit: Audit, spark: SparkSession, tmp_path: Path
) -> None:
    archive.send()  # an hour without any decision would be a hole of the archive
    accepted_ms = NOON_MS + 30 * 60_000
    late = archive.event(at_ms=accepted_ms)
    archive.accept(late, at_ms=accepted_ms)
    # The hour that the record will be written in is not over.
    assert audit(DAY, "2026-03-01T13:40:00Z", output="audit")["totals"]["findings"] == 1
    findings = tmp_path / "audit" / "findings" / f"date={DAY}"
    assert findings.exists()
    # The record comes in the next hour, into another object.
    decided_ms = accepted_ms + 50 * 60_000
    for row in archive.route(late, at_ms=accepted_ms):
        at = {"decided_at_ms": decided_ms, "received_at_ms": decided_ms}
        archive.ledger[archive.ledger.index(row)] = replace(row, **at)
    again = audit(DAY, output="audit")
    assert (again["totals"]["findings"], again["findings"]) == (0, [])
    assert again["revision"]["number"] == 1
    assert again["revision"]["changed"]["lost"] == [1, 0]
    assert not findings.exists()
    assert spark.read.parquet(str(tmp_path / "audit" / "routes")).count() == 1
    assert read_report(tmp_path / "audit", DAY) == again
    first = json.loads((tmp_path / "audit" / "reports" / DAY / "0.json").read_text("utf-8"))
    assert first["totals"]["lost"] == 1


def test_a_verdict_that_cannot_be_sent_fails_the_job_and_the_next_one_sends_it(
    archive: SmallArchive, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.send()
    archive.write()
    output = tmp_path / "audit"
    job = ["--INPUT", str(archive.folder), "--OUTPUT", str(output), "--OUTBOX", "https://queue"]
    sent: list[Envelope] = []

    def fail(url: str, event: Envelope) -> None:
        raise OutboxError(url, "no")

    monkeypatch.setattr(publication, "send_verdict", fail)
    with pytest.raises(OutboxError, match="the report is filed"):
        main(job)
    assert spark.read.parquet(str(output / "routes")).count() == 1
    monkeypatch.setattr(publication, "send_verdict", lambda _, event: sent.append(event))
    document = main(job)
    assert [each.data()["revision"]["number"] for each in sent] == [0, 1]
    assert parse_event((output / "verdicts" / "all.json").read_text().strip()) == sent[-1]
    (schema,) = load_contract().event_types[VERDICT].schemas.values()
    jsonschema.validate(sent[-1].data(), dict(schema))
    assert read_report(output) == document


def test_the_replay_and_the_audit_mean_the_same_records() -> None:
    assert replay.REPLAY == event_group.REPLAY


def test_an_input_without_an_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoArchiveError, match="--INPUT"):
        main(["--INPUT", str(tmp_path), "--OUTPUT", str(tmp_path / "audit")])


def test_an_archive_without_its_contract_is_refused(archive: SmallArchive, audit: Audit) -> None:
    archive.send()
    archive.contracts = []
    with pytest.raises(NoContractError, match=archive.contract.version):
        audit()


def test_an_altered_contract_is_refused(archive: SmallArchive, audit: Audit) -> None:
    archive.send()
    archive.write()
    other = small_contract(more={"filter": {"exact": {"type": DIARY}}, "to": "care.inbox"})
    (archive.folder / "contracts" / f"{archive.contract.version}.json").write_bytes(other.canonical)
    archive.contracts = []
    with pytest.raises(AlteredContractError, match=other.version):
        audit()


def test_an_empty_window_is_refused(archive: SmallArchive, audit: Audit) -> None:
    archive.send()
    with pytest.raises(EmptyWindowError, match="2020-01-01"):
        audit("2020-01-01")


def test_a_wrong_date_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--INPUT", "a", "--OUTPUT", "b", "--DATE", "noon"])
    assert "YYYY-MM-DD" in capsys.readouterr().err
