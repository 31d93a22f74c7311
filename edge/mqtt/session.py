"""One MQTT session from CONNECT to its end, without I/O: bytes in, messages out, and bytes to send.

Times are seconds of one monotonic clock, given by the caller. Not thread-safe.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum, auto

from edge.messages import Acknowledged, Connected, LinkName, Message, Received
from edge.mqtt import encode, reasons, window
from edge.mqtt.decode import Decoder
from edge.mqtt.endpoint import Endpoint
from edge.mqtt.errors import ProtocolError
from edge.mqtt.packets import ConnAck, Disconnect, Packet, PingResp, PubAck, Publish, SubAck
from edge.mqtt.properties import MAXIMUM_PACKET_SIZE, REASON_STRING, RECEIVE_MAXIMUM, SERVER_KEEP_ALIVE
from edge.mqtt.pulse import Pulse

_log = logging.getLogger(__name__)

_QOS = 1
_MAX_FILTERS = 8
"""Most filters of one SUBSCRIBE: IoT Core's limit."""

_PROTOCOL_ERROR = 0x82


class _Phase(Enum):
    CONNECTING = auto()
    SUBSCRIBING = auto()
    UP = auto()
    CLOSING = auto()


class Session:
    """Begins with `start`. `ended` is the reason once it is over; nothing brings it back then."""

    def __init__(self, endpoint: Endpoint, link: LinkName, generation: int) -> None:
        self.ended: str | None = None
        self._endpoint = endpoint
        self._version = endpoint.version
        self._link = link
        self._generation = generation
        self._phase = _Phase.CONNECTING
        self._answer_by = 0.0
        self._pulse = Pulse(endpoint.keepalive_s)
        self._decoder = Decoder(self._version, endpoint.max_packet_bytes)
        self._sent = window.Sent()
        self._received = window.Received()
        self._pings = window.Pings()
        self._filters: dict[int, tuple[str, ...]] = {}
        self._refused: list[str] = []
        self._max_packet_bytes: float = float("inf")
        self._messages: list[Message] = []
        self._outgoing: deque[bytes] = deque()

    @property
    def said_goodbye(self) -> bool:
        """Whether all that we had to say was taken for sending, our farewell last."""
        return self._phase is _Phase.CLOSING and not self._outgoing

    def start(self, now: float, password: bytes | None = None) -> None:
        """The line stands; `password` is the login's. Raises `UnsendableError`."""
        self._answer_by = now + self._endpoint.connect_timeout_s
        self._pulse.sent(now)
        self._outgoing.append(_connect(self._endpoint, password))

    def publish(self, topic: str, payload: bytes, qos: int = _QOS, *, retain: bool = False) -> int:
        """Its packet id, 0 at QoS 0, and 0 when no connection stands. Raises `UnsendableError`."""
        if self.ended is not None or self._phase is not _Phase.UP:
            return 0
        name = encode.topic_name(topic)
        mid = self._sent.new_id() if qos else 0
        if qos and not mid:
            self.end(f"{window.MAX_ID} publishes without a PUBACK")
            return 0
        packet = encode.publish(self._version, name, payload, mid, retain=retain)
        if len(packet) > self._max_packet_bytes:
            self._refuse(mid, f"{len(packet)} bytes, the broker takes {self._max_packet_bytes}")
        elif not mid or self._sent.may_go(packet):
            self._outgoing.append(packet)
        return mid

    def ping(self) -> int:
        """Ask the broker for an answer; its number comes back in `Acknowledged`, 0 as for `publish`."""
        if self.ended is not None or self._phase is not _Phase.UP:
            return 0
        self._outgoing.append(encode.PINGREQ)
        return self._pings.new_id()

    def acknowledge(self, mid: int) -> None:
        """PUBACK for a message of this session; nothing for any other."""
        if self._received.settle(mid) and self.ended is None and self._phase is not _Phase.CLOSING:
            self._outgoing.append(encode.puback(mid))

    def close(self) -> None:
        """Say goodbye; the broker then ends the connection."""
        if self.ended is None and self._phase in (_Phase.SUBSCRIBING, _Phase.UP):
            self._phase = _Phase.CLOSING
            self._outgoing.append(encode.disconnect(self._version))
        else:
            self.end("closed")

    def end(self, reason: str) -> None:
        """It is over, and nothing that waits is sent any more. The first reason counts."""
        if self.ended is None:
            self.ended = reason
            self._outgoing.clear()

    def lost(self, error: str | None) -> None:
        """The line ended, for an `error` or (None) because the broker hung up."""
        if self._phase is _Phase.CLOSING:
            self.end("closed")
        elif error is not None or self._phase is _Phase.UP:
            self.end(f"connection lost: {error or 'the broker hung up'}")
        elif self._phase is _Phase.CONNECTING:
            # IoT Core's way to say no.
            self.end(f"the broker hung up instead of CONNACK; {reasons.identity(self._endpoint)}")
        else:
            self.end("the broker hung up instead of SUBACK; see its access rules")

    def deadline(self) -> float | None:
        """When `tick` has something to do, None for never."""
        if self._phase in (_Phase.CONNECTING, _Phase.SUBSCRIBING):
            return self._answer_by
        return self._pulse.deadline() if self._phase is _Phase.UP else None

    def tick(self, now: float) -> None:
        """Keep the connection alive, or give it up."""
        if self.ended is not None:
            return
        if self._phase in (_Phase.CONNECTING, _Phase.SUBSCRIBING):
            if now >= self._answer_by:
                packet = "CONNECT" if self._phase is _Phase.CONNECTING else "SUBSCRIBE"
                self.end(f"no answer to {packet} within {self._endpoint.connect_timeout_s} s")
        elif self._phase is _Phase.UP:
            if self._pulse.given_up(now):
                self.end(f"no answer to PINGREQ within {self._pulse.interval_s} s")
            elif self._pulse.ask(now):
                self._pings.keepalive()
                self._outgoing.append(encode.PINGREQ)

    def receive(self, data: bytes, now: float) -> None:
        """Take in what arrived."""
        self._pulse.heard(now)
        try:
            for packet in self._decoder.feed(data):
                if self.ended is not None:
                    return
                self._take(packet)
        except ProtocolError as error:
            self._hang_up(f"the broker broke the protocol: {error}", _PROTOCOL_ERROR)

    def sent(self, now: float) -> None:
        """Bytes of `take_bytes` are on their way."""
        self._pulse.sent(now)

    def take_bytes(self, limit: int) -> bytes:
        """What is to be sent next: whole packets, up to `limit` bytes of them, or one that is larger."""
        outgoing = self._outgoing
        packets: list[bytes] = []
        size = 0
        while outgoing and (not size or size + len(outgoing[0]) <= limit):
            size += len(outgoing[0])
            packets.append(outgoing.popleft())
        return b"".join(packets)

    def take_messages(self) -> list[Message]:
        """What there is to report."""
        messages, self._messages = self._messages, []
        return messages

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
        topic, payload, _, mid, duplicate, retained = packet
        # After our farewell no PUBACK can follow: it will come again.
        if self._phase is _Phase.CLOSING or (mid and not self._received.is_news(mid, duplicate=duplicate)):
            return
        self._messages.append(Received(self._link, self._generation, mid, topic, payload, retained))

    def _take_puback(self, mid: int, reason: int) -> None:
        if not self._sent.release(mid):
            return
        failure = reasons.name(reason) if reason >= reasons.FAILURE else None
        self._messages.append(Acknowledged(self._link, self._generation, mid, failure))
        held_back = self._sent.next_held_back()
        if held_back is not None and self._phase is _Phase.UP:
            self._outgoing.append(held_back)

    def _take_pingresp(self) -> None:
        if mid := self._pings.answered():
            self._messages.append(Acknowledged(self._link, self._generation, mid))
        else:
            self._pulse.answered()

    def _take_connack(self, packet: ConnAck) -> None:
        if self._phase is not _Phase.CONNECTING:
            raise ProtocolError("CONNACK", "a second one")
        if packet.reason:
            text = packet.properties.get(REASON_STRING, "")
            code = reasons.of_connack(packet.reason)
            self.end(f"CONNECT refused: {reasons.explain(code, text, self._endpoint)}")
            return
        self._pulse.interval_s = packet.properties.get(SERVER_KEEP_ALIVE, self._pulse.interval_s)
        self._sent.receive_maximum = packet.properties.get(RECEIVE_MAXIMUM, window.MAX_ID)
        self._max_packet_bytes = packet.properties.get(MAXIMUM_PACKET_SIZE, self._max_packet_bytes)
        self._phase = _Phase.SUBSCRIBING
        topics = self._endpoint.subscriptions
        for first in range(0, len(topics), _MAX_FILTERS):
            mid = self._sent.new_id()
            self._filters[mid] = topics[first : first + _MAX_FILTERS]
            self._outgoing.append(encode.subscribe(self._version, mid, self._filters[mid], _QOS))
        self._see_whether_all_subscribed()

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
        self._see_whether_all_subscribed()

    def _see_whether_all_subscribed(self) -> None:
        if self._filters or self._phase is not _Phase.SUBSCRIBING:
            return
        refused = f"SUBSCRIBE refused for {', '.join(self._refused)}; see the broker's access rules"
        if self._refused and self._endpoint.needs_subscriptions:
            self._hang_up(refused, 0)
        else:
            if self._refused:
                _log.error("%s broker: %s", self._link, refused)
            self._phase = _Phase.UP
            self._messages.append(Connected(self._link, self._generation))

    def _refuse(self, mid: int, problem: str) -> None:
        if mid:
            self._sent.release(mid)
            failure = f"{reasons.name(0x95)}: {problem}"
            self._messages.append(Acknowledged(self._link, self._generation, mid, failure))

    def _hang_up(self, reason: str, code: int) -> None:
        self.end(reason)
        self._outgoing.append(encode.disconnect(self._version, code))


def _connect(endpoint: Endpoint, password: bytes | None) -> bytes:
    return encode.connect(
        endpoint.version,
        endpoint.client_id,
        clean=endpoint.clean_session,
        keepalive_s=endpoint.keepalive_s,
        session_expiry_s=0 if endpoint.clean_session else endpoint.session_expiry_s,
        max_packet_bytes=endpoint.max_packet_bytes,
        will=endpoint.will,
        username=endpoint.login.username if endpoint.login else None,
        password=password,
    )
