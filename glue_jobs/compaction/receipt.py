"""The last word on a compacted hour. Without it the hour is compacted again, with the same result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from eventplane.archive_layout import Folder
from glue_jobs.common.hours import Hour
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.compaction.errors import UnreadableReceiptError

FORMAT = 1
"""The version of the receipt, and of how hours are compacted; it stands in the name of a run."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an hour: `inputs` are the names of the raw objects, `files` those of the Parquet files.

    `rows` are all, `copies` those marked as such, `line_texts` those kept as text.
    """

    version: int
    run: str
    rows: int
    copies: int
    line_texts: int
    inputs: tuple[str, ...]
    files: tuple[str, ...]

    def covers(self, inputs: Sequence[Stored]) -> bool:
        """Whether all of `inputs` are in it."""
        return {each.name for each in inputs} <= set(self.inputs)


def run_of(folder: Folder, inputs: Sequence[Stored]) -> str:
    """The name of the result: equal inputs and equal schema give an equal one."""
    told = [FORMAT, folder.version, *([each.name, each.mark] for each in inputs)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def read_receipt(objects: Objects, folder: Folder, hour: Hour) -> Receipt | None:
    """The receipt of an hour, if it was compacted. Raises `UnreadableReceiptError`."""
    name = hour.receipt(folder.name)
    body = objects.read(name)
    if body is None:
        return None
    try:
        members = json.loads(body)
        return Receipt(**{**members, "inputs": tuple(members["inputs"]), "files": tuple(members["files"])})
    except (ValueError, LookupError, TypeError) as error:
        # Not as if there were none: the hour would be made anew of the sources that are left.
        raise UnreadableReceiptError(name, repr(error)) from error


def write_receipt(objects: Objects, folder: Folder, hour: Hour, receipt: Receipt) -> None:
    """Put the receipt where the next run looks for it."""
    objects.write(hour.receipt(folder.name), json.dumps(asdict(receipt), indent=1).encode() + b"\n")
