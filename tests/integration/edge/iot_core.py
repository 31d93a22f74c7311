"""An MQTT server that answers as IoT Core does, and badly when it is told to, which no real broker does.

It shares no code with `edge`. What the quotas forbid is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Self

from benchmarks.edge import wire
from eventplane.batch import unpack
from eventplane.device_reports import REPORT_PREFIX
from eventplane.envelope import Envelope
from local.background import BackgroundLoop, close_server
from local.ports import free_port

_CHUNK = 65_536


class Answer(Enum):
    """What becomes of a publish, besides a failure code of MQTT 5."""

    TAKE = auto()
    TAKE_TWICE = auto()  # two PUBACKs
    TAKE_LATE = auto()  # its PUBACK comes after that of the next publish: late and out of order
    TAKE_AND_CUT = auto()  # half a PUBACK, then the end
    CONFUSE = auto()  # a PUBACK for a stranger first
    IGNORE = auto()  # throttled: no PUBACK, ever
    HANG_UP = auto()
    GO_DEAF = auto()  # nothing is answered on this connection any more


@dataclass(frozen=True)
class Published:
    """One PUBLISH, numbered from 1 over all connections; `events` are those in its payload."""

    number: int
    connection: int
    topic: str
    payload: bytes
    events: tuple[Envelope, ...]


PUBLISHES_PER_S, BYTES_PER_S, IN_FLIGHT = 100, 512 * 1024, 100
"""The quotas of one connection."""

CONNECT_EVERY_S = 0.25
"""Between two CONNECTs of one client; IoT Core's own second would be waited for at each reconnect."""


@dataclass(eq=False)
class _Connection:
    number: int
    writer: asyncio.StreamWriter
    version: int = 4
    deaf: bool = False
    recent: deque[tuple[float, int]] = field(default_factory=deque)
    unanswered: set[int] = field(default_factory=set)
    late: list[int] = field(default_factory=list)


Script = Callable[[Published], Answer | int]


class IotCore(BackgroundLoop):
    """Listens on `port`, with TLS. `script` answers each publish; one beyond the quota is ignored.

    `accepted` is what the cloud has got; `violations` counts what the quota forbids. While `deaf` it
    accepts connections and answers nothing. It `answers_pings` unless told not to. A subscription is answered
    with `grants`: the QoS, or 128 for no.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__("iot-core")
        self.port = free_port()
        self.script: Script = lambda _: Answer.TAKE
        self.deaf = False
        self.answers_pings = True
        self.grants = 1
        self.accepted: list[Published] = []
        self.received: list[Published] = []
        self.violations: Counter[str] = Counter()
        self.connections = 0
        self._tls = tls
        self._open: set[_Connection] = set()
        self._connected_at = -10.0
        self._server: asyncio.Server | None = None

    @property
    def events(self) -> list[Envelope]:
        """What has arrived, in order, with repetitions; the forwarder's own reports are left out."""
        events = (event for published in list(self.accepted) for event in published.events)
        return [each for each in events if not each.type.startswith(REPORT_PREFIX)]

    def has(self, ids: set[str]) -> bool:
        """Whether events with all `ids` arrived."""
        return ids <= {event.id for event in self.events}

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self._listen())
        return self

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)

    async def _end(self) -> None:
        """End at once, like a broker that is killed."""
        server, self._server = self._server, None
        if server is not None:
            await close_server(server)
        for connection in list(self._open):
            connection.writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = _Connection(self.connections, writer, deaf=self.deaf)
        self._open.add(connection)
        try:
            packets = wire.Packets()
            while self._server and (data := await reader.read(_CHUNK)):
                for first, body in packets.feed(data):
                    if not connection.deaf:
                        self._take(connection, wire.kind(first), body)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._open.discard(connection)

    def _take(self, connection: _Connection, kind: int, body: bytes) -> None:
        if kind == wire.CONNECT:
            now = time.monotonic()
            if now - self._connected_at < CONNECT_EVERY_S:
                self.violations["connects"] += 1
            self._connected_at = now
            connection.version = body[6]
            connection.writer.write(b"\x20\x03\0\0\0" if connection.version == 5 else wire.CONNACK_OK)
        elif kind == wire.PUBLISH:
            self._take_publish(connection, body)
        elif kind == wire.SUBSCRIBE:  # one filter
            tail = body[:2] + (b"\0" if connection.version == 5 else b"") + bytes((self.grants,))
            connection.writer.write(bytes((0x90, len(tail))) + tail)
        elif kind == wire.PINGREQ and self.answers_pings:
            connection.writer.write(wire.PINGRESP)

    def _take_publish(self, connection: _Connection, body: bytes) -> None:
        length = struct.unpack_from("!H", body)[0]
        topic, (raw_mid, rest) = body[2 : 2 + length].decode(), wire.read_publish(body)
        mid, payload = int.from_bytes(raw_mid, "big"), rest[connection.version == 5 :]
        events = tuple(each for each in unpack(payload) if isinstance(each, Envelope))
        published = Published(len(self.received) + 1, connection.number, topic, payload, events)
        self.received.append(published)
        connection.unanswered.add(mid)
        throttled = self._exceeds(connection, len(body))
        answer = Answer.IGNORE if throttled else self.script(published)
        self._answer(connection, mid, published, answer)

    def _exceeds(self, connection: _Connection, size: int) -> bool:
        now, recent = time.monotonic(), connection.recent
        while recent and recent[0][0] <= now - 1.0:
            recent.popleft()
        found = {
            "publishes": len(recent) >= PUBLISHES_PER_S,
            "bytes": sum(each for _, each in recent) + size > BYTES_PER_S,
            "in flight": len(connection.unanswered) > IN_FLIGHT,
        }
        self.violations.update(name for name, exceeded in found.items() if exceeded)
        if not any(found.values()):
            recent.append((now, size))
        return any(found.values())

    def _answer(self, connection: _Connection, mid: int, published: Published, answer: Answer | int) -> None:
        late, connection.late = connection.late, []
        match answer:
            case int(code):
                self._acknowledge(connection, mid, code)
            case Answer.TAKE | Answer.TAKE_TWICE | Answer.CONFUSE:
                self.accepted.append(published)
                if answer is Answer.CONFUSE:
                    self._acknowledge(connection, 65_000)
                self._acknowledge(connection, mid)
                if answer is Answer.TAKE_TWICE:
                    self._acknowledge(connection, mid)
            case Answer.TAKE_LATE:
                self.accepted.append(published)
                connection.late.append(mid)
            case Answer.TAKE_AND_CUT:
                self.accepted.append(published)
                connection.writer.write(b"\x40\x02\0")
                self._hang_up(connection)
            case Answer.HANG_UP:
                self._hang_up(connection)
            case Answer.GO_DEAF:
                connection.deaf = True
        for each in late:
            self._acknowledge(connection, each)

    def _hang_up(self, connection: _Connection) -> None:
        connection.deaf = True  # what has come already is dropped
        connection.writer.close()

    def _acknowledge(self, connection: _Connection, mid: int, code: int = 0) -> None:
        connection.unanswered.discard(mid)
        tail = struct.pack("!HB", mid, code) if code else struct.pack("!H", mid)
        connection.writer.write(bytes((0x40, len(tail))) + tail)
