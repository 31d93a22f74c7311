"""One object deleted by hand from a copy of the archive: an audit that does not notice proves nothing."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventplane.delivery import DEAD_LETTER_TYPE, Outcome
from eventplane.ledger import LEDGER
from local.errors import LocalError
from local.sent import Key


class NothingToDeleteError(LocalError):
    """No object of the ledger at `archive` holds deliveries of devices' events only."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        super().__init__(f"{archive} has no ledger object of deliveries alone: play more events (EVENTS=400)")


@dataclass(frozen=True, slots=True)
class Deletion:
    """`file`, by its path in the archive, recorded the delivery of `events` and is gone."""

    file: str
    events: frozenset[Key]

    def seen_by(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """What the audit of the archive without the object says of it.

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


def copy_without_one(archive: Path, copy: Path) -> Deletion:
    """Make `copy` of `archive` without one object: the largest of the ledger with deliveries alone.

    A dead letter ends elsewhere as well, and what entered in the cloud has no other witness.
    Raises `NothingToDeleteError`.
    """
    files = sorted((archive / LEDGER).rglob("*.json.gz"), key=lambda each: (-each.stat().st_size, each))
    for file in files:
        rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        if rows and all(_is_delivery(row) for row in rows):
            shutil.copytree(archive, copy, copy_function=os.link)  # objects are never changed
            name = file.relative_to(archive)
            (copy / name).unlink()
            return Deletion(name.as_posix(), frozenset((row["source"], row["id"]) for row in rows))
    raise NothingToDeleteError(archive)


def _is_delivery(row: Mapping[str, Any]) -> bool:
    is_letter = row["type"] == DEAD_LETTER_TYPE
    return row["outcome"] == Outcome.DELIVERED and row["client_id"] is not None and not is_letter
