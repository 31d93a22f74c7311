"""The waiting times of commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from eventplane.errors import EventPlaneError
from operations import system

PAUSE_S: Final = 1.0
"""Between two looks, seconds: AWS IoT's registry takes ten calls a second of an account, for everybody."""

T = TypeVar("T")


class NotSeenError(EventPlaneError):
    """`what` was not seen within `timeout_s` seconds."""

    what: str
    timeout_s: float
    remedy: str
    message = "{what} was not seen within {timeout_s:.0f} s; {remedy}"


@dataclass(frozen=True, slots=True)
class Patience:
    """The longest wait of each step, seconds."""

    timeout_s: float
    pause_s: float = PAUSE_S

    def until(self, look: Callable[[], T | None], what: str, remedy: str) -> T:
        """Return what `look` finds; it is called until that is neither None nor False.

        Raises `NotSeenError` for `what`, and what `look` raises.
        """
        deadline = system.monotonic() + self.timeout_s
        while True:
            found = look()
            if found is not None and found is not False:
                return found
            if system.monotonic() >= deadline:
                raise NotSeenError(what, self.timeout_s, remedy)
            system.sleep(self.pause_s)
