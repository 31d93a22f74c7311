"""One MQTT session from CONNECT to its end, without I/O: bytes in, messages and bytes to send out.

Times are seconds of one monotonic clock, given by the caller. Not thread-safe.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from enum import Enum, auto
from typing import Final

from eventplane_mqtt import codec, reasons
from eventplane_mqtt.codec import (
    ConnAck,
    Decoder,
    Disconnect,
    Packet,
    PingResp,
    ProtocolError,
    PubAck,
    Publish,
    SubAck,
)
from eventplane_mqtt.endpoint import Endpoint
from eventplane_mqtt.mailbox import Acknowledged, Connected, LinkName, Message, Received

_log = logging.getLogger(__name__)

_QOS = 1
_MAX_FILTERS = 8
"""Most filters of one SUBSCRIBE: IoT Core's limit."""

_PROTOCOL_ERROR = 0x82

_ANY: Final = float("inf")

Skips = Callable[[str, bytes], bool]
"""Whether a message, by topic and payload, is of no use to this session."""

MAX_ID: Final = 65_535


class _Phase(Enum):
    CONNECTING = auto()
    SUBSCRIBING = auto()
    UP = auto()
    CLOSING = auto()


class KeepAlive:
    """MQTT's keepalive: when to send PINGREQ, and when to presume the broker dead.

    `interval_s` 0 means no keepalive. Bytes went out at `sent_at` and came in at `received_at`: a broker that
    is busy sending is alive, though its PINGRESP has to queue. `asked` lasts until PINGRESP comes. While the
    connection is not `reading`, PINGREQ only keeps the broker from presuming us dead.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.reading = True
        self.sent_at = 0.0
        self.received_at = 0.0
        self.asked = False

    def read(self, now: float, *, reading: bool) -> None:
        """The connection reads from now on, or stops reading."""
        if reading and not self.reading:
            self.received_at = now  # the broker's answers may have waited
        self.reading = reading

    def deadline(self) -> float | None:
        """Return when `ask` or `is_dead` turns true, None for never."""
        if not self.interval_s:
            return None
        return (self.received_at if self.asked and self.reading else self.sent_at) + self.interval_s

    def ask(self, now: float) -> bool:
        """Return whether to send PINGREQ now; it then counts as sent."""
        if (self.asked and self.reading) or not self._is_due(now):
            return False
        self.asked = True
        self.sent_at = now  # or, while it cannot be sent, it would be due again at once
        self.received_at = now  # its answer has the full interval
        return True

    def is_dead(self, now: float) -> bool:
        """Return whether PINGREQ was sent and nothing at all was received since."""
        return self.asked and self.reading and self._is_due(now)

    def _is_due(self, now: float) -> bool:
        deadline = self.deadline()
        return deadline is not None and now >= deadline


class SendWindow:
    """The packet ids of our packets that the broker has not answered yet."""

    def __init__(self) -> None:
        self.receive_maximum = MAX_ID
        self._last = 0
        self._in_use: set[int] = set()
        self._held_back: deque[bytes] = deque()

    def new_id(self) -> int:
        """Return an id that is not in use, or 0 when all are."""
        if len(self._in_use) == MAX_ID:
            return 0
        last = self._last
        while True:
            last = last % MAX_ID + 1
            if last not in self._in_use:
                break
        self._last = last
        self._in_use.add(last)
        return last

    def may_go(self, packet: bytes, others: int) -> bool:
        """Return whether the PUBLISH with the newest id may be sent now; if not, it is kept here.

        A broker may hang up on a client beyond its receive maximum (MQTT 5). `others` are ids of SUBSCRIBEs.
        """
        if len(self._in_use) - others <= self.receive_maximum:
            return True
        self._held_back.append(packet)
        return False

    def release(self, mid: int) -> bool:
        """Free the id of an answer; False for an id that is not in use (a duplicate, or nonsense)."""
        if mid not in self._in_use:
            return False
        self._in_use.remove(mid)
        return True

    def next_held_back(self) -> bytes | None:
        """Return the PUBLISH that may be sent in the place of a released one."""
        return self._held_back.popleft() if self._held_back else None


class ReceiveWindow:
    """The packet ids of the broker's messages that we have not acknowledged yet."""

    def __init__(self) -> None:
        self._owed: dict[int, int] = {}

    def is_news(self, mid: int, *, duplicate: bool) -> bool:
        """Return whether to report the message: not if it is redelivered while it is in flight here."""
        owed = self._owed.get(mid, 0)
        if owed and duplicate:
            return False
        # Mosquitto reuses ids round-robin, even one that we have not acknowledged.
        self._owed[mid] = owed + 1
        return True

    def settle(self, mid: int) -> bool:
        """Return whether to send PUBACK: once, after all messages with this id are done.

        A second PUBACK would acknowledge the next message with this id.
        """
        owed = self._owed.pop(mid, 0)
        if owed > 1:
            self._owed[mid] = owed - 1
        return owed == 1


class Session:
    """Begins with `start`. `ended` is the reason once it is over, which is final.

    `resumed` says whether the broker kept the session. Messages that it `skips` are acknowledged and not
    reported. While `has_undecoded`, call `decode` again before more is read. With `drops` it drops messages
    for which there is no room, instead of leaving them undecoded; `dropped` counts them. Of all
    `queued_bytes` that there were to send so far, `taken_bytes` were taken.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        link: LinkName,
        generation: int,
        *,
        drops: bool = False,
        skips: Skips | None = None,
    ) -> None:
        self.ended: str | None = None
        self.has_undecoded = False
        self.dropped = 0
        self._endpoint = endpoint
        self._version = endpoint.version
        self._link = link
        self._generation = generation
        self._phase = _Phase.CONNECTING
        # CONNACK, and then the SUBACKs, have a deadline each.
        self._answer_by = 0.0
        self._keepalive = KeepAlive(endpoint.keepalive_s)
        self._decoder = Decoder(self._version, endpoint.max_packet_bytes, endpoint.owner)
        self._packets: Iterator[Packet] = iter(())
        self._drops = drops
        self._skips = skips
        self._room = self._room_for_qos_0 = _ANY
        self.resumed = False
        self._sent = SendWindow()
        self._received = ReceiveWindow()
        # PINGREQs without an answer, 0 for the keepalive's: a PINGRESP has no id, but they come in order.
        self._pings: deque[int] = deque()
        self._last_ping = MAX_ID
        self._filters: dict[int, tuple[str, ...]] = {}
        self._refused: list[str] = []
        self._max_packet_bytes: float = float("inf")
        self._messages: list[Message] = []
        self._outgoing: deque[bytes] = deque()
        self.queued_bytes = self.taken_bytes = self._ping_ends = 0

    @property
    def is_closing(self) -> bool:
        """True if `close` was called while the connection was up."""
        return self._phase is _Phase.CLOSING

    @property
    def _awaits_answer(self) -> bool:
        return self._phase is _Phase.CONNECTING or bool(self._filters)

    @property
    def disconnect_is_out(self) -> bool:
        """True if everything was taken for sending, our DISCONNECT last."""
        return self._phase is _Phase.CLOSING and not self._outgoing

    def start(self, now: float, password: bytes | None = None) -> None:
        """Begin, over a transport that is connected; `password` is the login's. Raises `UnsendableError`."""
        self._answer_by = now + self._endpoint.connect_timeout_s
        self._keepalive.sent_at = now
        self._put(_connect(self._endpoint, password))

    def publish(self, topic: str, payload: bytes, qos: int = _QOS, *, retain: bool = False) -> int:
        """Send; return the packet id, 0 at QoS 0 and while not up. Raises `UnsendableError`."""
        if self.ended is not None or self._phase is not _Phase.UP:
            return 0
        name = codec.topic_name(topic)
        mid = self._sent.new_id() if qos else 0
        if qos and not mid:
            self.end(f"{MAX_ID} publishes without a PUBACK")
            return 0
        packet = codec.encode_publish(self._version, name, payload, mid, retain=retain)
        if len(packet) > self._max_packet_bytes:
            self._refuse(mid, f"{len(packet)} bytes, the broker takes {self._max_packet_bytes}")
        elif not mid or self._sent.may_go(packet, len(self._filters)):
            self._put(packet)
        return mid

    def unsubscribe(self, filters: Collection[str]) -> int:
        """Send UNSUBSCRIBE; return the packet id, 0 while not up."""
        mid = self._sent.new_id() if self.ended is None and self._phase is _Phase.UP else 0
        if mid:
            self._put(codec.encode_unsubscribe(self._version, mid, filters))
        return mid

    def ping(self) -> int:
        """Send PINGREQ; return the number that comes back in `Acknowledged`, 0 while not up."""
        if self.ended is not None or self._phase is not _Phase.UP:
            return 0
        self._put(codec.PINGREQ)
        self._last_ping += 1  # no packet id
        self._pings.append(self._last_ping)
        return self._last_ping

    def acknowledge(self, mid: int) -> None:
        """Send PUBACK for a message of this session; ignore any other."""
        if self._received.settle(mid) and self.ended is None and self._phase is not _Phase.CLOSING:
            self._put(codec.encode_puback(mid))

    def close(self) -> None:
        """Send DISCONNECT; the broker then ends the connection."""
        if self.ended is None and self._phase in (_Phase.SUBSCRIBING, _Phase.UP):
            self._phase = _Phase.CLOSING
            self._put(codec.encode_disconnect(self._version))
        else:
            self.end("closed")

    def end(self, reason: str) -> None:
        """End the session; nothing more is sent. The first reason counts."""
        if self.ended is None:
            self.ended = reason
            self._outgoing.clear()

    def lost(self, error: str | None) -> None:
        """The transport ended, for an `error` or (None) because the broker closed it."""
        if self._phase is _Phase.CLOSING:
            self.end("closed")
        elif error is not None or self._phase is _Phase.UP:
            self.end(f"connection lost: {error or reasons.HUNG_UP}")
        elif self._phase is _Phase.CONNECTING:
            # IoT Core refuses in this way, and some brokers a version that they do not know.
            also = ", and that it knows MQTT 5 (else set protocol to 3.1.1)" if self._version == 5 else ""
            self.end(f"{reasons.HUNG_UP} instead of CONNACK; {reasons.identity(self._endpoint)}{also}")
        else:
            self.end(f"{reasons.HUNG_UP} instead of SUBACK; see its access rules")

    def deadline(self) -> float | None:
        """Return when `tick` has something to do, None for never."""
        if self._phase is _Phase.CLOSING:
            return None
        keepalive = None if self._phase is _Phase.CONNECTING else self._keepalive.deadline()
        if not self._awaits_answer:
            return keepalive
        return self._answer_by if keepalive is None else min(self._answer_by, keepalive)

    def tick(self, now: float, *, reading: bool = True) -> None:
        """Send PINGREQ, or end the session, when it is time to.

        No answer can come while the connection is not `reading`: nothing is presumed dead then.
        """
        if self.ended is not None or self._phase is _Phase.CLOSING:
            return
        self._keepalive.read(now, reading=reading)
        if self._awaits_answer:
            if not reading:
                self._answer_by = now + self._endpoint.connect_timeout_s
            elif now >= self._answer_by:
                packet = "CONNECT" if self._phase is _Phase.CONNECTING else "SUBSCRIBE"
                self.end(f"no answer to {packet} within {self._endpoint.connect_timeout_s} s")
                return
        if self._phase is _Phase.CONNECTING:
            return
        if self._keepalive.is_dead(now):
            self.end(f"no answer to PINGREQ within {self._keepalive.interval_s} s")
        elif self._keepalive.ask(now):
            self._pings.append(0)
            self._put(codec.PINGREQ)
            self._ping_ends = self.queued_bytes

    def receive(self, data: bytes, now: float, room: float = _ANY, room_for_qos_0: float = _ANY) -> None:
        """Process what arrived, up to messages of `room` bytes; see `decode`."""
        self._keepalive.received_at = now
        self._packets = self._decoder.feed(data)
        self.decode(room, room_for_qos_0)
        if self._filters:
            # CONNACK came; or a backlog comes, which brokers send before SUBACK: progress is an answer.
            self._answer_by = now + self._endpoint.connect_timeout_s

    def decode(self, room: float = _ANY, room_for_qos_0: float = _ANY) -> None:
        """Process the packets of what arrived until their messages fill `room`, in bytes of memory.

        Messages at QoS 0 that exceed `room_for_qos_0` are dropped, unless the broker kept them before this
        connection, and with `drops` all that exceed `room`.
        """
        self._room, self._room_for_qos_0 = room, room_for_qos_0
        self.has_undecoded = True
        try:
            while self.ended is None and (self._room > 0 or self._drops or self._phase is _Phase.CLOSING):
                packet = next(self._packets, None)
                if packet is None:
                    self.has_undecoded = False
                    return
                self._take(packet)
        except ProtocolError as error:
            self._hang_up(f"the broker broke the protocol: {error}", _PROTOCOL_ERROR)

    def sent(self, now: float) -> None:
        """Bytes of `take_bytes` were sent."""
        self._keepalive.sent_at = now

    def progressed(self, left_bytes: int, now: float) -> None:
        """More than `left_bytes` have left; the answer to a PINGREQ behind them has its time from now on."""
        if left_bytes < self._ping_ends:
            self._keepalive.received_at = max(self._keepalive.received_at, now)

    def take_bytes(self, limit: int) -> bytes:
        """Return what to send next: whole packets, up to `limit` bytes of them, or one that is larger."""
        outgoing = self._outgoing
        packets: list[bytes] = []
        size = 0
        while outgoing and (not size or size + len(outgoing[0]) <= limit):
            size += len(outgoing[0])
            packets.append(outgoing.popleft())
        self.taken_bytes += size
        return b"".join(packets)

    def take_messages(self) -> list[Message]:
        """Return what there is to report."""
        messages, self._messages = self._messages, []
        return messages

    def _put(self, packet: bytes) -> None:
        self._outgoing.append(packet)
        self.queued_bytes += len(packet)

    def _take(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self._take_publish(packet)
            case PubAck(mid, reason):
                self._take_puback(mid, reason)
            case PingResp():
                self._take_pingresp()
            case ConnAck():
                self._take_connack(packet)
            case SubAck(mid, codes):
                self._take_suback(mid, codes)
            case Disconnect(reason, text):
                why = reasons.explain(reason, text, self._endpoint)
                self.end(f"disconnected by the broker: {why}")

    def _take_publish(self, packet: Publish) -> None:
        if self._phase is _Phase.CONNECTING:
            raise ProtocolError("PUBLISH", "it came before CONNACK")
        if self._phase is _Phase.CLOSING:
            return  # after our DISCONNECT no PUBACK can follow: the message will be redelivered
        if self._phase is _Phase.SUBSCRIBING and self.resumed:
            # The broker resumes the lasting session with its backlog, and SUBACK comes only after that.
            self._be_up()
        topic, payload, mid, duplicate = packet[:4]
        if self._skips is not None and self._skips(topic, payload):
            if mid and self._received.is_news(mid, duplicate=duplicate):
                self.acknowledge(mid)
            return
        # A backlog of the broker, which comes before SUBACK, is no flood: it ends.
        if (self._room if mid or self._filters else self._room_for_qos_0) <= 0:
            self.dropped += 1
            return
        if mid and not self._received.is_news(mid, duplicate=duplicate):
            return
        message = Received(self._link, self._generation, mid, topic, payload, *packet[4:], duplicate)
        self._room -= message.memory_bytes
        self._room_for_qos_0 -= message.memory_bytes
        self._messages.append(message)

    def _take_puback(self, mid: int, reason: int) -> None:
        if not self._sent.release(mid):
            return
        failure = reasons.name(reason) if reason >= reasons.FAILURE else None
        self._messages.append(Acknowledged(self._link, self._generation, mid, failure))
        held_back = self._sent.next_held_back()
        if held_back is not None and self._phase is _Phase.UP:
            self._put(held_back)

    def _take_pingresp(self) -> None:
        if mid := self._pings.popleft() if self._pings else 0:
            self._messages.append(Acknowledged(self._link, self._generation, mid))
        else:
            self._keepalive.asked = False

    def _take_connack(self, packet: ConnAck) -> None:
        if self._phase is not _Phase.CONNECTING:
            raise ProtocolError("CONNACK", "a second one")
        if packet.reason:
            text = packet.properties.get(codec.REASON_STRING, "")
            code = reasons.of_connack(packet.reason)
            self.end(f"CONNECT refused: {reasons.explain(code, text, self._endpoint)}")
            return
        found = packet.properties
        self._keepalive.interval_s = found.get(codec.SERVER_KEEP_ALIVE, self._keepalive.interval_s)
        self._sent.receive_maximum = found.get(codec.RECEIVE_MAXIMUM, MAX_ID)
        self._max_packet_bytes = found.get(codec.MAXIMUM_PACKET_SIZE, self._max_packet_bytes)
        self._phase = _Phase.SUBSCRIBING
        self.resumed = packet.session_present
        topics = self._endpoint.subscriptions
        owner = self._endpoint.owner if found.get(codec.SUBSCRIPTION_IDENTIFIER_AVAILABLE, 1) else 0
        for first in range(0, len(topics), _MAX_FILTERS):
            mid = self._sent.new_id()
            self._filters[mid] = topics[first : first + _MAX_FILTERS]
            self._put(codec.encode_subscribe(self._version, mid, self._filters[mid], _QOS, owner))
        self._check_subscribed()

    def _take_suback(self, mid: int, codes: bytes) -> None:
        filters = self._filters.pop(mid, None)
        if filters is None:
            return
        self._sent.release(mid)
        if len(codes) != len(filters):
            raise ProtocolError("SUBACK", f"{len(codes)} answers to {len(filters)} filters")
        for topic, code in zip(filters, codes, strict=True):
            if code >= reasons.FAILURE:
                self._refused.append(f"{topic} ({reasons.name(code)})")
        self._check_subscribed()

    def _check_subscribed(self) -> None:
        if self._filters or self._phase not in (_Phase.SUBSCRIBING, _Phase.UP):
            return
        refused = f"SUBSCRIBE refused for {', '.join(self._refused)}; see the broker's access rules"
        if self._refused and self._endpoint.needs_subscriptions:
            self._hang_up(refused, 0)
        else:
            if self._refused:
                _log.error("%s broker: %s", self._link, refused)
            self._be_up()

    def _be_up(self) -> None:
        if self._phase is _Phase.SUBSCRIBING:
            self._phase = _Phase.UP
            self._messages.append(Connected(self._link, self._generation))

    def _refuse(self, mid: int, problem: str) -> None:
        if mid:
            self._sent.release(mid)
            failure = f"{reasons.name(0x95)}: {problem}"
            self._messages.append(Acknowledged(self._link, self._generation, mid, failure))

    def _hang_up(self, reason: str, code: int) -> None:
        self.end(reason)
        self._put(codec.encode_disconnect(self._version, code))


def _connect(endpoint: Endpoint, password: bytes | None) -> bytes:
    return codec.encode_connect(
        endpoint.version,
        endpoint.client_id,
        clean=endpoint.clean_session,
        keepalive_s=endpoint.keepalive_s,
        username=endpoint.login.username if endpoint.login else None,
        password=password,
    )
