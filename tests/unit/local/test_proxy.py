"""A proxy passes calls on as they are, and tells which service they are for."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from local.background import BackgroundServer
from local.ports import LOOPBACK
from local.proxy import Proxy

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, "
    "Signature=0"
)


class Cloud(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("X-Seen-Host", self.headers["Host"])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "12345")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def upstream() -> Iterator[str]:
    with BackgroundServer("upstream", HTTPServer((LOOPBACK, 0), Cloud)) as server:
        yield server.url


def request(url: str, method: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    connection.request(method, "/queue?a=1", body, {"Authorization": SIGNED})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_a_call_and_its_answer_pass_unchanged(upstream: str) -> None:
    with Proxy(upstream) as proxy:
        status, headers, body = request(proxy.url, "POST", b"abc")
        assert (status, body) == (201, b"cba")
        # A signature covers the host that the client wrote.
        assert headers["X-Seen-Host"] == proxy.url.removeprefix("http://")
        status, headers, body = request(proxy.url, "HEAD")
        assert (status, headers["Content-Length"], body) == (200, "12345", b"")


def test_a_cloud_that_is_gone_closes_the_connection() -> None:
    with Proxy(f"http://{LOOPBACK}:1") as proxy, pytest.raises(http.client.RemoteDisconnected):
        request(proxy.url, "POST")
