"""What the fleet's commands refuse."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class UnknownDeviceError(EventPlaneError):
    """Neither the registry nor AWS IoT knows `thing`."""

    thing: str
    message = "no device is called {thing!r}; see its spelling and the environment"
