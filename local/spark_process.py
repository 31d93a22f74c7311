"""`python -m local.spark_process ORDERS`: start Spark, then do the audits that are named in the pipe ORDERS.

A line of JSON names them: archives and outputs by turns.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import main
from glue_jobs.delivery_audit.rules import LATENESS_S


def run(orders: Path) -> None:
    """Start Spark, wait for the orders, and audit each archive into the output that follows it."""
    spark = local_session()
    try:
        with orders.open() as pipe:
            words: list[str] = json.loads(pipe.readline())
        # Everything has arrived before the archive is fetched: what has no record by now is lost, as it will
        # be when the time is over that a record may take.
        as_of = (datetime.now(UTC) + timedelta(seconds=LATENESS_S)).isoformat()
        for archive, output in zip(words[::2], words[1::2], strict=True):
            main(["--INPUT", archive, "--OUTPUT", output, "--AS_OF", as_of])
    finally:
        spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
