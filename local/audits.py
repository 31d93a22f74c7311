"""The delivery audit over archives of complete runs, as Glue runs it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.deploy import ROOT
from local.errors import LoggedError
from local.process import Supervisor


class AuditFailedError(LoggedError):
    """The audit job ended with an error; its log tells why."""

    def __init__(self, returncode: int, log: Path) -> None:
        self.returncode = returncode
        super().__init__(f"the audit ended with status {returncode}", log)


def run_audits(supervisor: Supervisor, outputs: Mapping[Path, Path]) -> list[dict[str, Any]]:
    """The reports on archives, in their order, each written to the output folder by its archive.

    They share one process, because starting Spark takes longer than most audits. Raises `AuditFailedError`.
    """
    words = [str(path) for pair in outputs.items() for path in pair]
    job = supervisor.start(
        "audit",
        [sys.executable, "-m", "local.spark_process", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if returncode := job.wait():
        raise AuditFailedError(returncode, job.log)
    return [json.loads((each / "report.json").read_text(encoding="utf-8")) for each in outputs.values()]
