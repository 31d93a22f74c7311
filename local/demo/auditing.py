"""The audits of a run: of its archive, and of a copy with one object deleted by hand."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.audit_page.page import PAGE, write_page
from local.demo.deletion import copy_without_one
from local.deploy import ROOT
from local.errors import LoggedError
from local.process import Supervisor


class AuditFailedError(LoggedError):
    """The audit job ended with an error; its log tells why."""

    def __init__(self, returncode: int, log: Path) -> None:
        self.returncode = returncode
        super().__init__(f"the audit ended with status {returncode}", log)


@dataclass(frozen=True, slots=True)
class Audits:
    """The `report` on the archive, its `page`, and what the second audit `noticed` (`Deletion.seen_by`)."""

    report: dict[str, Any]
    noticed: dict[str, Any]
    page: Path


def audit_twice(supervisor: Supervisor, archive: Path, output: Path) -> Audits:
    """Audit `archive` into `output`, and then a copy of it that lacks an object.

    Raises `AuditFailedError`, `NothingToDeleteError`.
    """
    copy = archive.with_name(f"{archive.name}-without-one")
    deletion = copy_without_one(archive, copy)
    outputs = {archive: output, copy: output.with_name(f"{output.name}-without-one")}
    words = [str(path) for pair in outputs.items() for path in pair]
    job = supervisor.start(
        "audit",
        [sys.executable, "-m", "local.demo.spark_process", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if returncode := job.wait():
        raise AuditFailedError(returncode, job.log)
    whole, broken = (_shown(each, beneath) for each, beneath in outputs.items())
    return Audits(whole, deletion.seen_by(broken), output / PAGE)


def _shown(archive: Path, output: Path) -> dict[str, Any]:
    """The report in `output`, beside which its page is written."""
    report: dict[str, Any] = json.loads((output / "report.json").read_text(encoding="utf-8"))
    write_page(report, output / PAGE, str(archive))
    return report
