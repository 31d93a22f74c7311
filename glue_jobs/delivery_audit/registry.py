"""The list of the devices that are expected: the fleet's registry as it was archived. No Spark."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eventplane.fleet import FLEET
from glue_jobs.common.hours import day_of_folder, hour_of
from glue_jobs.common.listing import ObjectFault
from glue_jobs.common.objects import Objects
from glue_jobs.delivery_audit.errors import FleetListError
from glue_jobs.delivery_audit.window import Window

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Registry:
    """The devices in service: `rows` of thing, state and since when, Unix milliseconds.

    `name` is the object, or the file, that has the list.
    """

    name: str
    rows: list[tuple[str, str, int | None]]


def read_registry(
    objects: Objects, window: Window, file: str | None
) -> tuple[Registry | None, list[ObjectFault]]:
    """Return the list in `file`, else the archive's newest one by the end of the window; None without one.

    A list of the archive that cannot be read is a fault, and the next best one is taken. Raises
    `FleetListError` for `file`.
    """
    if file is not None:
        path = Path(file)
        if not path.is_file():
            raise FleetListError(file, "there is no such file")
        return Registry(file, list(_rows(file, path.read_bytes()))), []
    faults: list[ObjectFault] = []
    for name in _by_worth(objects, window):
        try:
            return Registry(name, list(_rows(name, objects.read(name) or b""))), faults
        except FleetListError as error:
            faults.append(ObjectFault("unreadable", name, hour_of(name), FLEET, str(error), None))
    return None, faults


def _by_worth(objects: Objects, window: Window) -> Iterator[str]:
    """Yield the archive's lists: the newest by the end of the window first, then the oldest behind it."""
    folders = sorted((day, each) for each in objects.folders(FLEET) if (day := day_of_folder(each)))
    before = [each for day, each in folders if window.day is None or day <= window.day]
    for folder in reversed(before):
        yield from reversed([each.name for each in objects.beneath(f"{FLEET}/{folder}")])
    for _, folder in folders[len(before) :]:
        yield from (each.name for each in objects.beneath(f"{FLEET}/{folder}"))


def _rows(name: str, body: bytes) -> Iterator[tuple[str, str, int | None]]:
    if not body:
        raise FleetListError(name, "it has no bytes")
    try:
        text = gzip.decompress(body) if body.startswith(_GZIP) else body
        for line in text.splitlines():
            members = json.loads(line)
            yield str(members["thing"]), str(members["state"]), members.get("since_ms")
    except (ValueError, KeyError, TypeError, EOFError, OSError, zlib.error) as error:
        raise FleetListError(name, f"it cannot be read: {error!r}") from error
