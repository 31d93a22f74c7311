"""An operator's order to begin the versions of a state's key anew, for the downlink's queue of work."""

from __future__ import annotations

from typing import Any, Final

WORK_QUEUE: Final = "downlink-work"
"""What the queue is called, without project and environment."""


def one_reset(key: str, thing: str) -> dict[str, Any]:
    """Return the order for one device; the time at which it was put into the queue numbers the reset."""
    return {"reset": {"key": key, "thing": thing}}


def fleet_reset(key: str, *, number: int | None = None, after: str | None = None) -> dict[str, Any]:
    """Return the order for all devices; `after` which one to go on, once the reset has a `number`."""
    return {"reset": {"key": key, "number": number, "after": after}}
