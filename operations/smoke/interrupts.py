"""SIGINT and SIGTERM end a run where nothing is half made, and never its removals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from operations.command import say

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Turns the signals into `KeyboardInterrupt`, within `taken`."""

    def __init__(self) -> None:
        self._is_held = False
        self._is_removing = False
        self._is_pending = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take over the signals for the block."""
        before = {each: signal.signal(each, self._receive) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Interrupt after the block, not within: what it makes has to be noted first."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    def start_removing(self) -> None:
        """Interrupt nothing from here on."""
        self._is_removing = True

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._is_removing:
            say("still removing what the test has made; it ends by itself")
        elif self._is_held:
            self._is_pending = True
        else:
            raise KeyboardInterrupt
