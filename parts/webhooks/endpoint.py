"""The HTTP connection to a webhook's endpoint: kept open, verified, bounded in time and in what it reads.

http.client rather than urllib3: botocore has loaded both, but only the former leaves the socket in our hands,
which a bound on the whole exchange needs. The retries, redirects and proxies of urllib3 are not wanted.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

from eventplane.errors import EventPlaneError
from eventplane.sinks import SinkReach
from lambdas.common.system import Clock

MAX_BODY_BYTES: Final = 65_536
"""Most bytes read of an answer; a longer one costs the connection, and says nothing we need."""

MAX_IDLE_MS: Final = 10_000
"""A connection unused for longer is not used again, milliseconds: servers and NAT gateways forget it, and a
frozen function does not notice."""

_EXCERPT: Final = 200


class ForbiddenTargetError(EventPlaneError):
    """The endpoint's host leads where nothing may be sent to; nothing was. `detail` says where."""

    detail: str
    message = "{detail}; have the endpoint's host name lead to public addresses only"


class UnreachableError(EventPlaneError):
    """The endpoint gave no HTTP answer. `detail` says what happened."""

    detail: str
    message = "{detail}; see that the endpoint is up, and its address and certificate are right"


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """An HTTP response. Header names are in lower case; `excerpt` is the printable start of the body."""

    status: int
    phrase: str
    headers: Mapping[str, str] = field(hash=False)
    excerpt: str


class HttpSink:
    """The endpoint at `url`; each exchange takes `timeout_s` seconds at most, but for looking up its name.

    Every address that a connection is made to has to be within `reach`, whatever the name led to before.
    `tls` decides which certificates are believed; by default those that this machine believes.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        clock: Clock,
        reach: SinkReach,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._is_tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_tls else 80)
        self._target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        self._timeout_s = timeout_s
        self._clock = clock
        self._reach = reach
        self._tls = tls or ssl.create_default_context()
        self._connection: http.client.HTTPConnection | None = None
        self._used_at_ms = 0

    def send(self, method: str, headers: Mapping[str, str], body: bytes = b"") -> EndpointResponse:
        """The answer to one request, whatever its status; redirects are not followed.

        Raises `UnreachableError`, `ForbiddenTargetError`.
        """
        self.close_if_idle()
        was_open = self._connection is not None
        with _Deadline(self._timeout_s) as deadline:
            try:
                try:
                    return self._exchange(method, headers, body, deadline)
                except (OSError, http.client.HTTPException) as error:
                    self.close()
                    # The endpoint may have closed a kept connection just then: that is no failure of its.
                    if not was_open or deadline.expired or isinstance(error, TimeoutError):
                        raise
                    return self._exchange(method, headers, body, deadline)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                late = deadline.expired or isinstance(error, TimeoutError)
                raise UnreachableError(
                    f"no answer within {self._timeout_s:g} s" if late else _said(error)
                ) from error

    def close_if_idle(self) -> None:
        """Let go of a connection that is too old to be used again."""
        if self._clock() - self._used_at_ms > MAX_IDLE_MS:
            self.close()

    def close(self) -> None:
        """Let go of the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, method: str, headers: Mapping[str, str], body: bytes, deadline: _Deadline
    ) -> EndpointResponse:
        if self._connection is None:
            self._connection = self._connect(deadline)
        else:
            deadline.watch(self._connection.sock)
        self._connection.request(method, self._target, body, dict(headers))
        response = self._connection.getresponse()
        content = b""
        # The status says it all: what follows is read so that the connection can be used again. For a chunk
        # below zero http.client has a ValueError.
        with suppress(OSError, http.client.HTTPException, ValueError):
            content = response.read(MAX_BODY_BYTES)
        if not response.isclosed() or response.will_close or deadline.expired:
            self.close()
            response.close()
        self._used_at_ms = self._clock()
        answered = {name.lower(): value for name, value in response.getheaders()}
        return EndpointResponse(response.status, response.reason, answered, _printable(content))

    def _connect(self, deadline: _Deadline) -> http.client.HTTPConnection:
        connected = self._dial(deadline)
        if not self._is_tls:
            connection = http.client.HTTPConnection(self._host, self._port)
        else:
            # The handshake comes after the deadline watches: a silent peer could make it last for ever.
            secured = self._tls.wrap_socket(
                connected, server_hostname=self._host, do_handshake_on_connect=False
            )
            connected = secured
            deadline.watch(connected)
            try:
                secured.do_handshake()
            except OSError:
                secured.close()
                raise
            connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        connection.response_class = _WholeResponse
        connection.sock = connected
        return connection

    def _dial(self, deadline: _Deadline) -> socket.socket:
        """A socket connected to the first address that answers; each gets its share of the time.

        Raises `ForbiddenTargetError`. The very address that is connected to is checked, so a name that leads
        elsewhere the next time gains nothing; and before the first packet, since a refused one is news too.
        """
        addresses = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        failure: Exception = OSError(f"{self._host} has no address")
        for at, (family, kind, protocol, _, address) in enumerate(addresses):
            if problem := self._reach.peer_problem(str(address[0]), self._port):
                failure = ForbiddenTargetError(f"{self._host} leads to {address[0]}, which {problem}")
                continue
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(deadline.left_s / (len(addresses) - at))
                connection.connect(address)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                connection.close()
                failure = error
                continue
            connection.settimeout(self._timeout_s)
            deadline.watch(connection)
            return connection
        raise failure


class _Deadline:
    """Shuts the watched socket down after `seconds`. Use it in a `with` block.

    A socket's own timeout starts anew with every byte that drips in.
    """

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


class _WholeLines(io.BufferedReader):
    """Where http.client takes the end of the connection for the end of the header, this raises OSError.

    Otherwise an endpoint that breaks off, or is cut off, after `200 OK` would have taken the event.
    """

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n"):
            raise ConnectionError("the answer broke off")
        return line


class _WholeResponse(http.client.HTTPResponse):
    """The final response, its header whole."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = _WholeLines(self.fp.detach())

    def begin(self) -> None:
        super().begin()
        # http.client passes over 100 alone. An interim answer (RFC 9110, 15.2) taken for the final one would
        # leave that one on the connection, to be taken for the answer to the next event.
        while 100 <= self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    if isinstance(error, socket.gaierror):
        return "its host name has no address"
    return f"{type(error).__name__}: {error}"


def _printable(content: bytes) -> str:
    text = content[: 4 * _EXCERPT].decode("utf-8", "replace")
    return "".join(each if each.isprintable() else " " for each in text)[:_EXCERPT]
