"""Filing an audit's tables and report and sending its verdict, once for each audit if several run at once."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from eventplane.archive_layout import (
    AUDIT,
    AUDIT_CONSUMERS_FOLDER,
    AUDIT_DEVICES_FOLDER,
    AUDIT_QUARANTINE_FOLDER,
    AUDIT_ROUTES_FOLDER,
    FINDINGS_FOLDER,
    VERDICTS,
    Column,
    Folder,
    report_name,
    verdict_name,
)
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import REPLAY
from eventplane.sqs_binding import send_request
from glue_jobs.common import system
from glue_jobs.common.archive import struct_of
from glue_jobs.common.objects import Objects
from glue_jobs.common.session import local_rows, schema_of
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.chain import Chain, History, inventory_name
from glue_jobs.delivery_audit.devices import DAY
from glue_jobs.delivery_audit.errors import OutboxError
from glue_jobs.delivery_audit.event_group import BadRow, ReplayRow
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.judging import Row
from glue_jobs.delivery_audit.report import report
from glue_jobs.delivery_audit.rules import date_of
from glue_jobs.delivery_audit.verdict import trend_row

MAX_WRITES: Final = 3
"""How often it is tried to put the tables in place. Ours."""

MAX_TREND: Final = 30
"""Most days in the trend. Ours: a month."""

Form = Literal["parquet", "json"]


def file_audit(
    output: Objects, audit: Audit, write_tables: Callable[[list[Finding]], None]
) -> dict[str, Any]:
    """File an audit beneath `output`, and return its report. `write_tables` takes the chain's findings."""
    window, days_before = str(audit.window), trend(output, str(audit.window))

    def changes(chain: Chain) -> list[Finding]:
        return list(chain.findings(window if audit.window.day else None))

    return file_report(
        output,
        window,
        audit.chain,
        lambda chain: report(audit, chain, changes(chain), days_before),
        lambda chain: write_tables(changes(chain)),
    )


def file_report(
    output: Objects,
    window: str,
    chain: Chain,
    report: Callable[[Chain], dict[str, Any]],
    write_tables: Callable[[Chain], None],
) -> dict[str, Any]:
    """Write inventory, tables and report of an audit beneath `output`, and return the report.

    The report is created under its revision and replaces none. If another audit of the window has filed that
    revision meanwhile, this one is the next: it follows that one's verdict, and its tables replace those.
    """
    while True:
        document = report(chain)
        output.write(inventory_name(window, chain.digest), gzip.compress(chain.filed, mtime=0))
        # First: whoever finds the report finds the tables that it is about.
        _put(partial(write_tables, chain))
        body = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
        if output.create(report_name(window, document["revision"]["number"]), body.encode()):
            filed: dict[str, Any] = json.loads(body)
            return filed
        chain = History(output, window).follow(chain.inventory, chain.attested)


def _put(write_tables: Callable[[], None]) -> None:
    for left in reversed(range(MAX_WRITES)):
        try:
            write_tables()
        except (PySparkException, Py4JError):
            # Another audit of the window may be replacing the same folders.
            if not left:
                raise
        else:
            return


def send_verdicts(output: Objects, window: str, outbox: str | None) -> None:
    """Send the verdicts of all reports on `window` that have not been sent. Raises `OutboxError`.

    At least once, in the order of their revisions: what an attempt could not send, the next one sends too.
    The last one sent is then the last verdict, also without an `outbox`.
    """
    for verdict in History(output, window).unsent():
        if outbox is not None:
            send_verdict(outbox, verdict)
        output.write(verdict_name(window), f"{verdict.json}\n".encode())


def trend(output: Objects, window: str) -> list[dict[str, Any]]:
    """Return what the last verdicts say of days before `window` (of all days for `all`), oldest first."""
    prefix, suffix = verdict_name("\n").split("\n")
    days = [each.name.removeprefix(prefix).removesuffix(suffix) for each in output.beneath(VERDICTS)]
    # Digits come before letters: no day is later than `all`.
    before = sorted(day for day in days if day < window)[1 - MAX_TREND :]
    return [row for day in before if (row := _trend_row(output, day))]


def _trend_row(output: Objects, window: str) -> dict[str, Any] | None:
    try:
        return trend_row(parse_event(output.read(verdict_name(window)) or b"").data())
    except (EnvelopeError, LookupError, TypeError, AttributeError):
        return None  # no verdict of an audit


def send_verdict(queue_url: str, event: Envelope) -> None:
    """Send `event` to the queue at `queue_url`. Raises `OutboxError`."""
    try:
        boto3.client("sqs", region_name=_region(queue_url)).send_message(**send_request(queue_url, event))
    except (ClientError, BotoCoreError) as error:
        raise OutboxError(queue_url, str(error)) from error


def _region(queue_url: str) -> str | None:
    """Return the region in a queue's URL (https://sqs.eu-central-1.amazonaws.com/...); None for another URL.

    Glue gives its jobs no region.
    """
    service, _, rest = (urlsplit(queue_url).hostname or "").partition(".")
    return rest.split(".")[0] if service == "sqs" and ".amazonaws." in rest else None


def write_tables(spark: SparkSession, audit: Audit, changes: Iterable[Finding], output: Objects) -> None:
    """Write all tables beneath `output`, each by `date`: those of the audit's day, or all anew.

    `changes` are the findings of the chain. Repeating it changes nothing. A table without a row is deleted.
    """
    day = str(audit.window) if audit.window.day else None
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
    days = audit.fleet.days
    made = {
        _name(AUDIT_ROUTES_FOLDER): of_figures(audit.figures.routes, AUDIT_ROUTES_FOLDER),
        _name(AUDIT_DEVICES_FOLDER): _of_rows(spark, days, DAY) if isinstance(days, list) else days,
        _name(AUDIT_CONSUMERS_FOLDER): of_figures(audit.figures.consumers, AUDIT_CONSUMERS_FOLDER),
        _name(FINDINGS_FOLDER): found(Finding, findings, [*audit.others, *changes]),
        _name(AUDIT_QUARANTINE_FOLDER): found(BadRow, quarantine) if audit.figures.quarantine else None,
        REPLAY: found(ReplayRow, schema_of(ReplayRow)) if audit.figures.to_replay else None,
    }

    def write(name: str) -> None:
        write_table(output, name, made[name], day, "json" if name == REPLAY else "parquet")

    with system.pool(len(made)) as together:
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
