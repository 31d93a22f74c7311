"""Snapshots for other threads, made by the loop's thread when it passes by: the spool belongs to the loop."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from edge.figures import Figures
from edge.health.verdict import Finding


class Snapshot(NamedTuple):
    """The figures, and what is wrong with them."""

    figures: Figures
    findings: tuple[Finding, ...]


class Snapshots:
    """`nudge` wakes the loop, which then calls `answer`."""

    def __init__(self, nudge: Callable[[], None]) -> None:
        self._nudge = nudge
        self._asked: SimpleQueue[SimpleQueue[Snapshot]] = SimpleQueue()

    def ask(self, timeout_s: float) -> Snapshot | None:
        """A fresh one; None when the loop did not pass by within `timeout_s` seconds."""
        reply: SimpleQueue[Snapshot] = SimpleQueue()
        self._asked.put(reply)
        self._nudge()
        try:
            return reply.get(timeout=timeout_s)
        except Empty:
            return None

    def answer(self, make: Callable[[], Snapshot]) -> None:
        """Make one for all who have asked, if any did."""
        if self._asked.empty():
            return
        snapshot = make()
        while not self._asked.empty():
            self._asked.get().put(snapshot)
