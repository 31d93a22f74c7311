"""The job: `--INPUT <archive> [--DATE recent|yesterday|all|YYYY-MM-DD]`, on Glue or anywhere."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from botocore.exceptions import BotoCoreError, ClientError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from eventplane.archive_layout import compacted_folders
from glue_jobs.common.archives import open_archive
from glue_jobs.common.hours import Days, hours_of
from glue_jobs.common.session import job_session
from glue_jobs.compaction.compact import compact_hour
from glue_jobs.compaction.errors import CompactionError, HourError
from glue_jobs.compaction.receipt import Receipt

RECENT_DAYS = 2
"""How many days before today `recent` begins: a job that was down for so long catches up by itself."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Job parameters. `archive` is a URI or a local folder."""

    archive: str
    days: Days


def read_arguments(argv: Sequence[str], now: datetime) -> Arguments:
    """The job's parameters; Glue adds some of its own, which are ignored."""
    parser = argparse.ArgumentParser(
        prog="python -m glue_jobs.compaction",
        description="Compact the closed hours of an archive.",
        allow_abbrev=False,
    )
    parser.add_argument("--INPUT", required=True, help="the archive: a folder or s3://bucket/")
    parser.add_argument(
        "--DATE",
        type=lambda text: _days(text, now.date()),
        default="recent",
        help="a UTC day of writing, 'recent' (default), 'yesterday' or 'all'",
    )
    known, _ = parser.parse_known_args(argv)
    return Arguments(known.INPUT, known.DATE)


def main(argv: Sequence[str], now: datetime | None = None) -> dict[str, Receipt]:
    """Compact every closed hour that is not yet; the receipts of those that were, by folder and hour.

    Raises `CompactionError` at the end if some hours could not be: whatever object is damaged, missing or not
    answered by S3, it holds up its hour only.
    """
    now = now or datetime.now(UTC)
    arguments = read_arguments(argv, now)
    objects = open_archive(arguments.archive)
    spark = job_session()
    done: dict[str, Receipt] = {}
    failures: dict[str, str] = {}
    for folder, compaction in compacted_folders():
        for hour in hours_of(objects, folder.name, arguments.days):
            if not hour.is_closed(now):
                continue
            name = f"{folder.name}/{hour.partition}"
            try:
                receipt = compact_hour(spark, objects, folder, compaction, hour)
            except (HourError, PySparkException, Py4JError, ClientError, BotoCoreError) as error:
                failures[name] = str(error)
                continue
            if receipt:
                done[name] = receipt
    sys.stdout.write(totals_line(done, failures))
    if failures:
        raise CompactionError(failures)
    return done


def totals_line(done: dict[str, Receipt], failures: dict[str, str]) -> str:
    """One line of JSON, by which the log's readers know what was compacted."""
    totals = {
        "hours": len(done),
        "rows": sum(each.rows for each in done.values()),
        "copies": sum(each.copies for each in done.values()),
        "failed": len(failures),
    }
    return json.dumps({"compaction_totals": totals}) + "\n"


def _days(text: str, today: date) -> Days:
    match text:
        case "all":
            return Days()
        case "recent":
            return Days(first=today - timedelta(days=RECENT_DAYS))
        case "yesterday":
            return Days(today - timedelta(days=1), today - timedelta(days=1))
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no day; give YYYY-MM-DD, 'recent', 'yesterday' or 'all'"
        ) from error
    return Days(day, day)


if __name__ == "__main__":
    main(sys.argv[1:])
