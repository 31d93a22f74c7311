"""A non-blocking connection over TCP or a Unix socket."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Collection
from fcntl import ioctl
from select import POLLIN, POLLOUT
from typing import Final

CHUNK_BYTES: Final = 64 * 1024
"""Most bytes of one read, and of one write. More saves no time that can be measured."""

_SIOCOUTQ: Final = 0x5411
"""Linux on x86, Arm and RISC-V. A kernel that knows it by another number refuses it."""

Wait = Callable[[Collection[int], int, float], Collection[int]]
"""Returns those of the file descriptors that have one of the poll events; none at the deadline, in monotonic
seconds."""


class Transport:
    """Owns a connected, non-blocking socket. All but `close` raise OSError when the connection is lost."""

    piece_bytes = CHUNK_BYTES
    """Most bytes of small packets that share one write."""
    buffered = False
    """Whether `receive` has more to return without anything new on the socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._socket.fileno()

    def interest(self, *, sending: bool, receiving: bool) -> int:
        """Return the events to poll for in order to send, to receive, or both; 0 for none."""
        return (POLLOUT if sending else 0) | (POLLIN if receiving else 0)

    def send(self, data: memoryview) -> int:
        """Return how many of the bytes were taken; 0 when it would block."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def held(self) -> int:
        """Return how many of the bytes that were taken the kernel still holds; 0 where it does not say.

        A byte leaves it when the other end has confirmed it (SIOCOUTQ in tcp(7)); of TLS its bytes count.
        """
        with contextlib.suppress(OSError, ValueError):
            return int.from_bytes(ioctl(self._socket, _SIOCOUTQ, bytes(4)), sys.byteorder)
        return 0

    def receive(self) -> bytes | None:
        """Return what has arrived; empty at the end of the stream, None when there is nothing yet."""
        try:
            return self._socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return None

    def finish(self) -> None:
        """Send nothing more. What was sent still arrives, which a plain close does not guarantee."""
        # Not TLS's own shutdown, which would stop reading as well.
        socket.socket.shutdown(self._socket, socket.SHUT_WR)

    def close(self) -> None:
        """Free the socket."""
        with contextlib.suppress(OSError):
            self._socket.close()
