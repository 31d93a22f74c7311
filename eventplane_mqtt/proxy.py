"""Connects through an HTTP proxy, by CONNECT (RFC 9110, 9.3.6) and Basic authentication (RFC 7617)."""

from __future__ import annotations

import re
import socket
from base64 import b64encode
from collections.abc import Callable
from select import POLLIN, POLLOUT
from typing import Final

from eventplane_mqtt.endpoint import Endpoint, Login, MqttError, place
from eventplane_mqtt.transport import Transport, Wait

MOST_ANSWER_BYTES: Final = 8 * 1024
"""A proxy whose answer has a longer head is refused. Ours: a few hundred bytes are usual."""

_END: Final = re.compile(rb"\r?\n\r?\n")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)[ \r\n]")
_SCHEME: Final = re.compile(rb"(?im)^proxy-authenticate:[ \t]*([a-z][a-z0-9-]{0,19})")
_BASIC: Final = re.compile(rb"(?im)^proxy-authenticate:(.*,)?[ \t]*basic\b")

_NO_PROXY: Final = "see that host and port are those of an HTTP proxy that allows CONNECT"
_LOGIN: Final = 407
_PROBLEMS: Final = {
    403: ("it does not allow that (403)", "have it allow CONNECT to this host and port"),
    407: ("it does not accept our user name and password (407)", "see that it knows them"),
    502: (
        "it cannot connect (502)",
        "see that this is the right host and port, and that the proxy reaches it",
    ),
    503: ("it cannot connect at present (503)", "see whether the proxy is overloaded, or does not reach it"),
    504: ("it gets no answer from there (504)", "see that this is the right host and port"),
}


class ProxyError(MqttError):
    """The `proxy` does not connect us with `target`: `problem` is what is wrong, `remedy` what to do."""

    proxy: str
    target: str
    problem: str
    remedy: str
    message = "no connection with {target} by the proxy {proxy}: {problem}; {remedy}"


def failure(endpoint: Endpoint, problem: str, remedy: str = _NO_PROXY) -> ProxyError:
    """Return the error that the proxy of `endpoint` does not connect us with it."""
    proxy = endpoint.proxy
    shown = place(proxy.host, proxy.port) if proxy else ""
    return ProxyError(shown, place(endpoint.host, endpoint.port), problem, remedy)


def open_tunnel(connected: socket.socket, endpoint: Endpoint, wait: Wait, deadline: float) -> None:
    """Have the proxy at the end of `connected` pass on all that follows, to the host of `endpoint` and back.

    Raises:
        ProxyError: it refused, or gave no answer of an HTTP proxy before the `deadline`.
        PasswordFileError: the password cannot be used.
        OSError: the connection was lost.
    """
    line, login = Transport(connected), endpoint.proxy.login if endpoint.proxy else None

    def ready(events: int) -> Transport:
        if wait([line.fileno()], events, deadline):
            return line
        remedy = "see that it is up, and reaches this host and port"
        raise failure(endpoint, "it gave no answer in time", remedy)

    request = memoryview(_request(endpoint.host, endpoint.port, login))
    while request:
        request = request[ready(POLLOUT).send(request) :]
    status, head, rest = _read_answer(endpoint, lambda: ready(POLLIN).receive())
    if status >= 300:
        raise failure(endpoint, *_problem(status, head, has_login=login is not None))
    if rest:
        raise failure(endpoint, "it sent bytes that are not the broker's after its answer")


def _read_answer(endpoint: Endpoint, receive: Callable[[], bytes | None]) -> tuple[int, bytes, bytes]:
    """Return status and head of the answer that counts, and what came behind it."""
    rest, left = b"", MOST_ANSWER_BYTES
    while True:
        while (end := _END.search(rest, 0, left)) is None:
            if len(rest) >= left:
                raise failure(endpoint, f"the head of its answer has more than {MOST_ANSWER_BYTES} bytes")
            if (more := receive()) == b"":
                raise failure(endpoint, "it hung up instead of an answer")
            rest += more or b""
        head, rest, left = rest[: end.end()], rest[end.end() :], left - end.end()
        if (found := _STATUS.match(head)) is None:
            raise failure(endpoint, "its answer is not HTTP")
        if (status := int(found[1])) >= 200:  # others are interim
            return status, head, rest


def _problem(status: int, head: bytes, *, has_login: bool) -> tuple[str, str]:
    scheme = _SCHEME.search(head)
    if status == _LOGIN and scheme and not _BASIC.search(head):
        problem = f"it asks for {scheme[1].decode()} (407)"
        return problem, "have it accept Basic, or let this device through without a password"
    if status == _LOGIN and not has_login:
        return "it asks for a user name and password (407)", "set them for the proxy"
    return _PROBLEMS.get(status, (f"it answered with status {status}", _NO_PROXY))


def _request(host: str, port: int, login: Login | None) -> bytes:
    try:
        target = place(host.encode("idna").decode(), port)
    except ValueError as error:
        raise OSError(f"{host!r} is no host name") from error
    if not target.isprintable() or " " in target:
        raise OSError(f"{host!r} is no host name")
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if login is not None:
        both = login.username.encode() + b":" + login.password()
        lines.append(f"Proxy-Authorization: Basic {b64encode(both).decode()}")
    return "\r\n".join([*lines, "", ""]).encode()
