"""A bound on computing time, for code whose effort depends on what strangers send."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from eventplane.errors import EventPlaneError


class CpuLimitError(EventPlaneError):
    """The block computed for longer than `seconds`."""

    seconds: float
    message = "it takes longer than {seconds:g} s to compute; bound what it works on"


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raises `CpuLimitError` inside the block once this process has computed for `seconds` in it.

    Computing time, since a machine that stands still proves nothing about the input. A regular expression is
    interrupted as well. Signals belong to the main thread, where Lambda calls handlers; others are not bound.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    ended = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if not ended:
            raise CpuLimitError(seconds)

    earlier = signal.signal(signal.SIGVTALRM, stop)
    # A full collection of garbage takes as long as there are objects: the input must not pay for it.
    collects = gc.isenabled()
    gc.disable()
    # Again and again: Python swallows what is raised while an object is finalized.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        try:
            yield
        finally:
            ended = True  # one more signal would keep the lines below from being done
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if collects:
            gc.enable()
        signal.signal(signal.SIGVTALRM, earlier)
