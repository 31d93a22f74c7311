"""The result's tables, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from eventplane.archive_layout import (
    AUDIT,
    AUDIT_CONSUMERS_FOLDER,
    AUDIT_DEVICES_FOLDER,
    AUDIT_QUARANTINE_FOLDER,
    AUDIT_ROUTES_FOLDER,
    FINDINGS_FOLDER,
    Column,
    Folder,
)
from glue_jobs.common.archive import struct_of
from glue_jobs.common.objects import Objects
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.event_group import ReplayRow
from glue_jobs.delivery_audit.finding_rows import FINDING
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.window import date_of

Form = Literal["parquet", "json"]

REPLAY: Final = "replay"
"""The folder of the events to send again, by `date` as lines of JSON: `event_group.ReplayRow`."""

_REPLAY_ROW: Final = StructType(
    [StructField(name, LongType() if name == "entered_at_ms" else StringType()) for name in ReplayRow._fields]
)


def write_tables(spark: SparkSession, audit: Audit, changes: Iterable[Finding], output: Objects) -> None:
    """Write all tables beneath `output`, each by `date`: those of the audit's day, or all anew.

    `changes` are the findings of the chain. Repeating it changes nothing. A table without a row is deleted.
    """
    day = str(audit.window) if audit.window.day else None
    judgement, days = audit.judged.judgement, audit.fleet.days
    # The folder of an object may be of another day, whose table is not this audit's.
    none = day or date_of(audit.watermark.as_of_ms)
    quarantine = [
        {**row._asdict(), "archive_file": row.file, "date": day or row.date or none}
        for row in judgement.quarantine
    ]
    findings = [each._replace(date=day or each.date or none) for each in (*audit.findings, *changes)]
    made: dict[str, tuple[DataFrame | None, Form]] = {
        _name(AUDIT_ROUTES_FOLDER): (_of_dicts(spark, audit.figures.routes, AUDIT_ROUTES_FOLDER), "parquet"),
        _name(AUDIT_DEVICES_FOLDER): (
            days and days.select(_columns(AUDIT_DEVICES_FOLDER).names),
            "parquet",
        ),
        _name(AUDIT_CONSUMERS_FOLDER): (
            _of_dicts(spark, audit.figures.consumers, AUDIT_CONSUMERS_FOLDER),
            "parquet",
        ),
        _name(FINDINGS_FOLDER): (_of_rows(spark, findings, FINDING), "parquet"),
        _name(AUDIT_QUARANTINE_FOLDER): (
            _of_dicts(spark, quarantine, AUDIT_QUARANTINE_FOLDER),
            "parquet",
        ),
        REPLAY: (_of_rows(spark, judgement.replay, _REPLAY_ROW), "json"),
    }

    def write(name: str) -> None:
        table, form = made[name]
        write_table(output, name, table, day, form)

    with ThreadPoolExecutor(len(made)) as together:
        # Each is a small job of many waits.
        list(together.map(write, made))


def write_table(output: Objects, name: str, table: DataFrame | None, day: str | None, form: Form) -> None:
    """Put `table` (None: no row) at `name` by its column `date`: one `day` of it, or (None) all anew.

    JSON is one row a line, with gzip.
    """
    # A dynamic overwrite replaces only partitions for which there are rows.
    if table is None or (day is not None and table.where(sf.col("date") == day).isEmpty()):
        output.clear(name if day is None else f"{name}/date={day}")
        if table is None:
            return
    mode = "static" if day is None else "dynamic"
    writer = table.coalesce(1).write.mode("overwrite").partitionBy("date")
    if form == "json":
        writer = writer.option("compression", "gzip")
    writer.option("partitionOverwriteMode", mode).format(form).save(f"{output.uri}/{name}")


def _name(folder: Folder) -> str:
    return folder.name.removeprefix(f"{AUDIT}/")


def _of_dicts(spark: SparkSession, rows: Sequence[dict[str, Any]], folder: Folder) -> DataFrame | None:
    schema = _columns(folder)
    return _of_rows(spark, [tuple(row.get(name) for name in schema.names) for row in rows], schema)


def _of_rows(spark: SparkSession, rows: Iterable[Any], schema: StructType) -> DataFrame | None:
    # An enumeration's member is a text in Python alone.
    values = [tuple(str(each) if isinstance(each, StrEnum) else each for each in row) for row in rows]
    return spark.createDataFrame(values, schema, verifySchema=False) if values else None


def _columns(folder: Folder) -> StructType:
    return struct_of((*map(Column, folder.partitions), *folder.columns))
