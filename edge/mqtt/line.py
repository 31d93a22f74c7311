"""A TCP connection that never waits: what would block says so."""

from __future__ import annotations

import contextlib
import socket
from select import POLLIN, POLLOUT
from typing import Final

CHUNK_BYTES: Final = 64 * 1024
"""Most bytes of one read, and of one write. More saves no time that can be measured."""


class Line:
    """Owns a connected, non-blocking socket. All but `close` raise OSError when the line is dead."""

    buffered = False
    """Whether `receive` has more to give without anything new on the socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def fileno(self) -> int:
        """For poll."""
        return self._socket.fileno()

    def interest(self, *, sending: bool) -> int:
        """What to poll for, when there is something to send or not."""
        return POLLIN | POLLOUT if sending else POLLIN

    def send(self, data: memoryview) -> int:
        """How many of the bytes are on their way; 0 when it would block."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def receive(self) -> bytes | None:
        """What has arrived; empty at the end of the stream, None when there is nothing yet."""
        try:
            return self._socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return None

    def finish(self) -> None:
        """Nothing more will be sent. What was sent still arrives, which a plain close does not promise."""
        # Not TLS's own shutdown, which would stop reading as well.
        socket.socket.shutdown(self._socket, socket.SHUT_WR)

    def close(self) -> None:
        """Free the socket."""
        with contextlib.suppress(OSError):
            self._socket.close()
