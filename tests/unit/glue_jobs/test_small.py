"""The audit without Spark. That it reads and finds what Spark's does is tests/spark/test_audit_damage.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark import SparkContext

from eventplane.archive_layout import TAP_FOLDER
from eventplane.values import timestamp_ms
from glue_jobs.common.attestation import open_key
from glue_jobs.common.hours import Hour
from glue_jobs.common.lines import CompactedHourError
from glue_jobs.common.listing import publish
from glue_jobs.common.objects import FolderObjects, MemoryObjects, Objects
from glue_jobs.delivery_audit.audit import Request
from glue_jobs.delivery_audit.errors import EmptyWindowError, NoArchiveError
from glue_jobs.delivery_audit.rules import Watermark, Window
from glue_jobs.delivery_audit.small import file_small
from tests.spark.small_archive import ALARM, NOON_MS, SmallArchive
from tests.unit.glue_jobs.judging import AS_OF, FILES


def audited(objects: Objects, output: Objects | None = None, **more: Any) -> dict[str, Any]:
    key = open_key(None)
    asked = {"progress": lambda _: None, "now_ms": lambda: timestamp_ms(AS_OF), **more}
    output = output or MemoryObjects()
    return file_small(
        Request(objects, output, output, Window(), Watermark(timestamp_ms(AS_OF)), key, **asked)
    )


@pytest.fixture
def bodies(archive: SmallArchive) -> dict[str, bytes]:
    """Of three events one is not routed."""
    archive.send()
    archive.send(ALARM, "home-2")
    archive.accept(archive.event())
    archive.write()
    return archive.bodies()


def test_an_archive_in_memory_has_the_report_of_the_same_in_a_folder(
    archive: SmallArchive, bodies: dict[str, bytes]
) -> None:
    report = audited(MemoryObjects(bodies))
    assert (report["verdict"], report["lost_by_hop"]["router"], report["totals"]["delivered"]) == (
        "broken",
        1,
        2,
    )
    assert audited(FolderObjects(archive.folder)) == report
    assert SparkContext._active_spark_context is None


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
    objects, hour = MemoryObjects(bodies), Hour(datetime.fromtimestamp(NOON_MS / 1_000, UTC))
    file = f"{hour.compacted(TAP_FOLDER.name)}/run=1/part.parquet"
    objects.write(file, b"PAR1")
    publish(objects, TAP_FOLDER, hour, [file])
    objects.delete([FILES["tap"]])
    with pytest.raises(CompactedHourError, match=r"part\.parquet.*delivery_audit"):
        audited(objects)
