"""What the compaction says of an hour: which files count, and of which raw objects they were made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, cast

from eventplane.archive_layout import COMPACTED, Folder
from eventplane.errors import EventPlaneError
from glue_jobs.common.hours import Hour
from glue_jobs.common.objects import Objects, Stored

FORMAT: Final = 2
"""The version of the receipt, and of how hours are compacted; it stands in the name of a run."""


class UnreadableReceiptError(EventPlaneError):
    """The receipt `name` is damaged, or of a newer version of the compaction; `problem` says how it looks."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            f"{name} cannot be read ({problem}); restore its old version, or delete it if all raw objects of "
            "the hour are still there, and run the compaction again"
        )
        self.name = name
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an hour: the raw objects (`inputs`) and Parquet `files`, names with `Objects.digest`.

    `version` is the folder's at that time. `rows` are all, `copies` those marked as such, `line_texts` those
    kept as text. Without it the hour is compacted again, with the same result. A digest is '' where the
    receipt is of a compaction that did not keep them.
    """

    version: int
    run: str
    rows: int
    copies: int
    line_texts: int
    inputs: Mapping[str, str]
    files: Mapping[str, str]

    def covers(self, inputs: Sequence[Stored]) -> bool:
        """Return whether all of `inputs` are in it."""
        return {each.name for each in inputs} <= {*self.inputs}


def run_of(folder: Folder, inputs: Sequence[Stored]) -> str:
    """Return the name of the result: equal inputs and equal schema give an equal one."""
    told = [FORMAT, folder.version, *([each.name, each.mark] for each in inputs)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def read_receipt(objects: Objects, folder: Folder, hour: Hour) -> Receipt | None:
    """Return the receipt of an hour; None if it was not compacted. Raises `UnreadableReceiptError`."""
    name = hour.receipt(folder.name)
    body = objects.read(name)
    if body is None:
        return None
    try:
        members = json.loads(body)
        return Receipt(**{**members, **{each: _digests(members[each]) for each in ("inputs", "files")}})
    except (ValueError, LookupError, TypeError) as error:
        # Not as if there were none: the hour would be made anew of the sources that are left.
        raise UnreadableReceiptError(name, repr(error)) from error


def _digests(names: Mapping[str, str] | list[str]) -> Mapping[str, str]:
    return names if isinstance(names, dict) else dict.fromkeys(cast(list[str], names), "")


def write_receipt(objects: Objects, folder: Folder, hour: Hour, receipt: Receipt) -> None:
    """Put the receipt where the next run looks for it."""
    objects.write(hour.receipt(folder.name), json.dumps(asdict(receipt), indent=1).encode() + b"\n")


def publish(objects: Objects, folder: Folder, hour: Hour, files: Iterable[str]) -> None:
    """Make `files` (names) count, and nothing else of this hour.

    One small object names them and is replaced as a whole. Athena's tables point at these objects, so an
    hour's result appears at once or not at all, however many files it has.
    """
    lines = "".join(f"{objects.uri}/{name}\n" for name in files)
    objects.write(hour.published(folder.name), lines.encode())


def published(objects: Objects, folder: Folder, hour: Hour) -> list[str]:
    """Return the names of the files that count; none when the hour is not compacted."""
    body = objects.read(hour.published(folder.name)) or b""
    # By the part below the root: a copy of the archive lies elsewhere than its lines say.
    return [f"{COMPACTED}/{line.rpartition(f'/{COMPACTED}/')[2]}" for line in body.decode().split()]
