"""A run of the delivery audit by its Glue job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.archive_layout import AUDIT, last_report, verdict_name
from eventplane.errors import EventPlaneError
from operations.cloud import Cloud, was_repeated
from operations.patience import Patience

_ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"})

Report = Mapping[str, Any]


class AuditRunError(EventPlaneError):
    """The audit's run `name` ended as `state`."""

    name: str
    state: str
    problem: str
    remedy: str
    message = "the audit's run {name} ended as {state}: {problem}; {remedy}"


@dataclass(frozen=True)
class GlueAudit:
    """A run of the Glue job `job` over a window, as its schedule starts it: same result, same place.

    `started` gets the id of the run.
    """

    cloud: Cloud
    job: str
    bucket: str
    started: Callable[[str], object]

    def report(self, window: str, patience: Patience) -> Report:
        """Run it and return its report. Raises `AuditRunError`, `NotSeenError`, botocore's errors."""
        glue = self.cloud.client("glue")
        first, _, last = window.partition("..")
        # The job has a --DATE by default, and takes several days without one.
        several = {"--DATE": "all", "--FROM": first, "--TO": last}
        arguments = several if last else {"--DATE": window}

        def start() -> str | None:
            try:
                return str(glue.start_job_run(JobName=self.job, Arguments=arguments)["JobRunId"])
            except glue.exceptions.ConcurrentRunsExceededException as error:
                # The job has one run at a time: its schedule's, or ours if the answer to its start was lost.
                return (
                    self._own_run(glue, arguments) if was_repeated(getattr(error, "response", {})) else None
                )

        run = patience.until(
            start, f"the end of another run of {self.job}", "see the runs of the job in AWS Glue"
        )
        self.started(run)

        def ended() -> Mapping[str, Any] | None:
            found: Mapping[str, Any] = glue.get_job_run(JobName=self.job, RunId=run)["JobRun"]
            return found if found["JobRunState"] in _ENDED else None

        result = patience.until(ended, f"the end of run {run} of {self.job}", "see its log in AWS Glue")
        if result["JobRunState"] != "SUCCEEDED":
            problem = str(result.get("ErrorMessage", "no message"))
            raise AuditRunError(run, result["JobRunState"], problem, f"see /aws-glue/jobs/{self.job}/error")
        started: datetime = result["StartedOn"]
        written: dict[str, datetime] = {}

        def read(name: str) -> bytes | None:
            try:
                found = self.cloud.s3.get_object(Bucket=self.bucket, Key=f"{AUDIT}/{name}")
            except ClientError as error:
                if error.response["Error"]["Code"] == "NoSuchKey":
                    return None
                raise
            written[name] = found["LastModified"]
            body: bytes = found["Body"].read()
            return body

        document = last_report(read, window)
        if document is None or written[verdict_name(window)] < started.replace(microsecond=0):
            raise AuditRunError(
                run, result["JobRunState"], "it wrote no report", f"see /aws-glue/jobs/{self.job}/output"
            )
        return document

    def _own_run(self, glue: Any, arguments: Mapping[str, str]) -> str | None:
        (newest, *_) = glue.get_job_runs(JobName=self.job, MaxResults=1)["JobRuns"]
        return str(newest["Id"]) if newest.get("Arguments") == arguments else None

    def stop(self, run: str) -> None:
        """Stop the run if it has not ended. Raises botocore's errors."""
        glue = self.cloud.client("glue")
        if glue.get_job_run(JobName=self.job, RunId=run)["JobRun"]["JobRunState"] not in _ENDED:
            glue.batch_stop_job_run(JobName=self.job, JobRunIds=[run])
