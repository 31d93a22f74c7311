"""The health endpoint: `/healthz` and `/metrics`, over as much of HTTP/1.1 as they need.

A thread answers one GET a connection and one connection at a time. The standard library's `http.server` does
the same for 3 MB more of resident memory.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

from edge.health_status import Health, HealthFinding, overall, to_json
from edge.housekeeping import Snapshots
from edge.metrics import CONTENT_TYPE, render
from eventplane_mqtt.endpoint import is_on_this_device

_log = logging.getLogger(__name__)

CONNECTION_S = 2.0
"""How long one connection may take to send its request, and again to take its answer, seconds. A slow client
holds up the next one, but nothing else."""

_QUEUED = 8
"""Connections that may wait for their turn."""

_CHUNK = 2048

PATIENCE_S = 3.0
"""How long the loop may be busy, seconds: a commit on worn flash takes one."""

MAX_HEAD_BYTES = 4096
"""Most bytes of a request line with its headers; a monitoring program sends about 200."""

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HOST = re.compile(rb"(?im)^host:[ \t]*(.*?)(?::[0-9]+)?[ \t]*\r?$")
_ORIGIN = re.compile(rb"(?im)^origin:")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"


class HealthResponse(NamedTuple):
    """An answer; `content_type` of the `body`."""

    status: int
    body: str
    content_type: str = TEXT

    def encode(self) -> bytes:
        """Return the bytes on the wire. The connection ends with them: there is no next request."""
        body = self.body.encode("utf-8", "replace")
        allow = "Allow: GET\r\n" if self.status == 405 else ""
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n{allow}Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode("ascii") + body


def is_complete(received: bytes) -> bool:
    """Return whether no more bytes are needed: the head has ended, or is longer than we accept."""
    return len(received) > MAX_HEAD_BYTES or _HEAD_END.search(received) is not None


def read_path(received: bytes) -> str | HealthResponse:
    """Return the path that a complete head asks for, without its query, or the refusal."""
    if _HEAD_END.search(received[: MAX_HEAD_BYTES + 4]) is None:
        return HealthResponse(400, f"send a request head of at most {MAX_HEAD_BYTES} bytes\n")
    line = received.splitlines()[0] if received else b""
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        return HealthResponse(400, "send `GET /path HTTP/1.1`\n")
    if found[1] != b"GET":
        return HealthResponse(405, "only GET is answered here\n")
    return found[2].partition(b"?")[0].decode("ascii")


def is_from_page(received: bytes, *, is_local: bool) -> bool:
    """Return whether a web page sent the request: by its origin, or to a name that it had resolved to us.

    An endpoint that `is_local` is on the loopback interface; any other may be called by any name.
    """
    host = _HOST.search(received)
    name = host[1].decode("latin-1").lower().strip("[]") if host else "localhost"
    return (is_local and not is_on_this_device(name)) or _ORIGIN.search(received) is not None


def pages(snapshots: Snapshots) -> Mapping[str, Callable[[], HealthResponse]]:
    """Return `/healthz` and `/metrics`."""
    return {"/healthz": lambda: _healthz(snapshots), "/metrics": lambda: _metrics(snapshots)}


def _healthz(snapshots: Snapshots) -> HealthResponse:
    snapshot = snapshots.ask(PATIENCE_S)
    if snapshot is None:
        problem = f"the forwarder's loop did not turn for {PATIENCE_S:g} s"
        remedy = "see whether its disk answers; systemd's watchdog restarts it if it stays so"
        return _json(503, to_json([HealthFinding("loop_stalled", Health.FAILING, problem, remedy)]))
    status, findings, _ = snapshot
    code = 503 if overall(findings) is Health.FAILING else 200
    return _json(
        code, to_json(findings, thing=status.thing, uptime_s=round(status.uptime_s), pending=status.pending)
    )


def _metrics(snapshots: Snapshots) -> HealthResponse:
    snapshot = snapshots.ask(PATIENCE_S)
    if snapshot is None:
        return HealthResponse(503, f"the forwarder's loop did not turn for {PATIENCE_S:g} s\n")
    return HealthResponse(200, render(snapshot.families), CONTENT_TYPE)


def _json(status: int, body: str) -> HealthResponse:
    return HealthResponse(status, body, "application/json")


class HealthServer:
    """Serves `pages` by path on `host` and `port` (0: a free one, see the attribute).

    A page is made for each request, in this server's thread. Raises `OSError` when the port is taken.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[], HealthResponse]]) -> None:
        self._pages = pages
        self._closed = threading.Event()
        self._is_local = is_on_this_device(host)
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
                _await_close(connection)
        except OSError as error:  # a client that is gone or slow is its own problem
            _log.debug("health endpoint: %s", error)
        except Exception:  # noqa: BLE001 -- a page's bug must not end the endpoint
            _log.exception("health endpoint: a page failed")

    def _answer(self, received: bytes) -> HealthResponse:
        path = read_path(received)
        if isinstance(path, HealthResponse):
            return path
        if is_from_page(received, is_local=self._is_local):
            return HealthResponse(403, "web pages are not served; ask this address by its number\n")
        page = self._pages.get(path)
        return page() if page else HealthResponse(404, f"there are: {', '.join(self._pages)}\n")


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


def _await_close(connection: socket.socket) -> None:
    """Wait until the client has hung up: closing over unread bytes would reset our answer away."""
    connection.shutdown(socket.SHUT_WR)
    give_up = monotonic() + CONNECTION_S
    while (left := give_up - monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(_CHUNK):
            return
