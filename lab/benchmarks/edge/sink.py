"""The other processes of a run: the cloud's broker, which counts what arrives, and a flood of messages."""

import re
import socket
import ssl
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence

from eventplane_mqtt.endpoint import TlsFiles
from lab.benchmarks.edge import wire
from lab.benchmarks.processes import Channel, until_stopped
from lab.benchmarks.results import paced
from lab.network import LOOPBACK

EARLIEST_NS = 10**9
"""An id beyond it is the nanosecond of sending, of the machine's monotonic clock."""

ALARM = "org.eventplane.alarm.keyword.v1"
READING = "org.eventplane.health.reading.v1"

REALISTIC = 349
"""Bytes of an average reading as a CloudEvent, of the fleet's real data."""

PUBLISHES_PER_S = 100
BYTES_PER_S = 512 * 1024
_CHUNK = 256 * 1024
_ZLIB_FIRST = 0x78
_BURSTS_PER_S = 100

_NUMBER = re.compile(rb'"id":"(\d+)"')
"""The benchmark's events have decimal ids, which their data does not repeat."""

LISTENING, CONNECTED = b"listening", b"connected"


def event(number: int, size: int, type: str = READING) -> bytes:
    """Return an event of `size` bytes whose id is `number`. Its payload does not compress to nothing."""
    head = (
        f'{{"specversion":"1.0","id":"{number}","source":"/homes/1/health-service","type":"{type}",'
        '"subject":"/homes/1/persons/1","time":"2026-01-01T00:00:00.000Z",'
        '"datacontenttype":"application/json","data":{"property":"heart_rate",'
        f'"value":{number % 97 + 40}.{number % 1_000:03},"unit":"bpm","text":"'
    )
    fill = size - len(head) - 3
    digits = f"{number * 2_654_435_761 % 2**64:020d}" * (fill // 20 + 1)
    return f'{head}{digits[: max(0, fill)]}"}}}}'.encode()


def events(numbers: Sequence[int], size: int, type: str = READING) -> Iterable[bytes]:
    """Return an event for each of `numbers`, made when it is asked for."""
    return (event(number, size, type) for number in numbers)


class Sink:
    """Serves one connection after the other until `expect` different events arrived, or it is stopped.

    With `sent_after` (nanoseconds) only events whose id is a later time of sending are expected. With `quota`
    it acknowledges no faster than IoT Core's limits allow. IoT Core itself never acknowledges what exceeds
    them, which would leave the bridge stuck.
    """

    def __init__(self, expect: int, quota: bool = False, sent_after: int = 0) -> None:
        self._expect = expect
        self._sent_after = sent_after
        self._quota = quota
        self.stopped = threading.Event()
        self.on_connect: Callable[[], None] = lambda: None
        self._numbers: set[bytes] = set()
        self._arrivals: list[tuple[int, list[int]]] = []
        self._first = self._last = 0
        self._publishes = self._bytes = self._events = self._connections = 0
        self._free_at = 0.0

    def accept(self, server: socket.socket, context: ssl.SSLContext) -> None:
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
                self.on_connect()
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
        """Return whether everything expected has arrived, or the run is stopped."""
        return self.stopped.is_set() or len(self._numbers) >= self._expect


def serve(channel: Channel, port: int, tls: TlsFiles, sink: tuple[int, bool, int]) -> None:
    """Be a `Sink` until it is done or SIGTERM; send LISTENING, CONNECTED at each CONNECT, and its report."""
    served = Sink(*sink)
    served.stopped = until_stopped()
    served.on_connect = lambda: channel.send(CONNECTED)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tls.certificate, tls.key)
    with socket.create_server((LOOPBACK, port)) as server:
        server.settimeout(0.2)
        channel.send(LISTENING)
        served.accept(server, context)
    channel.send(served.report())


def flood(channel: Channel, port: int, rate: int, topic: str, type: str) -> None:
    """Publish `rate` events a second at QoS 0 until SIGTERM.

    Sends CONNECTED, and at the end how many messages were `sent` in how many `seconds`.
    """
    stopped = until_stopped()
    with socket.create_connection((LOOPBACK, port)) as connection:
        connection.sendall(wire.connect("load"))
        channel.send(CONNECTED)
        began = time.monotonic()
        sent, burst = 0, max(1, rate // _BURSTS_PER_S)
        for _ in paced(rate / burst, sys.maxsize):
            if stopped.is_set():
                break
            numbers = range(sent, sent + burst)
            packets = (wire.publish(topic, each) for each in events(numbers, REALISTIC, type))
            connection.sendall(b"".join(packets))
            sent += burst
    channel.send({"sent": sent, "seconds": time.monotonic() - began})
