"""A proxy between clients of AWS and a cloud, which sees each call and its answer."""

import http.client
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import urlsplit

from lab.background import BackgroundServer
from lab.network import LOOPBACK

_HOP_BY_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_CHUNK: Final = 65_536
_SCOPE: Final = re.compile(r"Credential=[^/]+/\d{8}/[^/]+/([^/]+)/aws4_request")


@dataclass(frozen=True, slots=True)
class ProxyCall:
    """One HTTP request of a client."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def service(self) -> str:
        """The service that the request is signed for (`s3`, `sqs`, ...); empty for an unsigned request."""
        found = _SCOPE.search(self.headers.get("Authorization", ""))
        return found[1] if found else ""

    @property
    def action(self) -> str:
        """The operation by the header `X-Amz-Target`, or the HTTP method where there is none."""
        return self.headers.get("X-Amz-Target", self.method)


@dataclass(frozen=True, slots=True)
class ProxyAnswer:
    """The answer that a client gets."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class CallProxy(BackgroundServer):
    """Passes calls to its address `url` on to `upstream`, unchanged, while its `with` block runs.

    Subclasses override `answer`. It runs in several threads at once.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        proxy = self

        class Handler(_Handler):
            answer = staticmethod(lambda call: proxy.answer(call))
            upstream = self._upstream

        server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        server.daemon_threads = True
        super().__init__("proxy", server)

    def answer(self, call: ProxyCall) -> ProxyAnswer | None:
        """Return what the client gets; None closes its connection without an answer."""
        return self.forward(call)

    def forward(self, call: ProxyCall) -> ProxyAnswer:
        """Return the answer of the cloud to `call`. Raises `OSError`, `http.client.HTTPException`."""
        # The headers stay, Host among them: the signature covers it.
        connection = http.client.HTTPConnection(self._upstream)
        try:
            connection.putrequest(call.method, call.path, skip_host=True, skip_accept_encoding=True)
            for name, value in call.headers.items():
                connection.putheader(name, value)
            connection.endheaders(call.body)
            answer = connection.getresponse()
            return ProxyAnswer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it holds back every second write for 40 ms
    answer: Any
    upstream: str

    def do_GET(self) -> None:
        """Pass on a call; a WebSocket passes through as it is, and is no call."""
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self._tunnel()
        else:
            self._pass_on()

    def _tunnel(self) -> None:
        self.close_connection = True
        host, _, port = self.upstream.partition(":")
        with socket.create_connection((host, int(port))) as cloud:
            head = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]
            cloud.sendall("\r\n".join(head).encode("latin-1"))
            pass_on_both_ways(self.rfile.read1, self.connection, cloud)

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "100-continue" in self.headers.get("Expect", ""):
            del self.headers["Expect"]  # ours has been answered already
        headers = cast(Mapping[str, str], self.headers)
        try:
            answer: ProxyAnswer | None = self.answer(ProxyCall(self.command, self.path, headers, body))
        except (OSError, http.client.HTTPException):
            answer = None  # the client sees its own connection close
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        length = str(len(answer.body))
        for name, value in answer.headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value  # of the body that is not sent
            elif name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answer.body)

    do_POST = do_PUT = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - named by the base class

    def handle(self) -> None:
        """Serve one connection; a client that gave up is no error."""
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


def pass_on_both_ways(read: Callable[[int], bytes], line: socket.socket, other: socket.socket) -> None:
    """Send what `read` returns of `line` to the `other` side, and back, until one of both has closed."""
    back = threading.Thread(target=_copy, args=(other.recv, line), daemon=True)
    back.start()
    _copy(read, other)
    back.join()


def _copy(read: Callable[[int], bytes], to: socket.socket) -> None:
    """Send what `read` returns until one side has closed; then the other is closed as well."""
    with suppress(OSError):
        while data := read(_CHUNK):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_RDWR)
