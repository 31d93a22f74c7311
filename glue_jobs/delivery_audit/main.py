"""The job: `--INPUT <archive> --OUTPUT <folder> [--DATE all|yesterday|YYYY-MM-DD]`, on Glue or anywhere."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from glue_jobs.delivery_audit.audit import audited
from glue_jobs.delivery_audit.report import report
from glue_jobs.delivery_audit.session import audit_session
from glue_jobs.delivery_audit.storage import Storage, join
from glue_jobs.delivery_audit.window import Window

REPORT = "report.json"
TABLES = ("routes", "devices", "findings", "quarantine")
"""What the job writes beneath OUTPUT: one document, and Parquet tables by `date`."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Job parameters. `archive` and `output` are URIs or local folders."""

    archive: str
    output: str
    window: Window


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
        "--DATE", type=_window, default=Window(), help="a UTC day, 'yesterday' or 'all' (default)"
    )
    known, _ = parser.parse_known_args(argv)
    return Arguments(known.INPUT, known.OUTPUT, known.DATE)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Audit, write report and tables, and return the report. Raises `AuditError` when there is nothing."""
    arguments = read_arguments(argv)
    spark = audit_session()
    storage = Storage(spark)
    with audited(spark, storage, arguments.archive, arguments.window) as audit:
        document = report(audit)
        day = str(arguments.window) if arguments.window.day else None
        for table in TABLES:
            storage.write_table(getattr(audit, table), join(arguments.output, table), day)
        # Last: whoever finds the report finds the tables that it speaks of.
        storage.write_text(
            join(arguments.output, REPORT), json.dumps(document, ensure_ascii=False, indent=2) + "\n"
        )
    return document


def _window(text: str) -> Window:
    if text == "all":
        return Window()
    if text == "yesterday":
        return Window(datetime.now(UTC).date() - timedelta(days=1))
    try:
        return Window(date.fromisoformat(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no day; give YYYY-MM-DD, 'yesterday' or 'all'"
        ) from error


def totals_line(document: dict[str, Any]) -> str:
    """One line of JSON, by which the log's readers know what the audit found."""
    return json.dumps({"audit_totals": document["totals"], "date": document["window"]["date"]}) + "\n"


if __name__ == "__main__":
    sys.stdout.write(totals_line(main(sys.argv[1:])))
