"""Filing an audit's tables and report and sending its verdict, once for each audit if several run at once."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import (
    AUDIT,
    AUDIT_CONSUMERS_FOLDER,
    AUDIT_DELIVERIES_FOLDER,
    AUDIT_DEVICES_FOLDER,
    AUDIT_QUARANTINE_FOLDER,
    AUDIT_ROUTES_FOLDER,
    FINDINGS_FOLDER,
    VERDICTS,
    Column,
    Folder,
    checks_name,
    inventory_name,
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
from glue_jobs.delivery_audit.audit import FOUND, Audit, plain
from glue_jobs.delivery_audit.chain import Chain, Past
from glue_jobs.delivery_audit.errors import OutboxError
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.report import report
from glue_jobs.delivery_audit.rules import date_of
from glue_jobs.delivery_audit.verdict import trend_row

MAX_WRITES: Final = 3
"""How often it is tried to put the tables in place. Ours."""

MAX_TREND: Final = 30
"""Most days in the trend. Ours: a month."""


def file_audit(
    output: Objects, audit: Audit, write_tables: Callable[[list[Finding]], None], outbox: str | None
) -> dict[str, Any]:
    """File an audit beneath `output`, send its verdict, and return its report. Raises `OutboxError`.

    `write_tables` takes the chain's findings.
    """
    window, days_before = str(audit.window), trend(output, str(audit.window))

    def changes(chain: Chain) -> list[Finding]:
        return list(chain.findings(window if audit.window.day else None))

    document = file_report(
        output,
        window,
        audit.chain,
        lambda chain: report(audit, chain, changes(chain), days_before),
        lambda chain: write_tables(changes(chain)),
    )
    send_verdicts(output, window, outbox)
    return document


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
            output.write(checks_name(window), _checks(filed))
            return filed
        chain = Past(output, window).follow(chain.inventory, chain.attested)


def _checks(report: Mapping[str, Any]) -> bytes:
    """Return the rules of a verdict as a document of their own, for tools that look at data quality."""
    rows = report.get("checks", [])
    counts = Counter(each["outcome"] for each in rows)
    window = {"window": report["window"]["date"], "revision": report["revision"]["number"]}
    document = {**window, "passed": counts["passed"], "failed": counts["failed"], "checks": rows}
    return (json.dumps(document, indent=1) + "\n").encode()


def _put(write_tables: Callable[[], None]) -> None:
    for left in reversed(range(MAX_WRITES)):
        try:
            write_tables()
        except (PySparkException, Py4JError, FileNotFoundError, FileExistsError):
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
    for verdict in Past(output, window).unsent():
        if outbox is not None:
            send_verdict(outbox, verdict)
        output.write(verdict_name(window), f"{verdict.json}\n".encode())


def trend(output: Objects, window: str) -> list[dict[str, Any]]:
    """Return what the last verdicts say of days before `window` (of all days for `all`), oldest first."""
    prefix, suffix = verdict_name("\n").split("\n")
    days = [each.name.removeprefix(prefix).removesuffix(suffix) for each in output.beneath(VERDICTS)]
    # Digits come before letters: no day is later than `all`. Audits of several days are no part of it.
    before = sorted(day for day in days if day < window and ".." not in day)[1 - MAX_TREND :]
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


class Table(NamedTuple):
    """A table of an audit: its columns, of which `date` is the first, and its rows.

    It also has what was found of a `kind` (`Audit.found`), with the columns that `shaped` gives that.
    """

    columns: Sequence[Column]
    rows: list[tuple[Any, ...]]
    kind: str | None = None


def tables(audit: Audit, changes: Iterable[Finding]) -> dict[str, Table]:
    """Return all tables of an audit by their names; `changes` are the findings of the chain."""

    def figures(rows: Iterable[dict[str, Any]], folder: Folder) -> Table:
        columns = _columns(folder)
        # An enumeration's member is a text in Python alone.
        return Table(columns, [tuple(plain(row.get(each.name)) for each in columns) for row in rows])

    findings = Table(_columns(FINDINGS_FOLDER), [], "finding")
    others = [shaped(audit, findings, each) for each in (*audit.others, *changes)]
    is_bad, is_owed = audit.figures.quarantine, audit.figures.to_replay
    quarantine = Table(_columns(AUDIT_QUARANTINE_FOLDER), [], "bad" if is_bad else None)
    return {
        _name(AUDIT_ROUTES_FOLDER): figures(audit.figures.routes, AUDIT_ROUTES_FOLDER),
        _name(AUDIT_DEVICES_FOLDER): Table(_columns(AUDIT_DEVICES_FOLDER), [], "day"),
        _name(AUDIT_CONSUMERS_FOLDER): figures(audit.figures.consumers, AUDIT_CONSUMERS_FOLDER),
        _name(AUDIT_DELIVERIES_FOLDER): Table(
            _columns(AUDIT_DELIVERIES_FOLDER), [], "delivery" if audit.is_listed else None
        ),
        _name(FINDINGS_FOLDER): findings._replace(rows=others),
        _name(AUDIT_QUARANTINE_FOLDER): quarantine,
        REPLAY: Table(FOUND["replay"], [], "replay" if is_owed else None),
    }


def shaped(audit: Audit, table: Table, found: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row that was found, of the table's kind, with the table's columns."""
    names = (each.name for each in FOUND[str(table.kind)])
    members = dict(zip(names, map(plain, found), strict=True))
    # The folder of an object may be of another day, whose table is not this audit's.
    members["date"] = audit.window.nearest(members["date"] or _no_day(audit))
    members.setdefault("archive_file", members.get("file"))
    return tuple(members.get(each.name) for each in table.columns)


def _no_day(audit: Audit) -> str:
    return date_of(audit.watermark.as_of_ms)


def write_tables(spark: SparkSession, output: Objects, audit: Audit, changes: Iterable[Finding]) -> None:
    """Write all tables beneath `output`, each by `date`: those of the audit's day, or all anew.

    `changes` are the findings of the chain. Repeating it changes nothing. A table without a row is deleted.
    """
    made = tables(audit, changes)
    with system.pool(len(made)) as together:
        # Each is a small job of many waits.
        list(together.map(lambda name: _write(spark, output, name, made[name], audit), made))


def _write(spark: SparkSession, output: Objects, name: str, made: Table, audit: Audit) -> None:
    """Put a table at `name` by its column `date`: the audit's days of it, or all anew.

    It is Parquet, or of `REPLAY` one row of JSON a line, with gzip.
    """
    table, days = table_of(spark, audit, made), audit.window.days
    folders = [f"{name}/date={day}" for day in days] or [name]
    before = {each: output.beneath(each) for each in folders}
    if table is not None:
        mode = "dynamic" if days else "static"
        writer = table.coalesce(1).write.mode("overwrite").partitionBy("date")
        writer = writer.option("compression", "gzip" if name == REPLAY else "snappy")
        writer = writer.format("json" if name == REPLAY else "parquet")
        writer.option("partitionOverwriteMode", mode).save(f"{output.uri}/{name}")
    for each in folders:
        # What is as it was has no row: a dynamic overwrite replaces only partitions for which there are rows.
        if output.beneath(each) == before[each]:
            output.clear(each)


def table_of(spark: SparkSession, audit: Audit, made: Table) -> DataFrame | None:
    """Return the rows of a table of a large audit in Spark, None where it has none."""
    if not (made.rows or made.kind):
        return None
    table = spark.createDataFrame(made.rows, struct_of(made.columns), verifySchema=False)
    if made.kind is None:
        return table
    found = audit.found[made.kind]
    date = sf.coalesce("date", sf.lit(_no_day(audit)))
    if days := audit.window.days:
        date = sf.least(sf.greatest(date, sf.lit(days[0])), sf.lit(days[-1]))
    found = found.withColumn("date", date)
    if "file" in found.columns:
        found = found.withColumn("archive_file", sf.col("file"))
    kept = found.select(*(each for each in table.columns if each in found.columns))
    return table.unionByName(kept, allowMissingColumns=True)


def _name(folder: Folder) -> str:
    return folder.name.removeprefix(f"{AUDIT}/")


def _columns(folder: Folder) -> Sequence[Column]:
    return (*map(Column, folder.partitions), *folder.columns)
