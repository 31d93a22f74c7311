"""The audit without Spark. That it reads and finds what Spark's does is tests/spark/test_audit_damage.py."""

import gzip
import json
import re
import runpy
import subprocess
import sys
import tracemalloc
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import boto3
import duckdb
import pytest
from pyspark import SparkContext

from eventplane.archive_layout import (
    AUDIT_DELIVERIES_FOLDER,
    AUDIT_DEVICES_FOLDER,
    FINDINGS_FOLDER,
    Column,
    ColumnType,
)
from eventplane.device_reports import MANIFEST, forwarder_source
from eventplane.envelope import parse_event
from eventplane.values import timestamp_ms
from glue_jobs.common.attestation import open_key
from glue_jobs.common.hours import Hour
from glue_jobs.common.lines import LargeArchiveError
from glue_jobs.common.objects import BucketObjects, FolderObjects, Objects
from glue_jobs.common.parquet import file_of, open_session
from glue_jobs.delivery_audit.audit import AuditRequest
from glue_jobs.delivery_audit.errors import EmptyWindowError, NoArchiveError
from glue_jobs.delivery_audit.findings import BROKEN_KINDS, INCOMPLETE_KINDS
from glue_jobs.delivery_audit.rules import Watermark, Window
from glue_jobs.delivery_audit.small import file_small
from tests.fakes.s3 import MemoryObjects
from tests.spark.small_archive import ALARM, DAY, HOUR_MS, NOON_MS, SmallArchive
from tests.unit.glue_jobs.judging import ALL_DAYS, AS_OF, FILES


def audited(
    objects: Objects, output: Objects | None = None, window: Window = ALL_DAYS, **more: Any
) -> dict[str, Any]:
    output, now_ms = output or MemoryObjects(), timestamp_ms(AS_OF)
    request = AuditRequest(objects, output, output, window, Watermark(now_ms), open_key(None), **more)
    return file_small(replace(request, progress=lambda _: None, now_ms=lambda: now_ms))


@pytest.fixture
def bodies(archive: SmallArchive) -> dict[str, bytes]:
    """Of three events one is not routed."""
    archive.send()
    archive.send(ALARM, "home-2")
    archive.accept(archive.event())
    archive.write()
    return archive.bodies()


def test_the_queries_of_the_page_answer(archive: SmallArchive, tmp_path: Path) -> None:
    """Those for Athena too, of which DuckDB lacks two functions."""
    archive.send(time="2026-03-01T11:59:58Z")
    archive.send(ALARM, "home-2")
    archive.accept(archive.event())
    audited(MemoryObjects(archive.bodies()), FolderObjects(tmp_path), is_listed=True)
    page = (Path(__file__).parents[3] / "parts/queries/how-to.md").read_text()
    of_duckdb, of_athena = (each.partition("```")[0] for each in page.split("```sql\n")[1:])
    routed, _, lost = (parse_event(each.event or "").id for each in archive.tap)
    session = duckdb.connect()
    session.execute("CREATE MACRO from_unixtime(s) AS make_timestamp((s * 1e6)::BIGINT)")
    session.execute("CREATE MACRO approx_percentile(x, p) AS approx_quantile(x, p)")
    for folder in (AUDIT_DELIVERIES_FOLDER, FINDINGS_FOLDER, AUDIT_DEVICES_FOLDER):
        table = folder.name.replace("/", "_")
        files = f"{tmp_path}/{table.removeprefix('audit_')}/*/*.parquet"
        session.read_parquet(files, hive_partitioning=True).create_view(table)
    of_event, latencies, losses, devices = of_athena.strip().removesuffix(";").split(";\n")
    for id, expected in ((routed, ("delivered", "in the inbox")), (lost, ("lost", "lost"))):
        for query in (of_duckdb.replace("build/audit", str(tmp_path)), of_event):
            (row,) = session.sql(query.replace("'ID'", f"'{id}'")).fetchall()
            assert row[1:4] == ("router", *expected)
            assert row[-1] == "tap ledger" if id == routed else "tap"
    assert session.sql(latencies).fetchall() == [
        ("care.inbox", 2, 2_000, None),
        ("help.inbox", 1, None, None),
    ]
    assert session.sql(losses).fetchall() == [(date.fromisoformat(DAY), "router", 1)]
    assert session.sql(devices).fetchall() == [("home-1", "partly", 2, 0), ("home-2", "partly", 1, 0)]


def test_the_notebook_shows_what_was_audited(archive: SmallArchive, tmp_path: Path) -> None:
    """Its cells run in their order; a table without a row is an empty plot."""
    archive.send(time="2026-03-01T11:59:58Z")
    archive.accept(archive.event(home="home-2"), "home-2")
    for _ in range(7):
        archive.event()  # it never comes to the tap
    stated = {"destination": "device.outbox", "first": 1, "last": 8, "count": 8, "digest": "0" * 32}
    manifest = {"epoch": archive.epoch_of("home-1"), "statements": [stated]}
    archive.send(MANIFEST, source=forwarder_source("home-1"), data=manifest)
    audited(MemoryObjects(archive.bodies()), FolderObjects(tmp_path), is_listed=True)
    notebook = Path(__file__).parents[3] / "lab/examples/audit_notebook.py"
    page = subprocess.check_output([sys.executable, notebook, tmp_path], text=True).strip()
    pictures = re.findall(r"<svg.*?</svg>", Path(page).read_text())
    drawn = (ElementTree.fromstring(each) for each in pictures)  # noqa: S314 - our own
    texts = ([each.text for each in picture.findall("{*}text")] for picture in drawn)
    latency, losses, coverage, worst = texts
    assert latency[2:4] == ["said to cloud", "2,000 ms"]
    assert losses[2:] == ["device_cloud", "7 ", "router", "1 "]
    assert coverage[-2:] == [DAY, "2 + 1 + 0 "]
    assert worst[-2:] == ["home-1", "7 + 0 + 0 "]
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run([sys.executable, notebook, empty], check=True)
    assert (empty / "plots.html").read_text().count("<svg") == 4


def test_a_bar_of_the_notebook_is_never_negative() -> None:
    """The clock of a device may be ahead."""
    bars = runpy.run_path("lab/examples/audit_notebook.py")["Bars"]
    picture = bars("Latency", ["p99"], [("said to cloud", [-5.0])])._repr_svg_()
    assert re.findall(r'<rect .*width="(.*?)"', picture) == ["0.0"]
    assert ">-5 " in picture


def test_each_place_gives_one_report(archive: SmallArchive, bodies: dict[str, bytes], aws: None) -> None:
    report = audited(FolderObjects(archive.folder))
    assert (report["verdict"], report["lost_by_hop"]["router"], report["totals"]["delivered"]) == (
        "broken",
        1,
        2,
    )
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="archive")
    for name, body in bodies.items():
        s3.put_object(Bucket="archive", Key=name, Body=body)
    in_bucket = audited(BucketObjects(s3, "archive"))
    assert {name for name in report if report[name] != in_bucket[name]} == {"chain"}
    assert SparkContext._active_spark_context is None


def test_an_object_that_moves_meanwhile_is_listed_again(bodies: dict[str, bytes]) -> None:
    class Moving(MemoryObjects):
        def read(self, name: str) -> bytes | None:
            if name == FILES["tap"]:
                self.write(name.replace(".json", "-compacted.json"), bodies[name])
                self.delete([name])
            return super().read(name)

    assert audited(Moving(bodies))["totals"]["events_archived"] == 3


def test_each_rule_of_the_verdict_is_a_check(bodies: dict[str, bytes]) -> None:
    """The kinds of findings that lower a verdict are among them; those that failed are the reasons."""
    output = MemoryObjects()
    report = audited(MemoryObjects(bodies), output)
    document = json.loads(output.read("checks/all.json") or b"")
    checks = {each["rule"]: each for each in document["checks"]}
    assert {*map(str, (*BROKEN_KINDS, *INCOMPLETE_KINDS))} < checks.keys()
    failed = {rule: each["failed"] for rule, each in checks.items() if each["outcome"] == "failed"}
    assert failed == {"lost": 1, "unattested": 3, "partly_devices": 2, "unknown_fleet": 1}
    assert checks["lost"]["level"] == "broken"
    assert (document["failed"], document["passed"]) == (len(report["reasons"]), len(checks) - len(failed))
    assert (document["window"], document["revision"]) == ("all", 0)


def test_the_next_audit_sees_what_was_altered_since(bodies: dict[str, bytes]) -> None:
    output = MemoryObjects()
    audited(MemoryObjects(bodies), output)
    again = audited(MemoryObjects({**bodies, FILES["ledger"]: b"altered"}), output)
    assert again["revision"]["number"] == 1
    found = {(each["kind"], each["archive_file"]) for each in again["findings"]}
    assert {("altered_object", FILES["ledger"]), ("unreadable_object", FILES["ledger"])} <= found
    assert again["lost_by_hop"]["router"] == 0


def test_what_cannot_be_audited_is_an_error(bodies: dict[str, bytes]) -> None:
    with pytest.raises(NoArchiveError):
        audited(MemoryObjects())
    contracts = {name: body for name, body in bodies.items() if name.startswith("contracts/")}
    with pytest.raises(EmptyWindowError):
        audited(MemoryObjects({**contracts, "tap/date=2026-03-01/other": b""}))


def test_lines_that_are_no_more_than_ends_of_lines_take_no_memory(bodies: dict[str, bytes]) -> None:
    most = 10**6
    objects = MemoryObjects({**bodies, FILES["tap"]: gzip.compress(b"\n" * most)})
    tracemalloc.start()
    audited(objects)
    assert tracemalloc.get_traced_memory()[1] < 8 * most
    tracemalloc.stop()


def compacted(rows: int = 1, **row: Any) -> dict[str, bytes]:
    """A file of equal rows of the ledger that a list names, and no receipt."""
    hour, columns = (
        Hour.at(NOON_MS // HOUR_MS),
        [
            Column(name, ColumnType.TEXT if isinstance(value, str) else ColumnType.TRUTH)
            for name, value in row.items()
        ],
    )
    name = f"{hour.compacted('ledger')}/part-0.parquet"
    with open_session() as session:
        body = file_of(session, columns, [[*row.values()]] * rows)
    return {name: body, hour.published("ledger"): f"s3://memory/{name}\n".encode()}


@pytest.mark.parametrize("file", [None, "elsewhere", FILES["tap"], True])
def test_a_compacted_file_that_is_of_no_compaction_is_a_fault(bodies: dict[str, bytes], file: Any) -> None:
    named = {} if file is None else {"archive_file": file}
    report = audited(MemoryObjects({**bodies, **compacted(id="1", **named)}))
    (found,) = (each for each in report["findings"] if each["kind"] == "unreadable_object")
    assert found["archive_file"].endswith("part-0.parquet")


@pytest.mark.parametrize(
    "other",
    [
        {FILES["handovers"]: gzip.compress(b'{"id":[%s1]}' % (b"[]," * (6 * 2**20)))},
        compacted(id="x" * (17 * 2**20), archive_file=FILES["ledger"]),
        compacted(17, id="x" * (2**24 - 100), archive_file=FILES["ledger"]),
    ],
)
def test_few_bytes_that_become_many_are_too_large(bodies: dict[str, bytes], other: dict[str, bytes]) -> None:
    with pytest.raises(LargeArchiveError):
        audited(MemoryObjects({**bodies, **other}))


def test_a_line_of_many_brackets_is_a_row_all_the_same(bodies: dict[str, bytes]) -> None:
    row = b'{"decided_at_ms":1,"reason":' + b'{"a":' * 700 + b"1" + b"}" * 701
    assert audited(MemoryObjects({**bodies, FILES["handovers"]: gzip.compress(row)}))["engine"] == "python"


def test_a_day_sees_what_was_accepted_on_it(archive: SmallArchive) -> None:
    midnight_ms = NOON_MS + 12 * HOUR_MS
    archive.send()
    archive.send(at_ms=midnight_ms - 1)  # archived and decided after midnight
    archive.send(at_ms=midnight_ms)
    archive.event()  # it never comes to the tap
    stated = {"destination": "device.outbox", "first": 1, "last": 4, "count": 4, "digest": "0" * 32}
    manifest = {"epoch": archive.epoch_of("home-1"), "statements": [stated]}
    archive.send(MANIFEST, at_ms=midnight_ms, source=forwarder_source("home-1"), data=manifest)
    report = audited(MemoryObjects(archive.bodies()), window=Window(date(2026, 3, 1)))
    assert (report["findings"], report["totals"]["delivered"]) == ([], 2)
    report = audited(MemoryObjects(archive.bodies()), window=Window(date(2026, 3, 2)))
    (finding,) = report["findings"]
    assert (finding["kind"], finding["sequence"], finding["date"]) == ("lost", 4, "2026-03-02")
    assert finding["archive_file"].startswith("tap/date=2026-03-02/")
    assert (report["totals"]["events_archived"], report["totals"]["lost"]) == (2, 1)


def test_days_audited_together_are_as_each_alone(archive: SmallArchive) -> None:
    """Objects of several days are read once, and the tables of these days are replaced, not of others."""
    for at in range(4):
        at_ms = NOON_MS + 24 * at * HOUR_MS
        archive.send(at_ms=at_ms)
        archive.accept(archive.event(at_ms=at_ms), at_ms=at_ms)
    archive.write()
    reads = Counter[str]()

    class Read(MemoryObjects):
        def read(self, name: str) -> bytes | None:
            reads[name] += name.startswith(("tap/", "ledger/"))
            return super().read(name)

    days = [date(2026, 3, at) for at in (1, 2, 3, 4)]
    alone, together = MemoryObjects(), MemoryObjects()
    each = [audited(MemoryObjects(archive.bodies()), alone, Window(day)) for day in days]
    for first, last in ((0, 1), (1, 3)):
        report = audited(Read(archive.bodies()), together, Window(days[first], days[last]))
        assert report["window"]["date"] == f"{days[first]}..{days[last]}"
        for name in ("lost", "delivered", "events_archived"):
            assert report["totals"][name] == sum(day["totals"][name] for day in each[first : last + 1]) > 0
        assert max(reads.values()) == 1
        reads.clear()
    tables = [
        {name: output.read(name) for name in (found.name for found in output.beneath(table))}
        for output in (alone, together)
        for table in ("routes", "findings")
    ]
    assert tables[:2] == tables[2:]
    assert len(tables[0]) == len(days)
