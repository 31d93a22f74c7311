"""The Spark audit over a run's archive, as Glue runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from local.deploy import ROOT
from local.errors import LoggedError
from local.process import Supervisor


class AuditError(LoggedError):
    """The audit job ended with status `returncode`; its log tells why."""

    def __init__(self, returncode: int, log: Path) -> None:
        self.returncode = returncode
        super().__init__(f"the audit ended with status {returncode}", log)


def audit(supervisor: Supervisor, archive: Path, output: Path) -> dict[str, Any]:
    """The report of the audit over `archive`. Raises `AuditError`."""
    job = supervisor.start(
        "audit",
        [sys.executable, "-m", "glue_jobs.delivery_audit", "--INPUT", str(archive), "--OUTPUT", str(output)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if returncode := job.wait():
        raise AuditError(returncode, job.log)
    report: dict[str, Any] = json.loads((output / "report.json").read_text())
    return report
