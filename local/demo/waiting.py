"""Waiting for work to be done, with a bar that shows it, and an end when it stands still."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic

from rich.progress import Progress

POLL_SECONDS = 0.2


def wait_until_none_remain(
    progress: Progress, title: str, remaining: Callable[[], int], patience_seconds: float
) -> bool:
    """Ask `remaining` until it says 0; False when it did not change for `patience_seconds`."""
    before = remaining()
    task = progress.add_task(title, total=before)
    most, changed = before, monotonic()
    pause = Event()
    while before:
        pause.wait(POLL_SECONDS)  # the queues and spools of others tell nobody when they change
        now = remaining()
        most = max(most, now)
        progress.update(task, total=most, completed=most - now)
        if now != before:
            before, changed = now, monotonic()
        elif monotonic() - changed > patience_seconds:
            return False
    progress.update(task, total=most or 1, completed=most or 1)
    return True
