"""`python -m local.bucket_audit --INPUT s3://BUCKET/ --OUTPUT FOLDER --DATE DAY`: the audit without Glue.

It runs the job's own code with local Spark over a copy of the bucket. `eventplane smoke` takes it
as its `--audit-command`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import boto3

from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import main, read_arguments
from local.audits import fetch


def run(words: list[str]) -> None:
    """Audit the bucket that `--INPUT` names."""
    arguments = read_arguments(words)
    bucket = arguments.archive.removeprefix("s3://").rstrip("/")
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        fetch(boto3.client("s3"), bucket, Path(folder))
        spark = local_session(is_short=True)
        try:
            main(["--INPUT", folder, "--OUTPUT", arguments.output, "--DATE", str(arguments.window)])
        finally:
            spark.stop()


if __name__ == "__main__":
    run(sys.argv[1:])
