"""Why an erasure is not done."""

from __future__ import annotations

from collections.abc import Sequence

from eventplane.errors import EventPlaneError

_SHOWN = 5


class TooWideError(EventPlaneError):
    """The `value` of `option` would take in more than one person's events."""

    def __init__(self, option: str, value: str) -> None:
        super().__init__(
            f"{option} {value!r} is not one person's: it is too short, or a name of the contract; give the "
            "whole beginning of the sources, such as //home-17/, and the device's whole client id"
        )
        self.option = option
        self.value = value


class LeftOverError(EventPlaneError):
    """After the erasure the objects `names` still name the person."""

    def __init__(self, names: Sequence[str]) -> None:
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        super().__init__(
            f"{len(names)} objects still name the person: {shown}; if something writes them (a restore, a "
            "copy), end it and run the erasure again; else delete them by hand, with all versions"
        )
        self.names = tuple(names)
