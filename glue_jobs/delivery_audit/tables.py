"""The result's tables, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal

from pyspark import RDD
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
from glue_jobs.common.session import local_rows
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.event_group import BadRow, ReplayRow
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.judging import Row
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
    day, days = str(audit.window) if audit.window.day else None, audit.fleet.days
    # The folder of an object may be of another day, whose table is not this audit's.
    put = partial(_values, day, date_of(audit.watermark.as_of_ms))

    def found(kind: type[Row], schema: StructType, others: Sequence[Row] = ()) -> DataFrame | None:
        rows = audit.found[kind]
        if isinstance(rows, RDD):
            table = spark.createDataFrame(rows.map(partial(put, schema.names)), schema, verifySchema=False)
            more = _of_rows(spark, map(partial(put, schema.names), others), schema)
            return table if more is None else table.union(more)
        return _of_rows(spark, map(partial(put, schema.names), [*rows, *others]), schema)

    def of_figures(rows: Iterable[dict[str, Any]], folder: Folder) -> DataFrame | None:
        schema = _columns(folder)
        return _of_rows(spark, (tuple(map(row.get, schema.names)) for row in rows), schema)

    findings, quarantine = _columns(FINDINGS_FOLDER), _columns(AUDIT_QUARANTINE_FOLDER)
    made = {
        _name(AUDIT_ROUTES_FOLDER): of_figures(audit.figures.routes, AUDIT_ROUTES_FOLDER),
        _name(AUDIT_DEVICES_FOLDER): days and days.select(_columns(AUDIT_DEVICES_FOLDER).names),
        _name(AUDIT_CONSUMERS_FOLDER): of_figures(audit.figures.consumers, AUDIT_CONSUMERS_FOLDER),
        _name(FINDINGS_FOLDER): found(Finding, findings, [*audit.others, *changes]),
        _name(AUDIT_QUARANTINE_FOLDER): found(BadRow, quarantine) if audit.figures.quarantine else None,
        REPLAY: found(ReplayRow, _REPLAY_ROW) if audit.figures.to_replay else None,
    }

    def write(name: str) -> None:
        write_table(output, name, made[name], day, "json" if name == REPLAY else "parquet")

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


def _of_rows(spark: SparkSession, rows: Iterable[Any], schema: StructType) -> DataFrame | None:
    values = list(rows)
    return local_rows(spark, values, schema) if values else None


def _values(day: str | None, none: str, names: Sequence[str], row: Any) -> tuple[Any, ...]:
    """A row that was found, with the columns `names`."""
    members = row._asdict()
    members["date"] = day or members["date"] or none
    members.setdefault("archive_file", members.get("file"))
    # An enumeration's member is a text in Python alone.
    return tuple(str(value) if isinstance(value, StrEnum) else value for value in map(members.get, names))


def _columns(folder: Folder) -> StructType:
    return struct_of((*map(Column, folder.partitions), *folder.columns))
