"""An archive that is changed between two audits: what nobody may change is found, what is lawful is not."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction.main import main as compact
from glue_jobs.delivery_audit.chain import History
from glue_jobs.delivery_audit.main import main
from glue_jobs.delivery_audit.verdict import digest_of, revision_of, verdict_event
from glue_jobs.erasure.main import main as erase
from local.audits import read_report
from tests.spark.small_archive import DAY, NOON_MS, SmallArchive

HOUR_MS = 3_600_000
MONTH_LATER = datetime.fromtimestamp(NOON_MS / 1_000, UTC) + timedelta(days=30)
TAP, LEDGER = (f"{folder}/date={DAY}/hour=12/rows.json.gz" for folder in ("tap", "ledger"))


@pytest.fixture
def written(archive: SmallArchive) -> SmallArchive:
    """Two homes over three hours, without a fault."""
    for hour in range(3):
        for home in ("home-1", "home-2"):
            archive.send(home=home, at_ms=NOON_MS + hour * HOUR_MS)
    archive.write()
    return archive


def audit(archive: SmallArchive) -> dict[str, Any]:
    """Audit the archive into its own folder, as the plane does."""
    words = ["--INPUT", str(archive.folder), "--OUTPUT", str(archive.folder / "audit")]
    return main([*words, "--DATE", DAY, "--AS_OF", "2026-04-01T00:00:00Z"])


def altered(report: dict[str, Any]) -> dict[str, str]:
    """The objects that are not what they were, each with the first word about it."""
    return {
        each["archive_file"]: each["detail"].split()[0]
        for each in report["findings"]
        if each["kind"] == "altered_object"
    }


def test_altered_removed_and_added_objects_are_found_until_they_are_restored(
    spark: SparkSession, written: SmallArchive
) -> None:
    first = audit(written)
    assert first["chain"]["compared"] is None
    assert altered(audit(written)) == {}

    tap, ledger = written.folder / TAP, written.folder / LEDGER.replace("hour=12", "hour=13")
    added = ledger.with_name("added.json.gz")
    was = {path: path.read_bytes() for path in (tap, ledger)}
    tap.write_bytes(gzip.compress(gzip.decompress(was[tap]).replace(b'value\\":1', b'value\\":2')))
    added.write_bytes(was[ledger].replace(was[ledger], gzip.compress(b"")))
    ledger.unlink()
    for _ in range(2):
        report = audit(written)
        assert altered(report) == {
            TAP: "altered",
            ledger.relative_to(written.folder).as_posix(): "removed",
            added.relative_to(written.folder).as_posix(): "added",
        }
        assert report["verdict"] == "broken"
        assert report["totals"]["lost"] == 0, "nobody but the archive lost them"
        assert report["totals"]["unrecorded"] == 2

    added.unlink()
    for path, body in was.items():
        path.write_bytes(body)
    last = audit(written)
    assert altered(last) == {}
    assert (last["verdict"], last["totals"]) == (first["verdict"], first["totals"])
    assert last["revision"]["number"] == 4


def test_compaction_and_erasure_change_objects_lawfully_and_nobody_else(
    spark: SparkSession, written: SmallArchive
) -> None:
    first = audit(written)
    compact(["--INPUT", str(written.folder), "--DATE", "all"], MONTH_LATER)
    compacted = audit(written)
    compact(["--INPUT", str(written.folder), "--DATE", "all", "--RAW_DAYS", "16"], MONTH_LATER)
    assert not (written.folder / TAP).exists()
    without_raw = audit(written)
    for report in (compacted, without_raw):
        assert altered(report) == {}
        assert report["totals"] == first["totals"]
        assert report["archive"]["folders"][0]["compacted"] > 0

    erase(["--INPUT", str(written.folder), "--SOURCE", "//home-1/", "--CLIENT", "home-1"], MONTH_LATER)
    erased = audit(written)
    assert altered(erased) == {}
    assert erased["chain"]["compared"]["erased"] > 0
    assert erased["totals"]["events_archived"] == first["totals"]["events_archived"] - 3

    (file, *_) = (written.folder / "compacted" / "tap").rglob("*.parquet")
    spark.read.parquet(str(file)).limit(1).coalesce(1).write.parquet(str(written.folder / "other"))
    (other,) = (written.folder / "other").glob("*.parquet")
    other.replace(file)
    report = audit(written)
    assert altered(report) == {file.relative_to(written.folder).as_posix(): "altered"}
    assert report["totals"]["lost"] == 0
    assert "forged" not in {each["kind"] for each in report["kinds"]}


def test_a_report_that_is_altered_afterwards_is_found(spark: SparkSession, written: SmallArchive) -> None:
    audit(written)
    report = written.folder / "audit" / "reports" / DAY / "0.json"
    report.write_text(report.read_text().replace('"lost": 0', '"lost": 1', 1))
    assert altered(audit(written)) == {f"audit/reports/{DAY}/0.json": "altered"}


def test_two_audits_of_a_window_at_once_are_two_revisions(spark: SparkSession, written: SmallArchive) -> None:
    with ThreadPoolExecutor(2) as together:
        reports = list(together.map(audit, [written, written]))
    assert sorted(each["revision"]["number"] for each in reports) == [0, 1]
    assert reports[0]["totals"] == reports[1]["totals"]
    output = written.folder / "audit"
    assert read_report(output, DAY)["revision"]["number"] == 1
    assert _rows(spark, output / "devices") == 2
    third = audit(written)
    assert altered(third) == {}
    assert third["revision"] == {**third["revision"], "number": 2, "changed": {}}
    history = History(FolderObjects(output), DAY)
    bodies = [(output / "reports" / DAY / f"{number}.json").read_bytes() for number in range(3)]
    chain = [json.loads(each)["chain"]["before"] for each in bodies]
    assert chain == [None, *(digest_of(verdict_event(each).json.encode()) for each in bodies[:2])]
    assert revision_of(history.last()) == 2


def _rows(spark: SparkSession, table: Path) -> int:
    return spark.read.parquet(str(table)).count()
