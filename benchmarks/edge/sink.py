"""The cloud's broker of a run: accepts the forwarder and the bridge alike, acknowledges, counts.

`python -m benchmarks.edge.sink` is a process of its own, so that it does not share a core's time with the run
that starts it. It prints one JSON object once `expect` different events have arrived, or on SIGTERM.

With `--quota` it acknowledges no faster than IoT Core's limits allow. IoT Core itself never acknowledges what
exceeds them, which would leave the bridge stuck.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import ssl
import sys
import time
import zlib
from pathlib import Path

from benchmarks.edge import wire
from benchmarks.edge.events import EARLIEST_NS

PUBLISHES_PER_S = 100
BYTES_PER_S = 512 * 1024
_CHUNK = 256 * 1024
_ZLIB_FIRST = 0x78

_NUMBER = re.compile(rb'"id":"(\d+)"')
"""The benchmark's events have decimal ids, which their data does not repeat."""


class Sink:
    """Serves one connection after the other until `expect` different events arrived, or `stop`.

    With `sent_after` (nanoseconds) only events whose id is a later time of sending are expected.
    """

    def __init__(self, expect: int, quota: bool, sent_after: int = 0) -> None:
        self._expect = expect
        self._sent_after = sent_after
        self._quota = quota
        self._stopped = False
        self._numbers: set[bytes] = set()
        self._arrivals: list[tuple[int, list[int]]] = []
        self._first = self._last = 0
        self._publishes = self._bytes = self._events = self._connections = 0
        self._free_at = 0.0

    def stop(self) -> None:
        self._stopped = True

    def serve(self, server: socket.socket, context: ssl.SSLContext) -> None:
        """Accept connections and count their events."""
        while not self.is_done():
            try:
                accepted, _ = server.accept()
            except TimeoutError:
                continue
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                with context.wrap_socket(accepted, server_side=True) as connection:
                    self._converse(connection)
            except OSError:
                continue  # the client hung up; it connects again

    def report(self) -> dict[str, object]:
        """Return the counts; times are nanoseconds of the machine's monotonic clock."""
        return {
            "first_ns": self._first,
            "last_ns": self._last,
            "events": self._events,
            "different": len(self._numbers),
            "publishes": self._publishes,
            "bytes": self._bytes,
            "connections": self._connections,
            "arrivals": self._arrivals,
        }

    def _converse(self, connection: ssl.SSLSocket) -> None:
        self._connections += 1
        packets = wire.Packets()
        connection.settimeout(0.2)
        while not self.is_done():
            try:
                data = connection.recv(_CHUNK)
            except TimeoutError:
                continue
            if not data:
                return
            answers = b"".join(self._answer(first, body) for first, body in packets.feed(data))
            if answers:
                connection.sendall(answers)

    def _answer(self, first: int, body: bytes) -> bytes:
        match wire.kind(first):
            case wire.CONNECT:
                _print_line("connected")
                return wire.CONNACK_OK
            case wire.SUBSCRIBE:
                return wire.suback(body)
            case wire.PINGREQ:
                return wire.PINGRESP
            case wire.PUBLISH if first & 6:
                mid, payload = wire.read_publish(body)
                self.count(payload)
                return wire.puback(mid)
        return b""

    def count(self, payload: bytes) -> None:
        """Count the events of a publish."""
        if self._quota:
            self._wait(len(payload))
        now = time.monotonic_ns()
        self._first = self._first or now
        self._last = now
        text = zlib.decompress(payload) if payload[:1] and payload[0] == _ZLIB_FIRST else payload
        numbers = _NUMBER.findall(text)
        self._events += len(numbers)
        self._numbers.update(each for each in numbers if int(each) >= self._sent_after)
        self._publishes += 1
        self._bytes += len(payload)
        if sent := [number for each in numbers if (number := int(each)) > max(EARLIEST_NS, self._sent_after)]:
            self._arrivals.append((now, sent))

    def _wait(self, size: int) -> None:
        self._free_at = max(self._free_at, time.monotonic()) + max(1 / PUBLISHES_PER_S, size / BYTES_PER_S)
        time.sleep(max(0.0, self._free_at - time.monotonic()))

    def is_done(self) -> bool:
        """Whether everything expected has arrived, or the run is stopped."""
        return self._stopped or len(self._numbers) >= self._expect


def main() -> None:
    """Listen, print so, and print the counts at the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--expect", type=int, required=True)
    parser.add_argument("--quota", action="store_true")
    parser.add_argument("--sent-after", type=int, default=0, help="expect only events sent later, ns")
    for name in ("ca", "certificate", "key"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=arguments.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(arguments.certificate, arguments.key)
    sink = Sink(arguments.expect, arguments.quota, arguments.sent_after)
    signal.signal(signal.SIGTERM, lambda *_: sink.stop())
    with socket.create_server(("127.0.0.1", arguments.port)) as server:
        server.settimeout(0.2)
        _print_line("listening")
        sink.serve(server, context)
    _print_line(json.dumps(sink.report()))


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
