"""An HTTP endpoint on this machine that does what a test tells it to, however rude."""

import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from lab.proxy import pass_on_both_ways


@dataclass(frozen=True)
class Received:
    """One request, header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


Play = Callable[[socket.socket, threading.Event], bool]
"""What the endpoint does with a request; whether the connection stays open. The event is set at the end."""


def answer(status: int, body: bytes = b"", **headers: str) -> Play:
    """A whole response; `retry_after` stands for the header `retry-after`."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if status != 204:
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join([f"HTTP/1.1 {status} Words", *lines, "", ""])

    def play(line: socket.socket, _end: threading.Event) -> bool:
        line.sendall(head.encode() + body)
        return True

    return play


def says(*parts: bytes) -> Play:
    """Raw bytes, then the end of the connection."""

    def play(line: socket.socket, _end: threading.Event) -> bool:
        for part in parts:
            line.sendall(part)
        return False

    return play


def tunnel(port: int) -> Play:
    """What a proxy does at CONNECT: all that follows passes to `port` of this machine, and back."""

    def play(line: socket.socket, _end: threading.Event) -> bool:
        with socket.create_connection(("127.0.0.1", port)) as target:
            line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            pass_on_both_ways(line.recv, line, target)
        return False

    return play


def silence(line: socket.socket, end: threading.Event) -> bool:
    """No answer until the test ends."""
    end.wait()
    return False


def drips(line: socket.socket, end: threading.Event) -> bool:
    """An endless header, one byte at a time, so that no single read waits for long."""
    line.sendall(b"HTTP/1.1 200 OK\r\nx: ")
    while not end.wait(0.05):
        line.sendall(b"x")
    return False


class EndpointServer:
    """Plays `plays`, one a request, then 204 for ever. Use it in a `with` block."""

    def __init__(self, *plays: Play, tls: ssl.SSLContext | None = None, is_mute: bool = False) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self._plays = deque(plays)
        self._tls = tls
        self._is_mute = is_mute
        self._end = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def play(self, *plays: Play) -> None:
        """Play these next, one a request."""
        self._plays.extend(plays)

    def url(self, host: str = "127.0.0.1", path: str = "/events?site=7") -> str:
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for each in [self._listener, *self._lines]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._end.is_set():
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._lines.append(line)
            thread = threading.Thread(target=self._serve, args=(line,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, line: socket.socket) -> None:
        with suppress(OSError):
            if self._is_mute:
                self._end.wait()
            elif self._tls:
                with self._tls.wrap_socket(line, server_side=True) as secured:
                    # It has taken the other one's place, and is the one to end.
                    self._lines.append(secured)
                    self._talk(secured)
            else:
                self._talk(line)
        line.close()

    def _talk(self, line: socket.socket) -> None:
        with line.makefile("rb") as lines:
            while request := _read(lines):
                self.received.append(request)
                play = self._plays.popleft() if self._plays else answer(204)
                if not play(line, self._end):
                    with suppress(OSError):
                        line.shutdown(socket.SHUT_RDWR)
                    return


def _read(lines: Any) -> Received | None:
    first = lines.readline().decode("latin-1").split()
    if len(first) != 3 or not first[2].startswith("HTTP/"):
        return None  # a TLS hello may well be three words
    headers = {}
    while head := lines.readline().strip():
        name, _, value = head.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return Received(first[0], first[1], headers, lines.read(int(headers.get("content-length", 0))))
