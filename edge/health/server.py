"""The health endpoint: a thread that answers one connection at a time.

The standard library's `http.server` does the same for 3 MB of resident memory more (docs/device.md).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from time import monotonic

from edge.health.http import Response, is_complete, read_path

_log = logging.getLogger(__name__)

CONNECTION_S = 2.0
"""How long one connection may take to send its request, and again to take its answer, seconds. A slow client
holds up the next one, but nothing else."""

_QUEUED = 8
"""Connections that may wait for their turn."""

_CHUNK = 2048


class HealthServer:
    """Serves `pages` by path on `host` and `port` (0: a free one, see the attribute).

    Raises `OSError` when the port is taken.

    A page is made for each request, in this server's thread.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[], Response]]) -> None:
        self._pages = pages
        self._closed = threading.Event()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_QUEUED)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._run, name="health", daemon=True).start()

    def close(self) -> None:
        """Take no further connection; one that is being answered ends by itself."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which a close alone does not
        self._listener.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                # Too many open files, an aborted handshake: the next one may do better, and no hot loop.
                _log.warning("health endpoint: %s", error)
                self._closed.wait(1.0)
                continue
            with connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            received = _receive(connection)
            if is_complete(received):
                connection.settimeout(CONNECTION_S)
                connection.sendall(self._answer(received).encode())
                _see_off(connection)
        except OSError as error:  # a client that is gone or slow is its own problem
            _log.debug("health endpoint: %s", error)
        except Exception:  # noqa: BLE001 -- a page's bug must not end the endpoint
            _log.exception("health endpoint: a page failed")

    def _answer(self, received: bytes) -> Response:
        path = read_path(received)
        if isinstance(path, Response):
            return path
        page = self._pages.get(path)
        return page() if page else Response(404, f"there are: {', '.join(self._pages)}\n")


def _receive(connection: socket.socket) -> bytes:
    """The request's head, or what came of it in time; the deadline is for all of it, not for each byte."""
    give_up = monotonic() + CONNECTION_S
    received = b""
    while not is_complete(received):
        connection.settimeout(max(0.001, give_up - monotonic()))
        more = connection.recv(_CHUNK)
        if not more:
            break
        received += more
    return received


def _see_off(connection: socket.socket) -> None:
    """Wait until the client has hung up: closing over unread bytes would reset our answer away."""
    connection.shutdown(socket.SHUT_WR)
    give_up = monotonic() + CONNECTION_S
    while (left := give_up - monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(_CHUNK):
            return
