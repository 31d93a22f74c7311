"""Waiting for what another process or thread brings about."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 10.0, every_s: float = 0.01) -> bool:
    """Ask until `condition()` holds, a question `every_s`; False if it does not hold within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
