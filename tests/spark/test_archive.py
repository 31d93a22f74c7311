"""The reader of the archive: rows from whatever object they are in, and what is wrong with the objects."""

import gzip
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import LEDGER_FOLDER, TAP_FOLDER, Folder
from eventplane.device_reports import MANIFEST, short_digest
from eventplane.envelope import Envelope
from eventplane.ledger import to_line
from glue_jobs.common.archive import Archive, ArchivePart, records
from glue_jobs.common.attestation import attest, open_key
from glue_jobs.common.hours import Days, Hour
from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction.main import main as compact
from tests.golden_digests import DIGESTS, SHORT
from tests.spark.small_archive import NOON_MS, SmallArchive

NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)
HOUR = Hour(NOON)
LATER = NOON + timedelta(hours=3)
HOUR_MS = 3_600_000
ROWS = "rows.json.gz"
ALL = Days()

TEXTS = ("source", "id", "type", "recordedtime", "deviceepoch", "devicesequence", "severitynumber", "room")
ATTRIBUTES: dict[str, Any] = {
    "texts": TEXTS,
    "integers": ("severitynumber", "room"),
    "booleans": ("urgent", "room"),
}


class Reading:
    """Reads the folder of `archive` as the jobs do."""

    def __init__(self, spark: SparkSession, archive: SmallArchive) -> None:
        self.archive = archive
        self._spark = spark
        self.forget_damage()

    def forget_damage(self) -> None:
        """Read by a new reader."""
        self.reader = Archive(self._spark, FolderObjects(self.archive.folder))

    def read(self, folder: Folder = TAP_FOLDER, days: Days = ALL) -> tuple[list[dict[str, Any]], ArchivePart]:
        def work() -> tuple[list[dict[str, Any]], ArchivePart]:
            more = ATTRIBUTES if folder is TAP_FOLDER else {}
            part = self.reader.read(self.reader.listed(folder, days, open_key(None)), **more)
            return [row.asDict(recursive=True) for row in part.rows.collect()], part

        rows, part = self.reader.isolating(work)
        return sorted(rows, key=lambda row: (row["file"], json.dumps(row))), part

    def path(self, name: str = ROWS, folder: str = "tap", hour: Hour = HOUR) -> Path:
        return self.archive.folder / hour.raw(folder) / name


@pytest.fixture
def reading(spark: SparkSession, archive: SmallArchive) -> Reading:
    """Three events, of which one is a report and one has attributes of every JSON type."""
    archive.send(home="home-1", room=7, urgent=True)
    archive.send(home="home-2", severitynumber=17, at_ms=NOON_MS + HOUR_MS)
    archive.send(type=MANIFEST, home="home-1")
    archive.write()
    return Reading(spark, archive)


def compacted(archive: SmallArchive) -> None:
    compact(["--INPUT", str(archive.folder), "--DATE", "all"], LATER + timedelta(days=2))


def without_raw(archive: SmallArchive) -> None:
    for folder in ("tap", "ledger", "handovers"):
        shutil.rmtree(archive.folder / folder, ignore_errors=True)


def without_envelope(archive: SmallArchive) -> None:
    """The receipts say that the files are of a version before the columns of the envelope."""
    for path in (archive.folder / "compactions").rglob("receipt.json"):
        receipt = json.loads(path.read_bytes())
        del receipt["attestation"]
        receipt |= {each: list(receipt[each]) for each in ("inputs", "files")}
        name = path.relative_to(archive.folder).as_posix()
        path.write_bytes(attest(open_key(None), name, {**receipt, "version": 2}))


def test_lines_and_files_have_the_digest(spark: SparkSession, archive: SmallArchive) -> None:
    for text in DIGESTS:
        archive.accept(Envelope({}, text))
    archive.refuse(b"{}")
    like = to_line(replace(archive.tap[0], event="{}", message_id="redacted"))
    stated = "redacted", "0" * 16
    archive.bad_lines = [("tap", f'{like[:-1]},"digest":"{each}"}}') for each in stated]
    archive.write()
    own = short_digest(b"{}")
    redacted = {("{}", own, each) for each in stated}
    expected = {*((*each, None) for each in SHORT.items()), *redacted, (None, None, None)}
    reading = Reading(spark, archive)
    for change in (lambda _: None, compacted, without_raw, without_envelope):
        change(archive)
        rows, _ = reading.read()
        found = ((row["event"], row["event_digest"], row["digest"]) for row in rows)
        assert {(text and text.strip(), *digests) for text, *digests in found} == expected
        assert {row["line"] or row["unknown_members"] for row in rows} == {False}


@pytest.mark.parametrize("folder", [TAP_FOLDER, LEDGER_FOLDER], ids=lambda each: each.name)
def test_compacted_hours_have_the_same_rows(folder: Folder, reading: Reading) -> None:
    reading.archive.bad_lines = [
        (folder.name, line)
        for line in (
            '{"cut',
            '{"accepted_at_ms":1,"decided_at_ms":1,"message_id":"m","added":1}',
            '{"accepted_at_ms":"1","decided_at_ms":"1"}',
            '{"another":"record"}',
        )
    ]
    reading.archive.write()
    raw, _ = reading.read(folder)
    assert {row["unknown_members"] for row in raw} == {True, False}
    assert sum(row["line"] is not None for row in raw) == 3
    compacted(reading.archive)
    for make_older in (lambda _: None, without_envelope, without_raw):
        make_older(reading.archive)
        rows, part = reading.read(folder)
        assert rows == raw
        assert part.faults == ()
        assert all(each.name.endswith(".parquet") for each in part.objects)
        assert len(part.receipts) == len(part.hours)


def test_rows_that_are_in_files_and_in_raw_objects_or_in_late_ones_are_read_once(reading: Reading) -> None:
    reading.path("other.json.gz").write_bytes(gzip.compress(b'{"message_id":"other","index":0}\n'))
    raw, _ = reading.read()
    compacted(reading.archive)
    late = reading.path("late.json.gz")
    late.write_bytes(gzip.compress(b'{"message_id":"late","index":0}\n'))
    assert sum(row["message_id"] == "late" for row in reading.read()[0]) == 1
    late.unlink()
    # What the compaction would have written last, and an object that is gone since.
    shutil.rmtree(reading.archive.folder / "compactions")
    reading.path().unlink()
    assert reading.read()[0] == raw


def test_an_object_with_a_wrong_checksum_is_a_fault(reading: Reading) -> None:
    """Other damages are those of test_audit_damage.py."""
    whole, _ = reading.read()
    line = b'{"message_id":"m","index":0}\n'
    reading.path("altered.json.gz").write_bytes(gzip.compress(line)[:-8] + b"12345678")
    rows, part = reading.read()
    assert rows == whole
    assert [(each.name, each.rows) for each in part.faults] == [(f"{HOUR.raw('tap')}/altered.json.gz", 0)]


def test_a_damaged_compacted_file_is_replaced_by_the_raw_objects(reading: Reading) -> None:
    raw, _ = reading.read()
    compacted(reading.archive)
    (file,) = (reading.archive.folder / HOUR.compacted("tap")).rglob("*.parquet")
    content = file.read_bytes()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    half = len(content) // 2
    for damaged, problem in {
        content[:half]: "it is cut short: ",
        content[4:]: "it is not Parquet",
        content[:4] + bytes(half) + content[4 + half :]: "a page of it, or its footer, was altered: ",
    }.items():
        file.write_bytes(damaged)
        reading.forget_damage()
        rows, part = reading.read()
        assert rows == raw
        (fault,) = part.faults
        assert (fault.kind, fault.hour, fault.folder) == ("unreadable", HOUR, "tap")
        assert fault.detail.startswith(problem)
    without_raw(reading.archive)
    rows, part = reading.read()
    assert rows == [row for row in raw if not row["file"].startswith(HOUR.raw("tap"))]
    assert [(each.kind, each.hour) for each in part.faults] == [("unreadable", HOUR)]


def test_what_fails_for_another_reason_fails(reading: Reading) -> None:
    class OtherError(Exception):
        pass

    def work() -> None:
        reading.read()
        raise OtherError

    with pytest.raises(OtherError):
        reading.reader.isolating(work)


def variants(line: str, folder: Folder) -> list[tuple[str, bool]]:
    """Lines made of a writer's, and whether each has a member that no column holds, or one twice."""
    members = json.loads(line)
    last = [*members][-1]
    same = [line, line.replace('":', '": '), json.dumps(dict(reversed(members.items())))]
    same += [json.dumps(members), json.dumps({**members, "message_id": 'a"b\\'}), f" {line}"]
    same += [json.dumps({**members, last: None}, separators=(",", ":"))]
    del members[last]
    same += [json.dumps(members, separators=(",", ":"))]
    # As long as the line with the member that it lacks.
    others = [json.dumps({**members, f"{last[:-1]}_": json.loads(line)[last]}, separators=(",", ":"))]
    others += [line.replace('{"', '{"added":1,"', 1), f'{line[:-1]},"added":null}}', f'{line[:-1]},"":""}}']
    others += [
        line.replace(',"message_id"', ',"added":"","message_id"'),
        line.replace("{", '{"attempt":1,"index":0,', 1),
    ]
    if folder is TAP_FOLDER:
        event = json.loads(line)["event"]
        same += [
            json.dumps({**members, "event": f"{event}\\ \t é \u2028", "principal": ""}, ensure_ascii=is_ascii)
            for is_ascii in (False, True)
        ]
        others += [line.replace(',"original_base64"', ',"event":"","original_base64"')]
        others += [line.replace(',"original_base64"', ' , "a":"","original_base64"')]
    return [(each, False) for each in same] + [(each, True) for each in others]


@pytest.mark.parametrize("folder", [TAP_FOLDER, LEDGER_FOLDER], ids=lambda folder: folder.name)
def test_members_without_column_are_seen(folder: Folder, spark: SparkSession, reading: Reading) -> None:
    line, *_ = gzip.decompress(reading.path(folder=folder.name).read_bytes()).decode().splitlines()
    expected = dict(variants(line, folder))
    lines = spark.createDataFrame([(each, "file") for each in expected], "value string, file string")
    found = records(lines, folder).select("value", "unknown_members", "line").collect()
    assert {row["value"]: row["unknown_members"] for row in found} == expected
    assert not any(row["line"] for row in found)


def test_members_are_listed_once(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    text = sf.col("id").cast("string")
    lines = spark.range(1).select(text.alias("value"), text.alias("file"))
    records(lines, TAP_FOLDER).select("line", "unknown_members").explain()
    assert capsys.readouterr().out.count("json_object_keys(") == 1
