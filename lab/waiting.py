"""Waiting for a backlog to drain, with a limit on how long it may stand still."""

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Final

from rich.progress import Progress

PATIENCE_S: Final = 240.0
"""How long a backlog may stand still before a wait gives up; then the verdict says what is missing."""

_POLL_S: Final = 0.2


def wait_until_none_remain(
    remaining: Callable[[], int],
    patience_s: float = PATIENCE_S,
    watch: Callable[[int], None] = lambda _: None,
) -> bool:
    """Return True once `remaining` returns 0, False when it did not change for `patience_s`.

    `watch` gets each value. Queues, spools and files of other processes can only be polled.
    """
    pause = Event()
    before, since = remaining(), monotonic()
    watch(before)
    while before:
        pause.wait(_POLL_S)
        now = remaining()
        watch(now)
        if now != before:
            before, since = now, monotonic()
        elif monotonic() - since > patience_s:
            return False
    return True


class Waits:
    """The waits of a run, each with a progress bar; `gave_up` has the titles of those that gave up."""

    def __init__(self, progress: Progress, patience_s: float) -> None:
        self.progress = progress
        self.gave_up: list[str] = []
        self._patience_s = patience_s

    def until_none_remain(self, title: str, remaining: Callable[[], int]) -> None:
        """Wait until `remaining` returns 0, or give up."""
        task = self.progress.add_task(title, total=0)
        most = 0

        def show(now: int) -> None:
            nonlocal most
            most = max(most, now)
            self.progress.update(task, total=most or 1, completed=most - now if now else most or 1)

        if not wait_until_none_remain(remaining, self._patience_s, show):
            self.gave_up.append(title)
