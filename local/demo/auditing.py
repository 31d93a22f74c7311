"""The audits of a run: of its archive, and of a copy with one object deleted by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.audit_page.page import PAGE, write_page
from local.audits import AuditProcess
from local.demo.deletion import copy_without_one


@dataclass(frozen=True, slots=True)
class Audits:
    """The `report` on the archive, its `page`, and what the second audit `noticed` (`Deletion.seen_by`)."""

    report: dict[str, Any]
    noticed: dict[str, Any]
    page: Path


def audit_twice(spark: AuditProcess, archive: Path, output: Path) -> Audits:
    """Audit `archive` into `output`, and then a copy of it that lacks an object.

    Raises `AuditFailedError`, `NothingToDeleteError`.
    """
    copy = archive.with_name(f"{archive.name}-without-one")
    deletion = copy_without_one(archive, copy)
    outputs = {archive: output, copy: output.with_name(f"{output.name}-without-one")}
    whole, broken = spark.audit(outputs)
    for report, (audited, beneath) in zip((whole, broken), outputs.items(), strict=True):
        write_page(report, beneath / PAGE, str(audited))
    return Audits(whole, deletion.seen_by(broken), output / PAGE)
