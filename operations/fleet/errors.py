"""What the fleet's commands refuse."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class UnknownDeviceError(EventPlaneError):
    """Neither the registry nor AWS IoT knows `thing`."""

    def __init__(self, thing: str) -> None:
        super().__init__(f"nobody knows a device {thing!r}; see its spelling and the environment")
        self.thing = thing
