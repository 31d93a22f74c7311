"""The compaction: every row once more as Parquet, sorted, whatever it is interrupted by."""

import gzip
import shutil
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from eventplane.archive_layout import LEDGER_FOLDER, TAP_FOLDER, Folder
from glue_jobs.common.hours import Hour
from glue_jobs.common.listing import HourReceipt, published
from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction import compact, files
from glue_jobs.compaction.main import CompactionError, main
from tests.spark.small_archive import HOUR_MS, NOON_MS, SmallArchive

NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)
HOUR = Hour(NOON)
LATER = NOON + timedelta(hours=3)


def compacted(archive: SmallArchive, now: datetime = LATER) -> dict[str, HourReceipt]:
    return main(["--INPUT", str(archive.folder), "--DATE", "all"], now)


def table(spark: SparkSession, archive: SmallArchive, folder: Folder, hour: Hour = HOUR) -> DataFrame:
    objects = FolderObjects(archive.folder)
    return spark.read.parquet(*(f"{objects.uri}/{name}" for name in published(objects, folder, hour)))


def add_object(archive: SmallArchive, name: str, text: str, hour: Hour = HOUR) -> Path:
    path = archive.folder / hour.raw("tap") / f"{name}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))
    return path


def raw_text(archive: SmallArchive, hour: Hour = HOUR) -> str:
    return gzip.decompress((archive.folder / hour.raw("tap") / "rows.json.gz").read_bytes()).decode()


def test_every_row_is_there_and_sorted(spark: SparkSession, archive: SmallArchive) -> None:
    for home in ("home-2", "home-1", "home-3"):
        archive.send(home=home)
    odd = [
        '{"accepted_at_ms":"noon"',
        '["no record"]',
        '{"message_id":"m","index":0,"added":1}',
        '{"message_id":"m","message_id":"n"}',
    ]
    archive.bad_lines = [("tap", line) for line in odd]
    archive.write()
    done = compacted(archive)
    assert {name: each.rows for name, each in done.items()} == {
        f"tap/{HOUR.partition}": 3 + len(odd),
        f"ledger/{HOUR.partition}": 3,
    }
    rows = table(spark, archive, TAP_FOLDER).collect()
    assert {row["archive_file"] for row in rows} == {f"{HOUR.raw('tap')}/rows.json.gz"}
    assert sorted(row["line_text"] for row in rows if row["line_text"]) == sorted(odd)
    whole = [row for row in rows if not row["line_text"]]
    assert [row["source"] for row in whole] == [f"//home-{n}/service" for n in (1, 2, 3)]
    assert {row["event"] for row in whole} == {each.event for each in archive.tap}
    ledger = table(spark, archive, LEDGER_FOLDER).collect()
    assert [(row["source"], row["route"], row["attempt"]) for row in ledger] == [
        (f"//home-{n}/service", "readings", 1) for n in (1, 2, 3)
    ]


def test_an_hour_is_compacted_when_it_is_closed_and_once(archive: SmallArchive) -> None:
    archive.send()
    archive.write()
    assert compacted(archive, NOON + timedelta(minutes=89)) == {}
    assert len(compacted(archive, NOON + timedelta(minutes=90))) == 2
    before = {each: each.read_bytes() for each in archive.folder.rglob("*") if each.is_file()}
    assert compacted(archive) == {}
    assert {each: each.read_bytes() for each in archive.folder.rglob("*") if each.is_file()} == before


def test_runs_continue(spark: SparkSession, archive: SmallArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.send()
    archive.write()
    objects = FolderObjects(archive.folder)

    class PowerCutError(Exception):
        pass

    def cut(*_: Any, **__: Any) -> None:
        raise PowerCutError

    for step in ("write_files", "_verify", "write_receipt", "publish"):
        with monkeypatch.context() as broken:
            broken.setattr(compact, step, cut)
            with pytest.raises(PowerCutError):
                compacted(archive)
        assert published(objects, TAP_FOLDER, HOUR) == []
    # The tap's hour has its receipt, and is published by it.
    assert set(compacted(archive)) == {f"ledger/{HOUR.partition}"}
    assert table(spark, archive, TAP_FOLDER).count() == 1
    parquet = {each.name for each in objects.beneath(HOUR.compacted("tap")) if each.name.endswith(".parquet")}
    assert parquet == set(published(objects, TAP_FOLDER, HOUR))


def test_damage_holds_up_its_own_hour(spark: SparkSession, archive: SmallArchive) -> None:
    archive.send()
    archive.send(at_ms=NOON_MS + HOUR_MS)
    archive.write()
    later = Hour(NOON + timedelta(hours=1))
    damaged = archive.folder / later.raw("tap") / "rows.json.gz"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    for _ in range(2):
        with pytest.raises(CompactionError) as refused:
            main(["--INPUT", str(archive.folder), "--RAW_DAYS", "21"], NOON + timedelta(days=30))
        assert set(refused.value.failures) == {f"tap/{later.partition}"}
    objects = FolderObjects(archive.folder)
    assert published(objects, TAP_FOLDER, later) == []
    assert [each.name for each in objects.beneath("tap")] == [damaged.relative_to(archive.folder).as_posix()]
    assert objects.beneath("ledger") == []
    assert table(spark, archive, TAP_FOLDER).count() == 1
    assert table(spark, archive, LEDGER_FOLDER, later).count() == 1


def test_an_unattested_hour_is_made_anew(spark: SparkSession, archive: SmallArchive) -> None:
    archive.send()
    archive.write()
    compacted(archive)
    receipts = [*(archive.folder / "compactions").rglob("receipt.json")]
    for path in receipts:
        path.write_bytes(path.read_bytes().replace(b'"signature"', b'"other"'))
    assert len(compacted(archive)) == 2
    for path in receipts:
        path.write_bytes(path.read_bytes().replace(b'"signature"', b'"other"'))
    (archive.folder / HOUR.raw("tap") / "rows.json.gz").unlink()
    with pytest.raises(CompactionError, match="run the compaction once with --ATTEST true"):
        compacted(archive)
    assert table(spark, archive, TAP_FOLDER).count() == 1
    arguments = ["--INPUT", str(archive.folder), "--DATE", "all", "--ATTEST", "true"]
    assert main(arguments, LATER) == {}
    assert compacted(archive) == {}


def test_an_object_that_comes_late_is_taken_in(spark: SparkSession, archive: SmallArchive) -> None:
    archive.send()
    archive.write()
    compacted(archive)
    late = raw_text(archive).replace('"tap-1"', '"tap-9"')
    add_object(archive, "late", late)
    assert set(compacted(archive)) == {f"tap/{HOUR.partition}"}
    assert table(spark, archive, TAP_FOLDER).count() == 2


def test_sources_that_left_are_not_lost(spark: SparkSession, archive: SmallArchive) -> None:
    archive.send()
    archive.write()
    compacted(archive)
    text = raw_text(archive)
    (archive.folder / HOUR.raw("tap") / "rows.json.gz").unlink()
    assert compacted(archive) == {}
    add_object(archive, "late", text)
    with pytest.raises(CompactionError, match="late"):
        compacted(archive)
    assert table(spark, archive, TAP_FOLDER).count() == 1


def test_a_change_while_it_reads_is_seen(archive: SmallArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.send()
    archive.write()
    verify = compact._verify

    def meanwhile(*arguments: Any) -> dict[Hour, files.Content]:
        found = verify(*arguments)
        add_object(archive, "more", raw_text(archive))
        return found

    monkeypatch.setattr(compact, "_verify", meanwhile)
    with pytest.raises(CompactionError, match="changed meanwhile"):
        compacted(archive)
    assert published(FolderObjects(archive.folder), TAP_FOLDER, HOUR) == []


def test_wrong_files_are_not_published(archive: SmallArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.send()
    archive.write()
    wrong = files.Content(rows=1, checksum=7, line_texts=0)
    monkeypatch.setattr(compact, "content_of", lambda *_: {HOUR: wrong})
    with pytest.raises(CompactionError, match="checksum 7"):
        compacted(archive)
    assert published(FolderObjects(archive.folder), TAP_FOLDER, HOUR) == []


def test_several_files(spark: SparkSession, archive: SmallArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        archive.send(home=f"home-{number:02}")
    archive.write()
    # Sizes of this test's world: a kilobyte of raw lines shall be some files.
    monkeypatch.setattr(files, "WANTED_BYTES", 200)
    monkeypatch.setattr(files, "MOST_BYTES", 100_000)
    receipt = compacted(archive)[f"tap/{HOUR.partition}"]
    assert len(receipt.files) > 1
    spans = [
        (min(found), max(found))
        for found in (
            [row["source"] for row in spark.read.parquet(f"{archive.folder}/{name}").collect()]
            for name in receipt.files
        )
    ]
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    assert table(spark, archive, TAP_FOLDER).count() == 40


def test_hours_together(spark: SparkSession, archive: SmallArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [Hour(NOON + timedelta(hours=each)) for each in (0, 1, 2, 25)]
    for _ in range(3):
        archive.send()
    archive.write()
    lines = [*raw_text(archive).splitlines(), '{"message_id":"tap-1","index":0,"added":1}', "odd", "odd"]
    for place, hour in enumerate(hours[1:]):
        add_object(archive, "again", "\n".join([*lines[place:], lines[-1]]), hour)
    done, rows = [], []
    for most in (1, 48):  # each by itself, and all at once
        for each in ("compacted", "published", "compactions"):
            shutil.rmtree(archive.folder / each, ignore_errors=True)
        monkeypatch.setattr(compact, "MOST_HOURS", most)
        receipts = compacted(archive, NOON + timedelta(days=3))
        done.append({hour: (each.rows, each.line_texts) for hour, each in receipts.items()})
        rows.append([sorted(map(str, table(spark, archive, TAP_FOLDER, each).collect())) for each in hours])
    assert done[0] == done[1]
    assert rows[0] == rows[1]
    assert [done[0][f"tap/{hour.partition}"] for hour in hours] == [(3, 0), (7, 4), (6, 4), (5, 4)]
