"""The job: `--INPUT <archive> [--DATE recent|yesterday|all|DAY] [--RAW_DAYS n] ...`, on Glue or anywhere."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from eventplane.archive_layout import COMPACTIONS, LEAST_RAW_DAYS, Compaction, Folder, compacted_folders
from eventplane.errors import EventPlaneError
from glue_jobs.common import system
from glue_jobs.common.attestation import add_attest_option, add_key_option, attest_old, open_key
from glue_jobs.common.embedded_metrics import add_metrics_option, embedded
from glue_jobs.common.hours import Days, Hour, hours_of
from glue_jobs.common.listing import HourReceipt, UnreadableReceiptError
from glue_jobs.common.objects import Objects, open_archive
from glue_jobs.common.session import job_session
from glue_jobs.compaction.compact import HourError, batches, compact_hours, remove_raw

_FAILURES: Final = (
    HourError,
    UnreadableReceiptError,
    PySparkException,
    Py4JError,
    ClientError,
    BotoCoreError,
)
"""What holds up one hour and no other."""

RECENT_DAYS = 2
"""How many days before today `recent` begins: a job that was down for so long catches up by itself."""


class CompactionError(EventPlaneError):
    """Some hours failed: `failures` by folder and hour. All others are compacted."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{hour}: {reason:.300}" for hour, reason in list(failures.items())[:10])
        super().__init__(f"{len(failures)} hours stay as they are: {reasons}")
        self.failures = dict(failures)


@dataclass(frozen=True, slots=True)
class CompactionArgs:
    """Job parameters. `archive` is a URI or a local folder.

    Raw objects of hours that ended more than `raw_age` ago are deleted; None keeps them all. `key` is what
    `open_key` takes, `attests_old` whether receipts that are not attested become so first, `metrics` what
    `embedded` takes.
    """

    archive: str
    days: Days
    raw_age: timedelta | None = None
    key: str | None = None
    attests_old: bool = False
    metrics: str | None = None


def read_arguments(argv: Sequence[str], now: datetime) -> CompactionArgs:
    """Return the job's parameters; Glue adds some of its own, which are ignored."""
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
    parser.add_argument(
        "--RAW_DAYS",
        type=_raw_age,
        default=None,
        help="days after which raw objects that are compacted and verified are deleted; default: never",
    )
    add_key_option(parser)
    add_attest_option(parser)
    add_metrics_option(parser, totals_of({}, {}, 0))
    known, _ = parser.parse_known_args(argv)
    is_attesting = known.ATTEST == "true"
    options = known.RAW_DAYS, known.ATTESTATION_KEY, is_attesting, known.METRICS
    return CompactionArgs(known.INPUT, known.DATE, *options)


def main(argv: Sequence[str], now: datetime | None = None) -> dict[str, HourReceipt]:
    """Compact the closed hours that are not yet, delete raw objects that are old, return the new receipts.

    The receipts are by folder and hour. An hour whose raw objects are old is compacted whatever `--DATE`
    says, so a job that was down for long catches up, and nothing is deleted that is not compacted. Raises
    `CompactionError` at the end if some hours failed: an object that is damaged, missing or not answered by
    S3 holds up its hour only.
    """
    now = now or system.now()
    arguments = read_arguments(argv, now)
    objects, key = open_archive(arguments.archive), open_key(arguments.key)
    now_ms = int(1_000 * now.timestamp())
    if arguments.attests_old:
        attest_old(objects, key, (each.name for each in objects.beneath(COMPACTIONS)), now_ms)
    spark = job_session()
    done: dict[str, HourReceipt] = {}
    failures: dict[str, str] = {}
    removed = 0
    for folder, compaction in compacted_folders():

        def compact(hours: Sequence[Hour], folder: Folder = folder, how: Compaction = compaction) -> None:
            for hour, receipt in compact_hours(spark, objects, key, now_ms, folder, how, hours):
                done[f"{folder.name}/{hour.partition}"] = receipt

        hours = dict(_hours(objects, folder, arguments, now))
        for batch in batches(objects, folder, hours):
            alone = batch
            with suppress(*_FAILURES):
                compact(batch)
                alone = []
            for hour in batch:
                try:
                    if hour in alone:
                        compact([hour])
                    removed += remove_raw(objects, key, folder, hour) if hours[hour] else 0
                except _FAILURES as error:
                    failures[f"{folder.name}/{hour.partition}"] = str(error)
    totals = totals_of(done, failures, removed)
    line = {"compaction_totals": totals} | embedded(totals, arguments.metrics)
    sys.stdout.write(json.dumps(line) + "\n")
    if failures:
        raise CompactionError(failures)
    return done


def _hours(
    objects: Objects, folder: Folder, arguments: CompactionArgs, now: datetime
) -> list[tuple[Hour, bool]]:
    """Return the closed hours to work on, the earliest first, and whether their raw objects are old."""
    hours = {*hours_of(objects, folder.name, arguments.days)}
    age = arguments.raw_age
    if age is not None:
        hours |= {*hours_of(objects, folder.name, Days(last=(now - age).date()))}
    return [
        (hour, age is not None and hour.is_older_than(age, now))
        for hour in sorted(hours)
        if hour.is_closed(now)
    ]


def totals_of(done: dict[str, HourReceipt], failures: dict[str, str], removed: int) -> dict[str, int]:
    """Return what the log's readers get: the hours compacted and failed, and the raw objects `removed`."""
    return {
        "hours": len(done),
        "rows": sum(each.rows for each in done.values()),
        "failed": len(failures),
        "removed": removed,
    }


def _raw_age(text: str) -> timedelta:
    if not text.isdecimal() or int(text) < LEAST_RAW_DAYS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not {LEAST_RAW_DAYS} days or more; traces and replays read raw rows"
        )
    return timedelta(days=int(text))


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
            f"{text!r} is not a day; give YYYY-MM-DD, 'recent', 'yesterday' or 'all'"
        ) from error
    return Days(day, day)


if __name__ == "__main__":
    main(sys.argv[1:])
