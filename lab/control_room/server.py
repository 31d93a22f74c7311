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
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import compare_digest, token_urlsafe
from typing import Any, Final

from contract import pages
from eventplane import strict_json
from eventplane.account import Fate
from eventplane.errors import EnvelopeError, EventPlaneError
from lab.background import BackgroundServer
from lab.control_room.plane import QUESTIONS, PlaneView, RoomFault
from lab.errors import LocalError
from lab.network import LOOPBACK

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

_MOST_BYTES: Final = 1024 * 1024
"""Most bytes of a request: larger events than the plane takes may be tried, and no more."""


class _BadRequestError(LocalError):
    """A request of another form than the page's."""


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
        elif self._place == "offers":
            self._answer(lambda: [asdict(each) for each in self.server.plane.offers()])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def do_POST(self) -> None:
        self._change(is_on=True)

    def do_DELETE(self) -> None:
        self._change(is_on=False)

    def _change(self, *, is_on: bool) -> None:
        if not self._is_allowed(needs_origin=True):
            return
        plane, (folder, _, name) = self.server.plane, self._place.rpartition("/")
        if folder == "faults" and name in list(RoomFault):
            change = plane.strike if is_on else plane.heal
            self._answer(lambda: change(RoomFault(name)))
        elif folder == "readers":
            self._answer(lambda: plane.read(name, is_read=is_on))
        elif is_on and folder == "send":
            self._answer(lambda: {"id": plane.send(name, self._event())})
        elif is_on and folder == "ask" and name in QUESTIONS:
            self._answer(lambda: asdict(plane.ask(name, self._words(QUESTIONS[name][1]))))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _event(self) -> Mapping[str, Any]:
        event = self._document()
        if not isinstance(event, dict):
            raise _BadRequestError("the event is no JSON object; choose one above, and change what you like")
        return event

    def _words(self, number: int) -> list[str]:
        words = self._document() if number else []
        if not isinstance(words, list) or [*map(type, words)] != [str] * number:
            raise _BadRequestError(f"this question takes {number} words")
        return words

    def _document(self) -> Any:
        """Return the JSON of the request's body. Raises `_BadRequestError`."""
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or len(size) > 9 or int(size) > _MOST_BYTES:
            self.close_connection = True
            raise _BadRequestError(f"a request has {_MOST_BYTES:,} bytes at most; send less")
        try:
            return strict_json.loads(strict_json.decode_text(self.rfile.read(int(size))))
        except EnvelopeError as error:
            raise _BadRequestError(f"{error.detail}; correct the text of the event") from error

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

    def _answer(self, act: Callable[[], object]) -> None:
        try:
            document = act()
        except (LocalError, EventPlaneError) as error:
            self._refuse(HTTPStatus.CONFLICT, str(error))
            return
        except Exception as error:  # noqa: BLE001 - the page shows it
            _log.exception("%s %s failed", self.command, self._place)
            problem = f"the plane could not do that ({error}); repeat it, or see build/up/up.log"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, problem)
            return
        # The faults in force may be a set.
        text = json.dumps({} if document is None else document, default=sorted)
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
