"""Which files of an hour count: one small object that names them, replaced as a whole.

Athena's tables point at these objects, so an hour's result appears at once or not at all, whatever number of
files it has.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventplane.archive_layout import COMPACTED, Folder
from glue_jobs.common.hours import Hour
from glue_jobs.common.objects import Objects


def publish(objects: Objects, folder: Folder, hour: Hour, files: Sequence[str]) -> None:
    """Let `files` (names) count, and nothing else of this hour."""
    lines = "".join(f"{objects.uri}/{name}\n" for name in files)
    objects.write(hour.published(folder.name), lines.encode())


def published(objects: Objects, folder: Folder, hour: Hour) -> list[str]:
    """The names of the files that count; none when the hour is not compacted."""
    body = objects.read(hour.published(folder.name)) or b""
    # By the part below the root: a copy of the archive lies elsewhere than its lines say.
    return [f"{COMPACTED}/{line.rpartition(f'/{COMPACTED}/')[2]}" for line in body.decode().split()]
