"""The job: `--INPUT <archive> --OUTPUT <folder> [--DATE ...]`, on Glue or anywhere."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from typing import Any, Final

from pyspark.sql import SparkSession

from eventplane.errors import EventPlaneError
from glue_jobs.common import system
from glue_jobs.common.attestation import add_key_option, open_key
from glue_jobs.common.embedded_metrics import add_metrics_option, embedded
from glue_jobs.common.lines import LargeArchiveError
from glue_jobs.common.objects import BucketObjects, open_archive, open_output
from glue_jobs.common.session import job_session
from glue_jobs.delivery_audit.audit import PYTHON, SPARK, AuditRequest
from glue_jobs.delivery_audit.errors import EmptyWindowError
from glue_jobs.delivery_audit.large import audited
from glue_jobs.delivery_audit.late_days import late_days
from glue_jobs.delivery_audit.publication import file_audit, write_tables
from glue_jobs.delivery_audit.report import TOTALS
from glue_jobs.delivery_audit.rules import LATENESS_S, Watermark, Window
from glue_jobs.delivery_audit.small import file_small

AUTO: Final = "auto"
"""Python, or Spark where the archive is larger than Python audits."""
ENGINES: Final = (AUTO, PYTHON, SPARK)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Job parameters. `archive` and `output` are URIs or local folders, `outbox` is a queue's URL.

    `work` is where Spark keeps tables while the job runs. `fleet` is a file with the expected devices; None:
    the archive's snapshots name them. `key` is what `open_key` takes, `metrics` what `embedded` does, and
    `engine` is one of `ENGINES`. Where `is_listed` the table `deliveries` is written. An audit that
    `is_nightly` judges late days again.
    """

    archive: str
    output: str
    window: Window
    watermark: Watermark
    outbox: str | None
    work: str | None = None
    fleet: str | None = None
    key: str | None = None
    engine: str = SPARK
    metrics: str | None = None
    is_listed: bool = False
    is_nightly: bool = False


def read_arguments(argv: Sequence[str], engine: str = SPARK) -> Arguments:
    """Return the job's parameters, by default with this `engine`; those that Glue adds are ignored."""
    parser = argparse.ArgumentParser(
        prog="python -m glue_jobs.delivery_audit",
        description="Audit an archive's deliveries.",
        allow_abbrev=False,
    )
    parser.add_argument("--INPUT", required=True, help="the archive: a folder or s3://bucket/")
    parser.add_argument(
        "--OUTPUT",
        required=True,
        help="where reports, tables and verdicts go: a folder or s3://bucket/folder/",
    )
    parser.add_argument(
        "--DATE",
        type=_window,
        default=_window("all"),
        help="a UTC day, 'today', 'all' (default), or 'yesterday', after which earlier days are judged again "
        "that got rows since their last verdict",
    )
    for name, end in (("--FROM", "first"), ("--TO", "last")):
        parser.add_argument(
            name,
            type=_day,
            default=None,
            help=f"the {end} UTC day of several that are audited together, YYYY-MM-DD",
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
    parser.add_argument(
        "--ENGINE",
        choices=ENGINES,
        default=engine,
        help="what reads the archive: python, for some 200,000 events at most; spark; or auto, by the "
        "archive's size (default: %(default)s)",
    )
    parser.add_argument(
        "--WORK", default=None, help="where Spark keeps tables while the job runs (default: OUTPUT/work)"
    )
    parser.add_argument(
        "--FLEET",
        default=None,
        help="a file with the expected devices, lines as in the folder fleet (default: that folder)",
    )
    parser.add_argument(
        "--DELIVERIES",
        choices=("true", "false"),
        default="false",
        help="'true' also lists what became of each event on each route (the table deliveries)",
    )
    add_key_option(parser)
    add_metrics_option(parser, TOTALS)
    known, _ = parser.parse_known_args(argv)
    window, is_nightly = known.DATE
    if known.FROM or known.TO:
        if not (known.FROM and known.TO and known.FROM <= known.TO) or window.first:
            parser.error("--FROM and --TO are two days, the first before the last; without --DATE")
        window = Window(known.FROM, known.TO)
    as_of = known.AS_OF or system.now()
    watermark = Watermark(int(as_of.timestamp() * 1_000), known.LATENESS_S)
    options = known.OUTBOX, known.WORK, known.FLEET, known.ATTESTATION_KEY, known.ENGINE, known.METRICS
    is_listed = known.DELIVERIES == "true"
    return Arguments(known.INPUT, known.OUTPUT, window, watermark, *options, is_listed, is_nightly)


def main(
    argv: Sequence[str],
    engine: str = SPARK,
    session: Callable[[], AbstractContextManager[Any]] = nullcontext,
    filed: Callable[[dict[str, Any]], object] = lambda _: None,
) -> dict[str, Any]:
    """Audit, file report and tables, send the verdict, and return the report.

    With `--DATE yesterday` the late days are judged again afterwards, each as an audit of its own. `filed`
    gets each report. `engine` is the default one; `session` makes Spark's where there is none, as on Glue
    there is.

    Raises `AuditError` if nothing can be said of the archive, `OutboxError` if the verdict is not sent,
    `LargeArchiveError` if Python is to audit more than it can, or a desk such a bucket. What ends the audit
    of a late day is raised when the others are judged.
    """
    arguments = read_arguments(argv, engine)
    documents: list[dict[str, Any]] = []
    failed: list[EventPlaneError] = []
    with ExitStack() as opened:

        @cache
        def spark() -> SparkSession:
            opened.enter_context(session())
            return job_session()

        if arguments.engine == SPARK:
            spark()  # raises before any work where a version is too old
        asked = request_of(arguments)
        if arguments.is_nightly:
            asked = replace(asked, late_days=late_days(asked))
        days = [Window(date.fromisoformat(each)) for each in asked.late_days or ()]
        for each in (asked, *(replace(asked, window=day, late_days=None) for day in days)):
            try:
                # On a desk, where a session is made for it, Spark reads no bucket.
                documents.append(_filed(each, arguments, spark, is_desk=session is not nullcontext))
            except EventPlaneError as error:
                # Also on a day without a row some of others may come.
                if each is asked and not isinstance(error, EmptyWindowError):
                    raise
                each.progress(str(error))
                failed.append(error)
            else:
                filed(documents[-1])
    if failed:
        raise failed[0]
    return documents[0]


def _filed(
    asked: AuditRequest, arguments: Arguments, spark: Callable[[], SparkSession], *, is_desk: bool
) -> dict[str, Any]:
    if arguments.engine != SPARK:
        try:
            return file_small(asked, arguments.outbox)
        except LargeArchiveError as error:
            if arguments.engine == PYTHON or (is_desk and isinstance(asked.objects, BucketObjects)):
                raise
            asked.progress(f"Spark audits more than {error.most}")
    with audited(spark(), asked) as audit:
        put = partial(write_tables, spark(), asked.output, audit)
        return file_audit(asked.output, audit, put, arguments.outbox)


def request_of(arguments: Arguments) -> AuditRequest:
    """Return what the job is asked for."""
    archive, output = open_archive(arguments.archive), open_output(arguments.output)
    work = open_output(arguments.work or f"{output.uri}/work")
    key = open_key(arguments.key)
    window, watermark = arguments.window, arguments.watermark
    return AuditRequest(archive, output, work, window, watermark, key, arguments.fleet, arguments.is_listed)


_DAYS_AGO = {"today": 0, "yesterday": 1}


def _window(text: str) -> tuple[Window, bool]:
    """Return a window, and whether it is the nightly one."""
    if text == "all":
        return Window(), False
    if text in _DAYS_AGO:
        return Window(system.now().date() - timedelta(days=_DAYS_AGO[text])), text == "yesterday"
    return Window(_day(text)), False


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a day; give YYYY-MM-DD, or of --DATE 'today', 'yesterday' or 'all'"
        ) from error


def _queue(text: str) -> str:
    if text.startswith(("https://", "http://")):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not a queue's URL; give https://sqs...")


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; give 2026-03-01T12:00:00Z") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _seconds(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; give 0 or more")


def totals_line(document: dict[str, Any], metrics: str | None) -> str:
    """One line of JSON, by which the log's readers know what the audit found, with its `metrics`."""
    members = embedded(document["totals"], metrics) | {
        "audit_totals": document["totals"],
        "date": document["window"]["date"],
        "verdict": document["verdict"],
        "coverage": document["coverage"]["share"],
        "reasons": document["reasons"],
        "lost_by_hop": document["lost_by_hop"],
    }
    return json.dumps(members) + "\n"


if __name__ == "__main__":
    arguments = sys.argv[1:]
    metrics = read_arguments(arguments).metrics
    main(arguments, filed=lambda document: sys.stdout.write(totals_line(document, metrics)))
