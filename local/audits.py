"""The delivery audit over archives of complete runs, as Glue runs it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eventplane.archive_layout import VERDICTS, last_report
from local.deploy import ROOT
from local.errors import LocalError, LoggedError
from local.process import Supervisor


class AuditFailedError(LoggedError):
    """The audit job ended with an error; its log tells why."""

    def __init__(self, returncode: int, log: Path) -> None:
        self.returncode = returncode
        super().__init__(f"the audit ended with status {returncode}", log)


class NoReportError(LocalError):
    """No audit has filed a report on `window` in the folder `output`."""

    def __init__(self, output: Path, window: str) -> None:
        self.output = output
        self.window = window
        super().__init__(
            f"{output}: no report on {window!r}; run the audit with this --OUTPUT and --DATE first"
        )


class AuditProcess:
    """Spark, which starts in a process of its own while the caller goes on, for several audits."""

    def __init__(self, supervisor: Supervisor) -> None:
        orders = supervisor.run_dir / "audit-orders"
        orders.unlink(missing_ok=True)
        os.mkfifo(orders)
        # Open at both ends, so that neither this nor the writing waits for a process that may have ended.
        self._orders = os.open(orders, os.O_RDWR)
        self._job = supervisor.start(
            "audit",
            [sys.executable, "-m", "local.spark_process", str(orders)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def audit(self, outputs: Mapping[Path, Path]) -> list[dict[str, Any]]:
        """Audit archives, each into the output folder by its archive, and return their reports in order.

        The process ends then. Raises `AuditFailedError`.
        """
        words = [str(path) for pair in outputs.items() for path in pair]
        try:
            os.write(self._orders, f"{json.dumps(words)}\n".encode())
            if returncode := self._job.wait():
                raise AuditFailedError(returncode, self._job.log)
        finally:
            os.close(self._orders)
        return [read_report(output) for output in outputs.values()]


def run_audits(supervisor: Supervisor, outputs: Mapping[Path, Path]) -> list[dict[str, Any]]:
    """Audit archives in one process, each into the folder by it. Raises `AuditFailedError`."""
    return AuditProcess(supervisor).audit(outputs)


def read_report(output: Path, window: str = "all") -> dict[str, Any]:
    """Return the last report on `window` (a day, or `all`) that an audit filed in the folder `output`.

    Raises `NoReportError`.
    """
    report = last_report(lambda name: _read(output / name), window)
    if report is None:
        raise NoReportError(output, window)
    return dict(report)


def last_window(output: Path) -> str:
    """Return what was audited last into the folder `output`, a day or `all`. Raises `NoReportError`."""
    verdicts = list((output / VERDICTS).glob("*.json"))
    if not verdicts:
        raise NoReportError(output, "all")
    return max(verdicts, key=lambda each: each.stat().st_mtime_ns).stem


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
