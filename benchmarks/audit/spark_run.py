"""`python -m benchmarks.audit.spark_run ARCHIVE OUTPUT LOG`: the audit, its stages recorded in LOG."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import main as audit


def stages(log: Path) -> dict[str, float]:
    """Seconds of the stages by what they did (`parquet`, `collect`, ...), by the record in `log`."""
    spent: Counter[str] = Counter()
    for path in log.iterdir():
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageCompleted":
                stage = event["Stage Info"]
                took_ms = stage["Completion Time"] - stage["Submission Time"]
                spent[stage["Stage Name"].split(" at ")[0]] += took_ms
    return {name: took_ms / 1_000 for name, took_ms in spent.most_common()}


def main(archive: str, output: str, log: str) -> None:
    """Audit everything in the archive."""
    Path(log).mkdir(parents=True)
    # Uncompressed, so that it needs no library to read.
    spark = local_session(
        spark__eventLog__enabled="true", spark__eventLog__dir=log, spark__eventLog__compress="false"
    )
    try:
        audit(["--INPUT", archive, "--OUTPUT", output, "--DATE", "all"])
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
