"""As much of HTTP/1.1 as a health endpoint needs: one GET a connection, every input answered or dropped."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_HEAD_BYTES = 4096
"""Most bytes of a request line with its headers; a monitoring program sends about 200."""

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"


class Response(NamedTuple):
    """An answer; `content_type` of the `body`."""

    status: int
    body: str
    content_type: str = TEXT

    def encode(self) -> bytes:
        """The bytes on the wire. The connection ends with them: no next request is waited for."""
        body = self.body.encode("utf-8", "replace")
        allow = "Allow: GET\r\n" if self.status == 405 else ""
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n{allow}Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode("ascii") + body


def is_complete(received: bytes) -> bool:
    """Whether no more bytes are needed to answer: the head has ended, or is longer than we take."""
    return len(received) > MAX_HEAD_BYTES or _HEAD_END.search(received) is not None


def read_path(received: bytes) -> str | Response:
    """The path that a complete head asks for, without its query, or the refusal."""
    if _HEAD_END.search(received[: MAX_HEAD_BYTES + 4]) is None:
        return Response(400, f"send a request head of at most {MAX_HEAD_BYTES} bytes\n")
    line = received.splitlines()[0] if received else b""
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        return Response(400, "send `GET /path HTTP/1.1`\n")
    if found[1] != b"GET":
        return Response(405, "only GET is answered here\n")
    return found[2].partition(b"?")[0].decode("ascii")
