"""The audits of a run: of its archive, and of a copy from which deliveries were deleted.

An audit that does not notice the deletion proves nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.ledger import LEDGER
from eventplane.reasons import Outcome
from eventplane.written import WRITTEN, read_entry
from lab.audit_page.page import PAGE, write_page
from lab.audits import run_audits
from lab.errors import LocalError
from lab.oracle import Key
from lab.process import Supervisor


class NothingToDeleteError(LocalError):
    """No object of the ledger at `archive` holds deliveries of devices' events."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        super().__init__(f"{archive} has no ledger object with deliveries: play more events (EVENTS=400)")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """`file`, by its path in the archive, recorded the delivery of `events` and no longer does."""

    file: str
    events: frozenset[Key]

    def seen_by(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of the audit of the archive without the deliveries.

        It has `noticed` when it calls the archive broken, and loses events of the object and no other.
        """
        lost = [each for each in report["findings"] if each["kind"] == "lost"]
        named = {(each["source"], each["id"]) for each in lost}
        return {
            "object": self.file,
            "events": len(self.events),
            "verdict": report["verdict"],
            "lost": report["totals"]["lost"],
            "noticed": report["verdict"] == "broken" and bool(named) and named <= self.events,
            "evidence": sorted({(each["source"], each["id"], each["route"]) for each in lost}, key=str),
        }


def copy_without_one(archive: Path, copy: Path) -> Forgotten:
    """Make `copy` of `archive`, in which the ledger's object with most deliveries has lost them.

    Its other rows stay: a dead letter ends elsewhere as well, and what entered in the cloud has no other
    witness. Raises `NothingToDeleteError`.
    """
    files = sorted((archive / LEDGER).rglob("*.json.gz"))
    held = {file: gzip.decompress(file.read_bytes()).splitlines() for file in files}
    deliveries = {file: [row for row in map(json.loads, held[file]) if _is_delivery(row)] for file in files}
    file = max(files, key=lambda each: len(deliveries[each]), default=None)
    if file is None or not deliveries[file]:
        raise NothingToDeleteError(archive)
    shutil.copytree(archive, copy, copy_function=os.link)
    name = file.relative_to(archive)
    (copy / name).unlink()  # it is a link: the original must not change
    others = (line for line in held[file] if not _is_delivery(json.loads(line)))
    # Also without a row: an object that is gone is a hole of the archive, and no loss.
    write_as_its_writer(copy, name, list(others))
    return Forgotten(name.as_posix(), frozenset((row["source"], row["id"]) for row in deliveries[file]))


def write_as_its_writer(archive: Path, name: Path, lines: Sequence[bytes]) -> None:
    """Replace the object `name` and its entry in its writer's list.

    If the list said what it had before, that somebody altered it would explain all that is missing.
    """
    content = gzip.compress(b"".join(line + b"\n" for line in lines))
    (archive / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    for path in (archive / WRITTEN / name).parent.glob(f"{name.name}.*"):
        if entry := read_entry(path.relative_to(archive).as_posix()):
            path.rename(archive / entry._replace(rows=len(lines), digest=digest, mark="").name)


def _is_delivery(row: Mapping[str, Any]) -> bool:
    is_letter = row["type"] == DEAD_LETTER_TYPE
    return row["outcome"] == Outcome.DELIVERED and row["client_id"] is not None and not is_letter


@dataclass(frozen=True, slots=True)
class Audits:
    """The `report` on the archive, its `page`, and what the second audit `noticed` (`Forgotten.seen_by`)."""

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
    whole, broken = run_audits(supervisor, outputs)
    for report, (audited, beneath) in zip((whole, broken), outputs.items(), strict=True):
        write_page(report, beneath / PAGE, str(audited))
    return Audits(whole, deletion.seen_by(broken), output / PAGE)
