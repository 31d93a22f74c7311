"""Waiting for what happens elsewhere, where no call waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from operations.smoke.errors import NotSeenError

PAUSE_S: Final = 1.0
"""Between two looks, seconds: AWS IoT's registry takes ten calls a second of an account, for everybody."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each step waits at most, seconds."""

    timeout_s: float
    pause_s: float = PAUSE_S

    def until(self, look: Callable[[], T | None], what: str, remedy: str) -> T:
        """Return what `look` finds; it is called until that is neither None nor False.

        Raises `NotSeenError` for `what`, and what `look` raises.
        """
        deadline = time.monotonic() + self.timeout_s
        while True:
            found = look()
            if found is not None and found is not False:
                return found
            if time.monotonic() >= deadline:
                raise NotSeenError(what, self.timeout_s, remedy)
            time.sleep(self.pause_s)
