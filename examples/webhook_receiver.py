"""An HTTPS endpoint for a webhook: check the signature, store the event once, then answer.

Run it as `python examples/webhook_receiver.py`; it needs Python alone. KEYS has the signing keys, separated
by spaces: during a rotation the old one and the new one. RECEIVED is its database, HOST its address (by
default 127.0.0.1), PORT its port (0: any), CERTIFICATE a PEM file with certificate and key. Without that it
speaks HTTP, for a proxy that speaks TLS.
"""

import json
import os
import sqlite3
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from verify_webhook import is_genuine

MAX_BYTES = 1_000_000

# Each request has a thread of its own; SQLite lets one in at a time.
received = sqlite3.connect(os.environ["RECEIVED"], isolation_level=None, check_same_thread=False)
received.execute("CREATE TABLE IF NOT EXISTS event (webhook_id TEXT PRIMARY KEY, json TEXT)")


class Receiver(BaseHTTPRequestHandler):
    """Takes an event in structured mode: the body is the event."""

    timeout = 10

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
        if received.execute("INSERT OR IGNORE INTO event VALUES (?, ?)", row).rowcount:
            event = json.loads(body)
            print(f"{event['type']} {event['id']}", flush=True)
        self.send_response(204)
        self.end_headers()


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
