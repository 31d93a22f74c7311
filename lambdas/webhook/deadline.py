"""A bound on the whole of an exchange: a socket's own timeout starts anew with every byte that drips in."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self


class Deadline:
    """Ends what goes on over the socket it watches when `seconds` have passed. Use it in a `with` block."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._ends_at = time.monotonic() + seconds
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    @property
    def left_s(self) -> float:
        """Seconds that are left, never none: a socket takes 0 for not waiting at all."""
        return max(self._ends_at - time.monotonic(), 0.001)

    def watch(self, connection: socket.socket) -> None:
        """End `connection` when the time is over; the one watched before is forgotten."""
        self._socket = connection
        if self.expired:
            self._end()

    def _expire(self) -> None:
        self.expired = True
        self._end()

    def _end(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                # The plain socket's: TLS would first want to say good-bye. Whoever waits on it wakes up.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
