"""What the downlink's functions are told by their environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventplane.settings import SettingsError
from lambdas.common.settings import bundle_root, text

DESIRED: Final = "desired"
ANSWERS: Final = "answers"
DUE: Final = "due"
RECONCILER: Final = "reconciler"
SOURCES: Final = (DESIRED, ANSWERS, DUE, RECONCILER)
"""What feeds a function: the devices' inbox, the downlink's own, its queue of work, a schedule."""


@dataclass(frozen=True, slots=True)
class DownlinkSettings:
    """`source` is one of `SOURCES`; the reconciler has no `source_queue`. Tables by name, queues by URL."""

    source: str
    source_queue: str
    desired: str
    presence: str
    fleet: str
    work: str
    outbox: str
    last_resort: str
    root: Path


def read_settings(environment: Mapping[str, str]) -> DownlinkSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    source = text(environment, "EVENTPLANE_SOURCE")
    if source not in SOURCES:
        raise SettingsError("EVENTPLANE_SOURCE", f"is {source!r}, not {', '.join(SOURCES)}")
    return DownlinkSettings(
        source=source,
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE") if source != RECONCILER else "",
        desired=text(environment, "EVENTPLANE_DESIRED_TABLE"),
        presence=text(environment, "EVENTPLANE_PRESENCE_TABLE"),
        fleet=text(environment, "EVENTPLANE_FLEET_TABLE"),
        work=text(environment, "EVENTPLANE_WORK_QUEUE"),
        outbox=text(environment, "EVENTPLANE_OUTBOX_QUEUE"),
        last_resort=text(environment, "EVENTPLANE_DEAD_LETTER_QUEUE"),
        root=bundle_root(environment),
    )
