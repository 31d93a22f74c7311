"""`python -m local.spark_process ARCHIVE OUTPUT ...`: several audits in one Spark session."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import main
from glue_jobs.delivery_audit.rules import LATENESS_S


def run(words: list[str]) -> None:
    """Audit each archive into the output that follows it."""
    # Everything has arrived before the archive is fetched: what has no record by now is lost, as it will be
    # when the time is over that a record may take.
    as_of = (datetime.now(UTC) + timedelta(seconds=LATENESS_S)).isoformat()
    spark = local_session()
    try:
        for archive, output in zip(words[::2], words[1::2], strict=True):
            main(["--INPUT", archive, "--OUTPUT", output, "--AS_OF", as_of])
    finally:
        spark.stop()


if __name__ == "__main__":
    run(sys.argv[1:])
