"""The one queue between the network threads (and signal handlers) and a loop."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")

DRAIN_LIMIT = 1_000
"""Most messages of one turn. Bounds the length of a commit and of the receipts message that follows it."""


class Mailbox(Generic[Item]):
    """Thread-safe; `put` also from a signal handler, because `SimpleQueue.put` is reentrant."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Item] = SimpleQueue()

    def put(self, item: Item) -> None:
        """Report something; never waits."""
        self._queue.put(item)

    def wait(self, timeout_s: float | None) -> list[Item]:
        """Up to `DRAIN_LIMIT` items; waits up to `timeout_s` seconds (None: for ever) for the first."""
        items: list[Item] = []
        try:
            items.append(self._queue.get(timeout=timeout_s))
            while len(items) < DRAIN_LIMIT:
                items.append(self._queue.get_nowait())
        except Empty:
            pass
        return items
