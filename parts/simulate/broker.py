"""A message broker, as bytes: what Mosquitto and IoT Core do of MQTT at QoS 0 and 1.

Of MQTT 5 it has what a forwarder uses: the subscription identifier, which messages that wait are kept with.

It shares no code with `eventplane_mqtt`, which talks to it. `tests/integration/histories` runs the same
scenarios on Mosquitto.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import edge
from parts.simulate.timeline import Timeline

PROFILE: Final = Path(edge.__file__).parent / "packaging" / "mosquitto.conf"
"""The profile of Mosquitto on devices."""

LOCAL_S: Final = 0.002
"""What a message takes from the broker to a program beside it."""

CONNECT, PUBLISH, PUBACK, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 4, 8, 10, 12, 14


def profile_number(setting: str) -> int:
    """Return the number that the device's profile gives to a setting."""
    return int(re.findall(rf"(?m)^{setting} (\d+)$", PROFILE.read_text())[0])


@dataclass(frozen=True, slots=True)
class Limits:
    """The most unacknowledged and waiting messages of a client, and whether those at QoS 0 wait for it.

    A client that publishes what the broker `refuses` is disconnected.
    """

    in_flight: int
    queued: int
    queues_qos_0: bool = False
    refuses: Callable[[BrokerMessage], object] = lambda _message: False


class Peer(Protocol):
    """The client's end of a connection."""

    def take(self, data: bytes) -> None:
        """Bytes come from the broker."""

    def hung_up(self) -> None:
        """The broker ended the connection."""


@dataclass(frozen=True, slots=True)
class BrokerMessage:
    topic: str
    payload: bytes
    qos: int = 1
    retained: bool = False
    is_again: bool = False
    properties: bytes = b""


@dataclass
class KeptSession:
    """The broker's session of a client: what it subscribed to, what waits, and what is unacknowledged."""

    client: str
    clean: bool
    will: BrokerMessage | None = None
    filters: dict[str, int] = field(default_factory=dict)
    waiting: deque[BrokerMessage] = field(default_factory=deque)
    in_flight: dict[int, BrokerMessage] = field(default_factory=dict)
    mid: int = 0
    properties: bytes = b""
    """Of its last SUBSCRIBE: what it subscribed to has the same ones."""

    def next_mid(self) -> int:
        self.mid = self.mid % 65_535 + 1
        return self.mid


Publish = Callable[[str, BrokerMessage], bool]
"""Takes a client's message before it is passed on; False: there is no PUBACK."""


class BrokerModel:
    """`on_publish` may take a message itself; `on_client` is told of the ends of connections."""

    def __init__(
        self,
        engine: Timeline,
        limits: Limits,
        on_publish: Publish = lambda _client, _message: True,
        on_client: Callable[[str, str], object] = lambda _client, _what: None,
        denies: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        self.limits = limits
        self.is_up = True
        self.kept: dict[str, KeptSession] = {}
        self.retained: dict[str, BrokerMessage] = {}
        self.links: dict[str, ModelLink] = {}
        self.members: dict[str, ClientModel] = {}
        self.engine = engine
        self._on_publish = on_publish
        self._on_client = on_client
        self._denies = denies

    def open(self, peer: Peer) -> ModelLink | None:
        """A connection of a client that has said nothing yet; None while the broker is down."""
        return ModelLink(self, peer) if self.is_up else None

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
        self.engine.after(LOCAL_S, act)

    def publish(self, message: BrokerMessage) -> None:
        """Pass a message on to all that subscribed to its topic."""
        if self._denies(message.topic):
            return
        if message.retained:
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)
        for kept in list(self.kept.values()):
            # Of filters that overlap Mosquitto goes by the first, level by level: a name, "+", "#".
            if found := min(
                (each for each in kept.filters if matches(each, message.topic)), key=_order, default=None
            ):
                self.offer(kept, replace(message, qos=min(kept.filters[found], message.qos), retained=False))

    def offer(self, kept: KeptSession, message: BrokerMessage) -> None:
        """Give a client a message, or keep it until the client is there."""
        link = self.links.get(kept.client) or self.members.get(kept.client)
        message = replace(message, properties=kept.properties)
        if isinstance(link, ModelLink) and message.qos == 0:
            link.send(message)
            return
        if link is None and message.qos == 0 and not self.limits.queues_qos_0:
            return
        if message.qos and sum(map(bool, (each.qos for each in kept.waiting))) >= self.limits.queued:
            return
        kept.waiting.append(message)
        if link is not None:
            link.push()

    def take_publish(self, client: str, message: BrokerMessage) -> bool:
        """Handle what a client published; whether it gets a PUBACK."""
        if not self._on_publish(client, message):
            return False
        self.publish(message)
        return True

    def tell(self, client: str, what: str) -> None:
        """Tell of a connection: `connected`, `disconnected`, `subscribed`."""
        self._on_client(client, what)


class ModelLink:
    """The broker's end of one connection."""

    def __init__(self, broker: BrokerModel, peer: Peer) -> None:
        self.kept: KeptSession | None = None
        self.principal = ""
        """The certificate of the client, if the broker asks for one."""
        self._broker = broker
        self._peer = peer
        self._buffer = b""
        self._is_open = True
        self._heard_s = 0.0
        self._is_5 = False

    def take(self, data: bytes) -> None:
        """Bytes come from the client."""
        self._heard_s = self._broker.engine.now_s
        self._buffer += data
        for first, body in self._packets():
            if self._is_open:
                self._packet(first >> 4, first & 0xF, body)

    def end(self, *, says_goodbye: bool = False) -> None:
        """Hang up; see `lost`."""
        if self._is_open:
            self.lost(says_goodbye=says_goodbye)
            self._peer.hung_up()

    def lost(self, *, says_goodbye: bool = False) -> None:
        """The client is gone; unless it `says_goodbye` its will is published."""
        if not self._is_open:
            return
        self._is_open = False
        kept = self.kept
        if kept is None or self._broker.links.get(kept.client) is not self:
            return
        del self._broker.links[kept.client]
        # What was not acknowledged comes again, before what waits.
        kept.waiting.extendleft(replace(each, is_again=True) for each in reversed(kept.in_flight.values()))
        kept.in_flight.clear()
        if kept.clean:
            del self._broker.kept[kept.client]
        if kept.will is not None and not says_goodbye:
            self._broker.publish(kept.will)
        self._broker.tell(kept.client, "disconnected")

    def push(self) -> None:
        """Send what waits, as far as the client's window allows."""
        kept, window = self.kept, self._broker.limits.in_flight
        while kept and self._is_open and kept.waiting and len(kept.in_flight) < window:
            self.send(kept.waiting.popleft())

    def send(self, message: BrokerMessage) -> None:
        """Send a message at once."""
        head = _text(message.topic)
        if message.qos and self.kept is not None:
            mid = self.kept.next_mid()
            self.kept.in_flight[mid] = message
            head += mid.to_bytes(2, "big")
        if self._is_5:
            head += bytes((len(message.properties),)) + message.properties
        first = 0x30 | message.is_again << 3 | message.qos << 1 | message.retained
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
            self.lost(says_goodbye=kind == DISCONNECT)
            self._peer.hung_up()
        elif kind == PUBLISH:
            self._publish(self.kept, flags, body)
        elif kind == PUBACK:
            self.kept.in_flight.pop(int.from_bytes(body[:2], "big"), None)
            self.push()
        elif kind == SUBSCRIBE:
            self._subscribe(self.kept, body)
        elif kind == UNSUBSCRIBE:
            self.kept.filters.pop(_read(body[2:])[0].decode(), None)
            self._peer.take(b"\xb0\x02" + body[:2])
        elif kind == PINGREQ:
            self._peer.take(b"\xd0\x00")

    def _connect(self, body: bytes) -> None:
        flags, self._is_5 = body[7], body[6] == 5
        clean, will = bool(flags & 0x02), None
        _, rest = self._properties(body[10:])
        name, rest = _read(rest)
        client = name.decode()
        if flags & 0x04:
            topic, rest = _read(rest)
            payload, rest = _read(rest)
            will = BrokerMessage(topic.decode(), payload, flags >> 3 & 3, bool(flags & 0x20))
        kept = self._broker.kept.get(client)
        if (other := self._broker.links.get(client)) is not None:
            if clean and kept is not None:
                kept.filters.clear()
            # A session that goes on has its will no longer.
            if kept is not None and kept.will is not None and (clean or kept.clean):
                self._broker.publish(kept.will)
            other.end(says_goodbye=True)
            kept = self._broker.kept.get(client)
        resumed = kept is not None and not clean
        if kept is None or clean:
            kept = self._broker.kept[client] = KeptSession(client, clean)
        kept.clean, kept.will = clean, will
        self.kept = kept
        self._broker.links[client] = self
        self._peer.take(_packet(0x20, bytes((resumed, 0)) + bytes(self._is_5)))
        self._broker.tell(client, "connected")
        self.push()
        if keepalive_s := int.from_bytes(body[8:10], "big"):
            self._watch(1.5 * keepalive_s)

    def _watch(self, patience_s: float) -> None:
        """End the connection of a client that says nothing for longer (MQTT 3.1.1, 3.1.2.10)."""
        engine = self._broker.engine
        if engine.now_s >= self._heard_s + patience_s:
            self.end()
        elif self._is_open:
            engine.at(self._heard_s + patience_s, lambda: self._watch(patience_s))

    def _publish(self, kept: KeptSession, flags: int, body: bytes) -> None:
        qos = flags >> 1 & 3
        topic, rest = _read(body)
        mid, rest = (rest[:2], rest[2:]) if qos else (b"", rest)
        _, payload = self._properties(rest)
        message = BrokerMessage(topic.decode(), payload, qos, bool(flags & 1))
        if self._broker.limits.refuses(message):
            self.end()
        elif self._broker.take_publish(kept.client, message) and qos:
            self._peer.take(b"\x40\x02" + mid)

    def _properties(self, data: bytes) -> tuple[bytes, bytes]:
        """Split `data` behind MQTT 5's properties, of less than 128 bytes."""
        end = 1 + data[0] if self._is_5 else 0
        return data[1:end], data[end:]

    def _subscribe(self, kept: KeptSession, body: bytes) -> None:
        mid, codes = body[:2], bytes(self._is_5)
        kept.properties, rest = self._properties(body[2:])
        news: list[str] = []
        while rest:
            name, rest = _read(rest)
            kept.filters[name.decode()] = rest[0]
            news.append(name.decode())
            codes += rest[:1]
            rest = rest[1:]
        self._peer.take(_packet(0x90, mid + codes))
        self._broker.tell(kept.client, "subscribed")
        for message in list(self._broker.retained.values()):
            if found := next((each for each in news if matches(each, message.topic)), None):
                self._broker.offer(kept, replace(message, qos=min(kept.filters[found], message.qos)))


@lru_cache(maxsize=4_096)  # a home has few topics
def matches(name: str, topic: str) -> bool:
    """Return whether a topic filter takes a topic (MQTT 3.1.1, 4.7)."""
    wanted, found = name.split("/"), topic.split("/")
    for at, each in enumerate(wanted):
        if each == "#":
            return True
        if at >= len(found) or each not in ("+", found[at]):
            return False
    return len(wanted) == len(found)


def _order(name: str) -> list[int]:
    return [*map("+#".find, name.split("/")), 2]


def _read(data: bytes) -> tuple[bytes, bytes]:
    """Split `data` behind its first value, which has its length before it."""
    end = 2 + int.from_bytes(data[:2], "big")
    return data[2:end], data[end:]


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


class ClientModel:
    """A program at a broker that needs no bytes: a service of the home, with a lasting session."""

    def __init__(
        self, broker: BrokerModel, name: str, filters: tuple[str, ...], heard: Callable[[BrokerMessage], Any]
    ) -> None:
        self._broker = broker
        self._name = name
        self._heard = heard
        self._kept = broker.kept.setdefault(name, KeptSession(name, clean=False))
        self._kept.filters = dict.fromkeys(filters, 1)
        broker.members[name] = self

    def publish(self, topic: str, payload: bytes, *, qos: int = 1) -> bool:
        """Publish; whether the broker took it."""
        return self._broker.is_up and self._broker.take_publish(
            self._name, BrokerMessage(topic, payload, qos)
        )

    def push(self) -> None:
        """Something waits."""
        self._broker.after(self._read)

    def _read(self) -> None:
        while self._broker.is_up and self._kept.waiting:
            self._heard(self._kept.waiting.popleft())
