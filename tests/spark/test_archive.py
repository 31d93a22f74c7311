"""The reader of the archive: rows from whatever object they are in, and what is wrong with the objects."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eventplane.archive_layout import HANDOVERS_FOLDER, LEDGER_FOLDER, TAP_FOLDER, Folder
from eventplane.device_reports import MANIFEST
from glue_jobs.common.archive import Archive, Part, records
from glue_jobs.common.hours import Days, Hour
from glue_jobs.common.listing import ObjectFault
from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction.main import main as compact
from glue_jobs.delivery_audit.main import main as audit
from tests.spark.small_archive import DAY, NOON_MS, SmallArchive

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
        self.objects = FolderObjects(archive.folder)
        self.reader = Archive(spark, self.objects)

    def read(self, folder: Folder = TAP_FOLDER, days: Days = ALL) -> tuple[list[dict[str, Any]], Part]:
        def work() -> tuple[list[dict[str, Any]], Part]:
            more = ATTRIBUTES if folder is TAP_FOLDER else {}
            part = self.reader.read(folder, days, **more)
            return [row.asDict(recursive=True) for row in part.rows.collect()], part

        rows, part = self.reader.isolating(work)
        return sorted(rows, key=lambda row: (row["file"], json.dumps(row))), part

    def faults(self, folder: Folder = TAP_FOLDER) -> dict[str, ObjectFault]:
        return {each.name: each for each in self.read(folder)[1].faults}

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
        receipt |= {each: list(receipt[each]) for each in ("inputs", "files")}
        path.write_text(json.dumps({**receipt, "version": 2}))


def test_lines_become_typed_rows(reading: Reading) -> None:
    rows, part = reading.read()
    first = next(row for row in rows if row["texts"]["room"] == "7")
    assert first["file"] == f"{HOUR.raw('tap')}/{ROWS}"
    assert (first["date"], first["line"], first["unknown_members"]) == (DAY, None, False)
    assert first["integers"]["room"] == 7
    assert first["booleans"] == {"room": None, "type": None, "urgent": True}
    assert first["event_bytes"] == len(first["event"].encode())
    assert [row["texts"]["type"] for row in rows if row["report"]] == [MANIFEST]
    # The data of the first event of each home is the same.
    assert len({row["data_digest"] for row in rows}) == 2
    assert part.hours == {HOUR, Hour(NOON + timedelta(hours=1))}
    assert (part.faults, len(part.objects)) == ((), 2)


@pytest.mark.parametrize("age", [(), (without_raw,), (without_envelope,), (without_envelope, without_raw)])
@pytest.mark.parametrize("folder", [TAP_FOLDER, LEDGER_FOLDER], ids=lambda each: each.name)
def test_compacted_hours_have_the_same_rows(
    folder: Folder, age: tuple[Callable[[SmallArchive], None], ...], reading: Reading
) -> None:
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
    for make_older in age:
        make_older(reading.archive)
    rows, part = reading.read(folder)
    assert rows == raw
    assert part.faults == ()
    assert all(each.name.endswith(".parquet") for each in part.objects)
    assert len(part.receipts) == len(part.hours)


@pytest.mark.parametrize(
    ("old", "new", "is_unknown"),
    [
        ('"reason":null', '"reason":"\\\\\\":x"', False),
        ('"reason":null,', "", False),
        ('"reason":null', '"reason" : null', False),
        ('"reason":null', '"reazon":null', True),
        ('"reason":null,', '"later":1,', True),
        ('"reason":null', '"attempt":2', True),
        ('"reason":null', '"reason":null,"later":{"a":1}', True),
    ],
)
def test_members_that_no_column_holds_are_noticed(
    old: str, new: str, is_unknown: bool, reading: Reading
) -> None:
    lines = gzip.decompress(reading.path(folder="ledger").read_bytes()).decode()
    reading.path(folder="ledger").write_bytes(gzip.compress(lines.replace(old, new, 1).encode()))
    rows, _ = reading.read(LEDGER_FOLDER)
    assert [row["unknown_members"] for row in rows].count(True) == int(is_unknown)


def test_an_object_that_came_after_the_compaction_is_read_besides(reading: Reading) -> None:
    compacted(reading.archive)
    late = reading.path("late.json.gz")
    late.write_bytes(gzip.compress(b'{"message_id":"late","index":0}\n'))
    rows, part = reading.read()
    assert len(rows) == 4
    assert part.faults == ()
    assert f"{HOUR.raw('tap')}/late.json.gz" in {each.name for each in part.objects}


@pytest.mark.parametrize("lacks", ["published", "compactions"])
def test_an_hour_whose_compaction_was_cut_is_read_once(lacks: str, reading: Reading) -> None:
    raw, _ = reading.read()
    compacted(reading.archive)
    shutil.rmtree(reading.archive.folder / lacks)
    rows, part = reading.read()
    assert (rows, part.faults) == (raw, ())


def test_without_receipt_and_some_raw_objects_each_row_is_read_once(reading: Reading) -> None:
    reading.path("other.json.gz").write_bytes(gzip.compress(b'{"message_id":"other","index":0}\n'))
    raw, _ = reading.read()
    compacted(reading.archive)
    shutil.rmtree(reading.archive.folder / "compactions")
    reading.path().unlink()
    rows, _ = reading.read()
    assert rows == raw


def test_a_receipt_that_cannot_be_read_is_a_fault_and_the_rows_are_there(reading: Reading) -> None:
    raw, _ = reading.read()
    compacted(reading.archive)
    name = HOUR.receipt("tap")
    (reading.archive.folder / name).write_text("{")
    rows, part = reading.read()
    assert rows == raw
    assert [(each.kind, each.name, each.hour) for each in part.faults] == [("unreadable", name, HOUR)]


LINE = '{{"message_id":"m{}","index":0,"topic":"{}"}}\n'
NOTHING = gzip.compress(b"", mtime=0)
MANY = "".join(LINE.format(n, f"{n * 7919:x}" * 20) for n in range(2_000)).encode()


@pytest.mark.parametrize(
    ("content", "least", "most"),
    [
        (gzip.compress(MANY)[:-1_000], 1, 1_999),
        (b"\x00" * 100, 0, 0),
        (NOTHING, 0, 0),
        (b"", 0, 0),
        (gzip.compress(MANY)[:-8] + b"12345678", 0, 0),
    ],
    ids=["cut", "zeros", "no-line", "empty", "altered"],
)
def test_a_damaged_object_is_one_fault_and_its_readable_lines_count(
    content: bytes, least: int, most: int, reading: Reading
) -> None:
    whole, _ = reading.read()
    name = f"{HOUR.raw('tap')}/damaged.json.gz"
    reading.path("damaged.json.gz").write_bytes(content)
    rows, part = reading.read()
    more = [row for row in rows if row["file"] == name]
    assert [row for row in rows if row["file"] != name] == whole
    assert least <= len(more) <= most
    if content == NOTHING:
        assert part.faults == ()
    else:
        (fault,) = part.faults
        assert (fault.kind, fault.name, fault.hour, fault.folder) == ("unreadable", name, HOUR, "tap")
        assert fault.rows == len(more)
    assert name in {each.name for each in part.objects}


def test_damage_in_folders_that_are_read_one_after_the_other(reading: Reading) -> None:
    for folder in ("tap", "ledger"):
        reading.path("damaged.json.gz", folder).write_bytes(bytes(100))

    def work() -> list[ObjectFault]:
        faults: list[ObjectFault] = []
        for folder in (TAP_FOLDER, LEDGER_FOLDER):
            part = reading.reader.read(folder, ALL)
            part.rows.collect()
            faults += part.faults
        return faults

    assert [each.folder for each in reading.reader.isolating(work)] == ["tap", "ledger"]


def test_a_damaged_compacted_file_is_replaced_by_the_raw_objects(reading: Reading) -> None:
    raw, _ = reading.read()
    compacted(reading.archive)
    (file,) = (reading.archive.folder / HOUR.compacted("tap")).rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    rows, part = reading.read()
    assert rows == raw
    assert [(each.kind, each.hour, each.folder) for each in part.faults] == [("unreadable", HOUR, "tap")]
    without_raw(reading.archive)
    rows, part = reading.read()
    assert rows == [row for row in raw if not row["file"].startswith(HOUR.raw("tap"))]
    assert [(each.kind, each.hour) for each in part.faults] == [("unreadable", HOUR)]


def test_a_compacted_file_that_is_gone_is_a_fault(reading: Reading) -> None:
    raw, _ = reading.read()
    compacted(reading.archive)
    (file,) = (reading.archive.folder / HOUR.compacted("tap")).rglob("*.parquet")
    file.unlink()
    rows, part = reading.read()
    assert rows == raw
    assert [(each.kind, each.hour, each.rows) for each in part.faults] == [("unreadable", HOUR, 0)]


def test_an_object_of_equal_bytes_is_read_once(reading: Reading) -> None:
    whole, _ = reading.read()
    later = reading.path("zz.json.gz", hour=Hour(NOON + timedelta(hours=5)))
    later.parent.mkdir(parents=True)
    shutil.copy(reading.path(), later)
    rows, part = reading.read()
    assert rows == whole
    (fault,) = part.faults
    assert (fault.kind, fault.name) == ("duplicate", str(later.relative_to(reading.archive.folder)))
    assert str(reading.path().relative_to(reading.archive.folder)) in fault.detail


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (f"tap/date={DAY}/loose.json.gz", 1),
        (f"tap/date={DAY}/hour=12/a+b%20[c].json.gz", 1),
        (f"tap/date={DAY}/hour=12/upload.tmp", 0),
    ],
)
def test_a_stray_object_is_named_and_its_lines_are_read(name: str, rows: int, reading: Reading) -> None:
    whole, _ = reading.read()
    path = reading.archive.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(b'{"message_id":"stray","index":0}\n'))
    found, part = reading.read()
    assert [row["file"] for row in found if row["message_id"] == "stray"] == [name] * rows
    assert len(found) == len(whole) + rows
    is_whole_name = "[c]" in name
    assert [(each.kind, each.name) for each in part.faults] == (
        [] if is_whole_name else [("misplaced", name)]
    )


def test_an_archive_without_a_folder_has_no_rows(reading: Reading) -> None:
    rows, part = reading.read(HANDOVERS_FOLDER)
    assert (rows, part.hours, part.objects) == ([], frozenset(), ())


@pytest.mark.parametrize("older", [False, True])
def test_an_audit_of_compacted_hours_alone_says_the_same(
    older: bool, reading: Reading, tmp_path: Path
) -> None:
    reading.archive.accept(reading.archive.event(home="home-1", room=8))  # lost on its route
    reading.archive.write()

    def audited(name: str) -> dict[str, Any]:
        places = ["--INPUT", str(reading.archive.folder), "--OUTPUT", str(tmp_path / name)]
        document = audit([*places, "--DATE", DAY, "--AS_OF", "2026-04-01T00:00:00Z"])
        return {each: document[each] for each in document if each not in ("archive", "chain")}

    raw = audited("raw")
    compacted(reading.archive)
    without_raw(reading.archive)
    if older:
        without_envelope(reading.archive)
    assert audited("compacted") == raw
    assert raw["totals"]["lost"] == 1


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
    last = folder.columns[-1].name
    members = json.loads(line)
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
            json.dumps({**members, "event": f"{event}\\ \t é \u2028", last: ""}, ensure_ascii=is_ascii)
            for is_ascii in (False, True)
        ]
        others += [line.replace(',"original_base64"', ',"event":"","original_base64"')]
        others += [line.replace(',"original_base64"', ' , "a":"","original_base64"')]
    return [(each, False) for each in same] + [(each, True) for each in others]


@pytest.mark.parametrize("folder", [TAP_FOLDER, LEDGER_FOLDER], ids=lambda folder: folder.name)
def test_members_that_no_column_holds_are_seen_however_a_line_is_written(
    folder: Folder, spark: SparkSession, reading: Reading
) -> None:
    line, *_ = gzip.decompress(reading.path(folder=folder.name).read_bytes()).decode().splitlines()
    expected = dict(variants(line, folder))
    lines = spark.createDataFrame([(each, "file") for each in expected], "value string, file string")
    found = records(lines, folder).select("value", "unknown_members", "line").collect()
    assert {row["value"]: row["unknown_members"] for row in found} == expected
    assert not any(row["line"] for row in found)
