"""Stands between clients of AWS and the local cloud, passes all on unchanged, and counts what is billed."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from benchmarks.cost.dynamodb import Metering
from benchmarks.cost.prices import SQS_BYTES, Units, chunks

DYNAMODB: Final = "DynamoDB_20120810."
"""What the name of an action of DynamoDB begins with."""

_HOP_BY_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Meter:
    """Counts the calls that go to `url`, its own address, while in its `with` block; `upstream` answers them.

    A request of SQS counts by the larger of what went and came, as it is on the wire: a little more than what
    AWS meters, which leaves out the JSON around it. A read that found nothing is not counted: it is the price
    of waiting, not of events.
    """

    def __init__(self, upstream: str) -> None:
        self.units: Units = Counter()
        self._lock = threading.Lock()
        self._metering = Metering()
        meter = self

        class Handler(_Handler):
            address = urlsplit(upstream).netloc
            count = staticmethod(meter._count)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self) -> Units:
        """The units since the last time."""
        with self._lock:
            units, self.units = self.units, Counter()
            return units

    def _count(self, action: str, request: bytes, answer: bytes) -> None:
        size = max(len(request), len(answer))
        with self._lock:
            if action == "AmazonSQS.ReceiveMessage" and b'"Messages"' not in answer:
                return
            if action.startswith("AmazonSQS."):
                self.units["sqs_request"] += chunks(size, SQS_BYTES)
            elif action.startswith(DYNAMODB):
                operation = action.removeprefix(DYNAMODB)
                self.units += self._metering.units(operation, json.loads(request), json.loads(answer))
            elif action == "PUT":
                self.units["s3_put"] += 1
            else:
                raise ValueError(f"{action} has no price here; say what it counts as")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it holds back every second write for 40 ms
    address: str
    count: Any

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "100-continue" in self.headers.get("Expect", ""):
            del self.headers["Expect"]  # ours has been answered already
        # The headers stay, Host among them: the signature covers it.
        connection = http.client.HTTPConnection(self.address)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        self.count(self.headers.get("X-Amz-Target", self.command), body, content)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_POST = do_PUT = do_GET = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - named by the base class

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""
