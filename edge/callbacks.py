"""A thread for other people's code, so that it may wait, fail or be slow without holding up the loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_log = logging.getLogger(__name__)


class CallbackThread:
    """Runs what is submitted, one after the other; a failure is logged and the next one runs."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` after those before it."""
        self._jobs.put(job)

    def close(self, timeout_s: float) -> None:
        """Start no further job, and wait up to `timeout_s` seconds for the one that runs."""
        self._closed = True
        self._jobs.put(None)
        if self._thread is not threading.current_thread():  # a job may close its own thread
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed:
            try:
                job()
            except Exception:  # noqa: BLE001 -- whatever it is, it is theirs
                _log.exception("%s: a callback failed", self._thread.name)
