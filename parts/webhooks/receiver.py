"""An HTTPS endpoint for a webhook: check the signature, store the event once, then answer.

Run it as `python parts/webhooks/receiver.py`, or copy `is_genuine` into a receiver of yours; both need Python
alone. KEYS has the signing keys, separated by spaces: during a rotation the old one and the new one. RECEIVED
is its database, HOST its address (by default 127.0.0.1), PORT its port (0: any), CERTIFICATE a PEM file with
certificate and key. Without that it speaks HTTP, for a proxy that speaks TLS.
"""

import base64
import hashlib
import hmac
import json
import os
import sqlite3
import ssl
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BYTES = 1_000_000
TOLERANCE_S = 300


def is_genuine(keys: list[str], headers: Mapping[str, str], body: bytes, now_s: float | None = None) -> bool:
    """Return whether a request was signed with one of `keys`, not long ago.

    `keys` are as the plane's operators hand them over; during a rotation the old one and the new one.
    `headers` have their names in lower case; `body` is as it came, not parsed and written again.
    """
    id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    now = time.time() if now_s is None else now_s
    if not sent_at.isdigit() or abs(now - int(sent_at)) > TOLERANCE_S:
        return False
    if "ce-id" in headers and id != attributes_digest(headers):
        return False
    content = f"{id}.{sent_at}.".encode() + body
    genuine = [
        "v1," + base64.b64encode(hmac.digest(base64.b64decode(key), content, "sha256")).decode()
        for key in keys
    ]
    claimed = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(one, other) for one in genuine for other in claimed)


def attributes_digest(headers: Mapping[str, str]) -> str:
    """Return the `webhook-id` of binary mode: through it the signature covers the event's attributes, too."""
    names = sorted(name for name in headers if name.startswith("ce-") or name == "content-type")
    return hashlib.sha256("\n".join(f"{name}:{headers[name]}" for name in names).encode()).hexdigest()


class Receiver(BaseHTTPRequestHandler):
    """Takes an event in structured mode: the body is the event."""

    timeout = 10
    received: sqlite3.Connection

    def do_POST(self) -> None:
        """Answer 204 once the event is stored, 401 for what the plane did not sign."""
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > MAX_BYTES:
            self.send_error(413)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not is_genuine(os.environ["KEYS"].split(), headers, body):
            self.send_error(401)
            return
        # The same for every attempt at an event, and part of what is signed.
        row = (headers["webhook-id"], body.decode())
        if self.received.execute("INSERT OR IGNORE INTO event VALUES (?, ?)", row).rowcount:
            event = json.loads(body)
            print(f"{event['type']} {event['id']}", flush=True)
        self.send_response(204)
        self.end_headers()


def main() -> None:
    """Serve for ever."""
    # Each request has a thread of its own; SQLite lets one in at a time.
    database = sqlite3.connect(os.environ["RECEIVED"], isolation_level=None, check_same_thread=False)
    database.execute("CREATE TABLE IF NOT EXISTS event (webhook_id TEXT PRIMARY KEY, json TEXT)")
    Receiver.received = database
    server = ThreadingHTTPServer(
        (os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8443"))), Receiver
    )
    if certificate := os.environ.get("CERTIFICATE"):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        # A client that is slow with its handshake delays its own thread only.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(f"port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
