"""The list of the devices that are expected: the fleet's registry as it was archived. No Spark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eventplane.fleet import FLEET
from glue_jobs.common.hours import day_of_folder
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


def read_registry(objects: Objects, window: Window, file: str | None) -> Registry | None:
    """Return the list in `file`, else the archive's newest one by the end of the window; None without one.

    Raises `FleetListError`.
    """
    if file is not None:
        path = Path(file)
        if not path.is_file():
            raise FleetListError(file, "there is no such file")
        return Registry(file, list(_rows(file, path.read_bytes())))
    days = {day: each for each in objects.folders(FLEET) if (day := day_of_folder(each))}
    before = [day for day in days if window.day is None or day <= window.day]
    if not days:
        return None
    # Of a window before the first list: the oldest one that there is.
    chosen = max(before) if before else min(days)
    found = objects.beneath(f"{FLEET}/{days[chosen]}")
    name = (found[-1] if before else found[0]).name
    return Registry(name, list(_rows(name, objects.read(name) or b"")))


def _rows(name: str, body: bytes) -> Iterator[tuple[str, str, int | None]]:
    try:
        text = gzip.decompress(body) if body.startswith(_GZIP) else body
        for line in text.splitlines():
            members = json.loads(line)
            yield str(members["thing"]), str(members["state"]), members.get("since_ms")
    except (ValueError, KeyError, TypeError, EOFError, OSError) as error:
        raise FleetListError(name, f"it cannot be read: {error!r}") from error
