"""The control room's server: the page, the plane's state as JSON, and what its buttons do.

It listens on the loopback interface only. Other users of the machine can reach it all the same: every path
begins with a secret, which is drawn at the start. So can a page of another origin, whose name may resolve to
127.0.0.1: every request must name this server as its host, and one that changes something must come from this
page.
"""

from __future__ import annotations

import json
import logging
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import compare_digest, token_urlsafe
from typing import Any, Final

from contract import pages
from eventplane.account import Fate
from eventplane.errors import EventPlaneError
from lab.background import BackgroundServer
from lab.control_room.plane import PlaneView, RoomFault
from lab.errors import LocalError
from lab.ports import LOOPBACK

_HERE: Final = Path(__file__).parent
_log = logging.getLogger(__name__)

BUTTONS: Final = {
    RoomFault.NETWORK: ("Cut the network", "Restore the network"),
    RoomFault.FORWARDER: ("kill -9 the forwarder", ""),
    RoomFault.MOSQUITTO: ("kill -9 Mosquitto", ""),
    RoomFault.ROUTER: ("kill -9 a router", ""),
    RoomFault.S3: ("Make S3 fail", "Restore S3"),
}
"""The label of each fault's button, and its label while a lasting fault is in force."""

_IDLE_S: Final = 30.0
"""A connection that sends no request for so long is closed."""

_SECRET_BYTES: Final = 16


class ControlRoom(BackgroundServer):
    """Serve the control room of `plane` at `url`, on a free port, while the `with` block runs."""

    def __init__(self, plane: PlaneView) -> None:
        server = _Server(plane)
        super().__init__("control room", server)
        self._secret = server.secret

    @property
    def url(self) -> str:
        """The page's address, with the secret that opens it."""
        return f"{super().url}/{self._secret}/"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, plane: PlaneView) -> None:
        self.plane = plane
        self.page, self.policy = _page()
        self.secret = token_urlsafe(_SECRET_BYTES)
        super().__init__((LOOPBACK, 0), _Handler)
        self.hosts = frozenset(f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost"))

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - of the base class
        """Log what went wrong, unless the browser just went away."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("a request of %s failed", client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _IDLE_S

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        if self._place == "":
            self._send(HTTPStatus.OK, self.server.page.encode(), "text/html; charset=utf-8")
        elif self._place == "state":
            self._answer(lambda: asdict(self.server.plane.state()))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def do_POST(self) -> None:
        self._change(self.server.plane.strike)

    def do_DELETE(self) -> None:
        self._change(self.server.plane.heal)

    def _change(self, change: Callable[[RoomFault], None]) -> None:
        if not self._is_allowed(needs_origin=True):
            return
        if self.command == "POST" and self._place == "alarm":
            self._answer(lambda: {"id": self.server.plane.send_alarm()})
            return
        folder, _, name = self._place.rpartition("/")
        if folder != "faults" or name not in list(RoomFault):
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
            return
        self._answer(lambda: change(RoomFault(name)))

    @property
    def _place(self) -> str:
        """The path after the secret."""
        return self.path.partition("/")[2].partition("/")[2]

    def _is_allowed(self, *, needs_origin: bool = False) -> bool:
        host = self.headers.get("Host", "")
        if host not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, f"this server is not called {host!r}")
            return False
        origin = self.headers.get("Origin")
        if origin != f"http://{host}" and (needs_origin or origin is not None):
            self._refuse(HTTPStatus.FORBIDDEN, f"requests from {origin or 'elsewhere'} are not taken")
            return False
        secret, slash, _ = self.path.removeprefix("/").partition("/")
        if not slash or not compare_digest(secret.encode(), self.server.secret.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "open the address that `make up` printed")
            return False
        return True

    def _answer(self, act: Callable[[], dict[str, Any] | None]) -> None:
        try:
            document = act() or {}
        except (LocalError, EventPlaneError) as error:
            self._refuse(HTTPStatus.CONFLICT, str(error))
            return
        text = json.dumps(document, default=sorted)  # the faults in force may be a set
        self._send(HTTPStatus.OK, text.encode(), "application/json")

    def _refuse(self, status: HTTPStatus, error: str) -> None:
        self._send(status, json.dumps({"error": error}).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", self.server.policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class names it so
        """Log no request: the page sends several a second."""


def _page() -> tuple[str, str]:
    """Return the page, and the policy that lets it run its own script only, and be in no frame."""
    script = pages.text_of(_HERE / "page.js")
    text = (
        pages.environment(_HERE)
        .get_template("page.html.j2")
        .render(
            style=pages.text_of(_HERE / "page.css"),
            script=script,
            faults=[(fault.value, *labels) for fault, labels in BUTTONS.items()],
            fates=list(Fate),
        )
    )
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy
