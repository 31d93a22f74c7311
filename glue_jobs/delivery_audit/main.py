"""The job: `--INPUT <archive> --OUTPUT <folder> [--DATE ...]`, on Glue or anywhere."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

from eventplane.envelope import parse_event
from glue_jobs.common.session import job_session
from glue_jobs.delivery_audit.audit import audited
from glue_jobs.delivery_audit.outbox import tell
from glue_jobs.delivery_audit.report import report
from glue_jobs.delivery_audit.storage import Form, Storage, join
from glue_jobs.delivery_audit.tables import replay_manifest, tables
from glue_jobs.delivery_audit.verdict import verdict_event
from glue_jobs.delivery_audit.watermark import LATENESS_S, Watermark
from glue_jobs.delivery_audit.window import Window

REPORT = "report.json"
REPLAY = "replay"
VERDICTS = "verdicts"
WORK = "work"
"""What the job writes beneath OUTPUT: one document, Parquet tables by `date`, the events to send again by
`date` as lines of JSON, and the last verdict on each window, an event. WORK is gone when it ends."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Job parameters. `archive` and `output` are URIs or local folders, `outbox` is a queue's URL."""

    archive: str
    output: str
    window: Window
    watermark: Watermark
    outbox: str | None


def read_arguments(argv: Sequence[str]) -> Arguments:
    """The job's parameters; Glue adds some of its own, which are ignored."""
    parser = argparse.ArgumentParser(
        prog="python -m glue_jobs.delivery_audit",
        description="Audit an archive's deliveries.",
        allow_abbrev=False,
    )
    parser.add_argument("--INPUT", required=True, help="the archive: a folder or s3://bucket/")
    parser.add_argument("--OUTPUT", required=True, help="where report.json and the tables go")
    parser.add_argument(
        "--DATE", type=_window, default=Window(), help="a UTC day, 'today', 'yesterday' or 'all' (default)"
    )
    parser.add_argument(
        "--AS_OF", type=_time, default=None, help="when the archive was as it is, RFC 3339 (default: now)"
    )
    parser.add_argument(
        "--LATENESS_S",
        type=_seconds,
        default=LATENESS_S,
        help=f"how long a record may take before it is missed, seconds (default {LATENESS_S})",
    )
    parser.add_argument(
        "--OUTBOX", type=_queue, default=None, help="URL of the queue that takes the verdict (default: none)"
    )
    known, _ = parser.parse_known_args(argv)
    as_of = known.AS_OF or datetime.now(UTC)
    watermark = Watermark(int(as_of.timestamp() * 1_000), known.LATENESS_S)
    return Arguments(known.INPUT, known.OUTPUT, known.DATE, watermark, known.OUTBOX)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Audit, write report and tables, and return the report. Raises `AuditError` when there is nothing."""
    arguments = read_arguments(argv)
    spark = job_session()
    storage = Storage(spark)
    last = join(arguments.output, VERDICTS, f"{arguments.window}.json")
    work = join(arguments.output, WORK, str(arguments.window))
    with audited(spark, storage, arguments.archive, work, arguments.window, arguments.watermark) as audit:
        text = storage.read_text(last)
        document = report(audit, parse_event(text).data() if text else None)
        day = str(arguments.window) if arguments.window.day else None
        written = [(table, name, "parquet") for name, table in tables(spark, audit).items()]
        written.append((replay_manifest(audit), REPLAY, "json"))
        with ThreadPoolExecutor(len(written)) as together:
            # Each is a small job of many waits.
            for _ in together.map(lambda each: _write(storage, arguments.output, day, *each), written):
                pass
        # Last: whoever finds the report finds the tables that it speaks of.
        storage.write_text(
            join(arguments.output, REPORT), json.dumps(document, ensure_ascii=False, indent=2) + "\n"
        )
        verdict = verdict_event(document)
        if arguments.outbox is not None:
            # Before it counts as told: an attempt that fails here leaves no gap in the revisions.
            tell(arguments.outbox, verdict)
        storage.write_text(last, verdict.json + "\n")
    return document


def _write(
    storage: Storage, output: str, day: str | None, table: DataFrame | None, name: str, form: Form
) -> None:
    storage.write_table(table, join(output, name), day, form)


_DAYS_AGO = {"today": 0, "yesterday": 1}


def _window(text: str) -> Window:
    if text == "all":
        return Window()
    if text in _DAYS_AGO:
        return Window(datetime.now(UTC).date() - timedelta(days=_DAYS_AGO[text]))
    try:
        return Window(date.fromisoformat(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no day; give YYYY-MM-DD, 'today', 'yesterday' or 'all'"
        ) from error


def _queue(text: str) -> str:
    if text.startswith(("https://", "http://")):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no queue's URL; give https://sqs...")


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; give 2026-03-01T12:00:00Z") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _seconds(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; give 0 or more")


def totals_line(document: dict[str, Any]) -> str:
    """One line of JSON, by which the log's readers know what the audit found."""
    members = {
        "audit_totals": document["totals"],
        "date": document["window"]["date"],
        "verdict": document["verdict"],
        "lost_by_hop": document["lost_by_hop"],
    }
    return json.dumps(members) + "\n"


if __name__ == "__main__":
    sys.stdout.write(totals_line(main(sys.argv[1:])))
