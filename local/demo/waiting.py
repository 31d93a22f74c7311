"""Waiting for work to be done, with a bar that shows it, and an end when it stands still."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic

from rich.progress import Progress

POLL_SECONDS = 0.2


class Waits:
    """The waits of a run; `gave_up` has the titles of those that ended because nothing moved any more."""

    def __init__(self, progress: Progress, patience_seconds: float) -> None:
        self.progress = progress
        self.gave_up: list[str] = []
        self._patience = patience_seconds

    def until_none_remain(self, title: str, remaining: Callable[[], int]) -> None:
        """Ask `remaining` until it says 0, or until its answer did not change for the seconds of patience."""
        before = remaining()
        task = self.progress.add_task(title, total=before)
        most, changed = before, monotonic()
        pause = Event()
        while before:
            pause.wait(POLL_SECONDS)  # the queues and spools of others tell nobody when they change
            now = remaining()
            most = max(most, now)
            self.progress.update(task, total=most, completed=most - now)
            if now != before:
                before, changed = now, monotonic()
            elif monotonic() - changed > self._patience:
                self.gave_up.append(title)
                return
        self.progress.update(task, total=most or 1, completed=most or 1)
