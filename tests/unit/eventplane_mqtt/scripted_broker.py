"""A broker that does only what a test tells it to, on a real socket."""

from __future__ import annotations

import fcntl
import socket
import termios
from types import TracebackType
from typing import Self

SECONDS = 60.0


class ScriptedBroker:
    """Listens on 127.0.0.1:`port`; `accept` a connection, then `send` to it and see what was `received`."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(SECONDS)
        self.port: int = self._server.getsockname()[1]
        self._peer: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.hang_up()

    def accept(self) -> None:
        self._peer, _ = self._server.accept()
        self._peer.settimeout(SECONDS)

    def send(self, data: bytes) -> None:
        assert self._peer is not None
        self._peer.sendall(data)

    def received(self, count: int) -> bytes:
        """The next `count` bytes; fewer at the end of the stream."""
        assert self._peer is not None
        data = b""
        while len(data) < count and (more := self._peer.recv(count - len(data))):
            data += more
        return data

    def has_delivered(self) -> bool:
        """Whether all that was sent is at the other side's kernel; `hang_up` may throw away the rest."""
        assert self._peer is not None
        return not any(fcntl.ioctl(self._peer, termios.TIOCOUTQ, bytes(4)))

    def hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
