"""A message broker, as bytes: what Mosquitto and IoT Core do of MQTT 3.1.1 at QoS 0 and 1.

It shares no code with `eventplane_mqtt`, which talks to it. `tests/integration/histories` runs the same
scenarios on Mosquitto.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from local.histories.engine import Engine

MAX_IN_FLIGHT: Final = 20
"""Unacknowledged messages to one client (mosquitto.conf(5), `max_inflight_messages`)."""

LOCAL_S: Final = 0.002
"""What a message takes from the broker to a program beside it."""

CONNECT, PUBLISH, PUBACK, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 4, 8, 12, 14


class Peer(Protocol):
    """The client's end of a connection."""

    def take(self, data: bytes) -> None:
        """Bytes come from the broker."""

    def hung_up(self) -> None:
        """The broker ended the connection."""


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    payload: bytes
    qos: int = 1
    retained: bool = False


@dataclass
class Kept:
    """What the broker keeps of a client: what it subscribed to, what waits, and what is unacknowledged."""

    client: str
    clean: bool
    filters: dict[str, int] = field(default_factory=dict)
    waiting: deque[Message] = field(default_factory=deque)
    in_flight: dict[int, Message] = field(default_factory=dict)
    mid: int = 0

    def next_mid(self) -> int:
        self.mid = self.mid % 65_535 + 1
        return self.mid


Publish = Callable[[str, Message], bool]
"""Takes a client's message before it is passed on; False: there is no PUBACK."""


class Broker:
    """`on_publish` may take a message itself; `on_client` is told of the ends of connections."""

    def __init__(
        self,
        engine: Engine,
        on_publish: Publish = lambda _client, _message: True,
        on_client: Callable[[str, str], object] = lambda _client, _what: None,
    ) -> None:
        self.is_up = True
        self.kept: dict[str, Kept] = {}
        self.retained: dict[str, Message] = {}
        self.links: dict[str, Link] = {}
        self.members: dict[str, Client] = {}
        self._engine = engine
        self._on_publish = on_publish
        self._on_client = on_client

    def open(self, peer: Peer) -> Link | None:
        """A connection of a client that has said nothing yet; None while the broker is down."""
        return Link(self, peer) if self.is_up else None

    def stop(self) -> None:
        """End all connections."""
        self.is_up = False
        for link in list(self.links.values()):
            link.end()

    def start(self) -> None:
        """Go on with what was kept."""
        self.is_up = True
        for each in self.members.values():
            each.push()

    def after(self, act: Callable[[], object]) -> None:
        """Let a program at this broker act, in a moment."""
        self._engine.after(LOCAL_S, act)

    def publish(self, message: Message) -> None:
        """Pass a message on to all that subscribed to its topic."""
        if message.retained:
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)
        for kept in list(self.kept.values()):
            qos = max((qos for each, qos in kept.filters.items() if matches(each, message.topic)), default=-1)
            if qos >= 0:
                self.offer(kept, Message(message.topic, message.payload, min(qos, message.qos)))

    def offer(self, kept: Kept, message: Message) -> None:
        """Give a client a message, or keep it until the client is there."""
        link = self.links.get(kept.client) or self.members.get(kept.client)
        if link is None and message.qos == 0:
            return
        kept.waiting.append(message)
        if link is not None:
            link.push()

    def take_publish(self, client: str, message: Message) -> bool:
        """Handle what a client published; whether it gets a PUBACK."""
        if not self._on_publish(client, message):
            return False
        self.publish(message)
        return True

    def tell(self, client: str, what: str) -> None:
        """Tell of a connection: `connected`, `disconnected`, `subscribed`."""
        self._on_client(client, what)


class Link:
    """The broker's end of one connection."""

    def __init__(self, broker: Broker, peer: Peer) -> None:
        self.kept: Kept | None = None
        self._broker = broker
        self._peer = peer
        self._buffer = b""
        self._is_open = True

    def take(self, data: bytes) -> None:
        """Bytes come from the client."""
        self._buffer += data
        for first, body in self._packets():
            if self._is_open:
                self._packet(first >> 4, first & 0xF, body)

    def end(self) -> None:
        """Hang up."""
        if self._is_open:
            self.lost()
            self._peer.hung_up()

    def lost(self) -> None:
        """The client is gone."""
        if not self._is_open:
            return
        self._is_open = False
        kept = self.kept
        if kept is None or self._broker.links.get(kept.client) is not self:
            return
        del self._broker.links[kept.client]
        # What was not acknowledged comes again, before what waits.
        kept.waiting.extendleft(reversed(kept.in_flight.values()))
        kept.in_flight.clear()
        if kept.clean:
            del self._broker.kept[kept.client]
        self._broker.tell(kept.client, "disconnected")

    def push(self) -> None:
        """Send what waits, as far as the client's window allows."""
        kept = self.kept
        while kept and self._is_open and kept.waiting and len(kept.in_flight) < MAX_IN_FLIGHT:
            message = kept.waiting.popleft()
            mid = kept.next_mid() if message.qos else 0
            if mid:
                kept.in_flight[mid] = message
            first = 0x30 | message.qos << 1 | message.retained
            head = _text(message.topic) + (mid.to_bytes(2, "big") if mid else b"")
            self._peer.take(_packet(first, head + message.payload))

    def _packets(self) -> Iterator[tuple[int, bytes]]:
        while len(self._buffer) >= 2:
            size = shift = 0
            for at in range(1, 5):
                if at >= len(self._buffer):
                    return
                size |= (self._buffer[at] & 0x7F) << shift
                shift += 7
                if not self._buffer[at] & 0x80:
                    break
            start, end = at + 1, at + 1 + size
            if len(self._buffer) < end:
                return
            first, body = self._buffer[0], self._buffer[start:end]
            self._buffer = self._buffer[end:]
            yield first, body

    def _packet(self, kind: int, flags: int, body: bytes) -> None:
        if kind == CONNECT:
            self._connect(body)
        elif self.kept is None or kind == DISCONNECT:
            self.lost()
            self._peer.hung_up()
        elif kind == PUBLISH:
            self._publish(self.kept, flags, body)
        elif kind == PUBACK:
            self.kept.in_flight.pop(int.from_bytes(body[:2], "big"), None)
            self.push()
        elif kind == SUBSCRIBE:
            self._subscribe(self.kept, body)
        elif kind == PINGREQ:
            self._peer.take(b"\xd0\x00")

    def _connect(self, body: bytes) -> None:
        clean = bool(body[7] & 0x02)
        size = int.from_bytes(body[10:12], "big")
        client = body[12 : 12 + size].decode()
        if (other := self._broker.links.get(client)) is not None:
            other.end()
        kept = self._broker.kept.get(client)
        resumed = kept is not None and not clean
        if kept is None or clean:
            kept = self._broker.kept[client] = Kept(client, clean)
        kept.clean = clean
        self.kept = kept
        self._broker.links[client] = self
        self._peer.take(bytes((0x20, 2, resumed, 0)))
        self._broker.tell(client, "connected")
        self.push()

    def _publish(self, kept: Kept, flags: int, body: bytes) -> None:
        qos, size = flags >> 1 & 3, int.from_bytes(body[:2], "big")
        topic, rest = body[2 : 2 + size].decode(), body[2 + size :]
        mid, payload = (rest[:2], rest[2:]) if qos else (b"", rest)
        if self._broker.take_publish(kept.client, Message(topic, payload, qos, bool(flags & 1))) and qos:
            self._peer.take(b"\x40\x02" + mid)

    def _subscribe(self, kept: Kept, body: bytes) -> None:
        mid, rest, codes = body[:2], body[2:], b""
        news: list[str] = []
        while rest:
            size = int.from_bytes(rest[:2], "big")
            name, qos = rest[2 : 2 + size].decode(), rest[2 + size]
            rest = rest[3 + size :]
            kept.filters[name] = qos
            news.append(name)
            codes += bytes((qos,))
        self._peer.take(_packet(0x90, mid + codes))
        self._broker.tell(kept.client, "subscribed")
        for message in list(self._broker.retained.values()):
            if any(matches(each, message.topic) for each in news):
                kept.waiting.append(message)
        self.push()


def matches(name: str, topic: str) -> bool:
    """Whether a topic filter takes a topic (MQTT 3.1.1, 4.7)."""
    wanted, found = name.split("/"), topic.split("/")
    for at, each in enumerate(wanted):
        if each == "#":
            return True
        if at >= len(found) or each not in ("+", found[at]):
            return False
    return len(wanted) == len(found)


def _text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def _packet(first: int, body: bytes) -> bytes:
    size, digits = len(body), bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | (0x80 if size else 0))
        if not size:
            return bytes((first, *digits)) + body


class Client:
    """A program at a broker that needs no bytes: a service of the home, with a lasting session."""

    def __init__(
        self, broker: Broker, name: str, filters: tuple[str, ...], heard: Callable[[Message], Any]
    ) -> None:
        self._broker = broker
        self._name = name
        self._heard = heard
        self._kept = broker.kept.setdefault(name, Kept(name, clean=False))
        self._kept.filters = dict.fromkeys(filters, 1)
        broker.members[name] = self

    def publish(self, topic: str, payload: bytes, *, qos: int = 1) -> bool:
        """Publish; whether the broker took it."""
        return self._broker.is_up and self._broker.take_publish(self._name, Message(topic, payload, qos))

    def push(self) -> None:
        """Something waits."""
        self._broker.after(self._read)

    def _read(self) -> None:
        while self._broker.is_up and self._kept.waiting:
            self._heard(self._kept.waiting.popleft())
