"""MQTT 3.1.1 and MQTT 5 packets: the ones that we send as bytes, the ones that a broker sends as values.

`version` is 4 (MQTT 3.1.1) or 5; a packet id is 1 to 65535. A `reason` is MQTT 5's code; of the codes of
MQTT 3.1.1, 0x80 in a SUBACK means the same and those of a CONNACK are 1 to 5 (see `eventplane_mqtt.reasons`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from eventplane_mqtt.endpoint import MqttError

# Identifiers of MQTT 5 properties (chapter 2.2.2) that mean something to us.
SESSION_EXPIRY = 0x11
SERVER_KEEP_ALIVE = 0x13
REASON_STRING = 0x1F
RECEIVE_MAXIMUM = 0x21
TOPIC_ALIAS = 0x23
USER_PROPERTY = 0x26
MAXIMUM_PACKET_SIZE = 0x27
SUBSCRIPTION_IDENTIFIER = 0x0B
SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29

_NEVER_ZERO = {RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE}

PINGREQ: Final = b"\xc0\x00"

OVERSIZE_BYTES: Final = 4096
"""What is kept of a payload that is too large: enough to name its sender in a dead letter."""

_OVERSIZE_HEAD_BYTES: Final = 0xFFFF + 16 * 1024
"""What is read of a packet that is too large: the longest topic, the properties of any sane sender, and
OVERSIZE_BYTES."""

_MAX_LENGTH = 268_435_455
_NEVER = b"\xff" * 4  # of a session (MQTT 5.0, section 3.1.2.11.2)

_NAMES: Final = (
    "reserved packet", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE",
    "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip
_PUBLISH: Final = 3


class ProtocolError(MqttError):
    """The broker sent what MQTT forbids: `packet` names the packet, `problem` says what is wrong with it.

    The connection ends; the next one starts afresh.
    """

    packet: str
    problem: str
    message = "{packet}: {problem}"


class UnsendableError(MqttError):
    """MQTT cannot carry a caller's `value`: `problem` says why. A bug of the caller."""

    value: str
    problem: str
    message = "{value!r} cannot be sent: {problem}"


class ConnAck(NamedTuple):
    """The answer to CONNECT; `properties` by identifier."""

    session_present: bool
    reason: int
    properties: dict[int, Any]


class SubAck(NamedTuple):
    """The answer to the SUBSCRIBE with packet id `mid`; one reason for each of its filters."""

    mid: int
    reasons: bytes


class Publish(NamedTuple):
    """An application message. `mid` is 0 at QoS 0.

    `oversize` is the size of a payload that is too large, bytes, of which `payload` is the beginning; else 0.
    `foreign`: only subscriptions of other owners than ours have brought it.
    """

    topic: str
    payload: bytes
    mid: int
    duplicate: bool
    retain: bool
    oversize: int = 0
    foreign: bool = False


class PubAck(NamedTuple):
    """The answer to our QoS 1 PUBLISH with packet id `mid`."""

    mid: int
    reason: int


class PingResp(NamedTuple):
    """The answer to PINGREQ."""


class Disconnect(NamedTuple):
    """The broker ends the connection, in MQTT 5 only; `text` is its own reason string, or empty."""

    reason: int
    text: str


Packet = ConnAck | SubAck | Publish | PubAck | PingResp | Disconnect


class PacketReader:
    """Reads values from the body of one packet, never past its end. Raises `ProtocolError`."""

    def __init__(self, packet: str, body: bytes) -> None:
        self._packet = packet
        self._body = body
        self._offset = 0
        self._end = len(body)

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return self._end - self._offset

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        start = self._offset
        if size > self._end - start:
            raise self.error("it ends too early")
        self._offset = start + size
        return self._body[start : self._offset]

    def rest(self) -> bytes:
        """Return all unread bytes."""
        return self.take(self.left)

    def byte(self) -> int:
        """Return one byte as a number."""
        return self.take(1)[0]

    def two(self) -> int:
        """Return two bytes as a number."""
        return int.from_bytes(self.take(2), "big")

    def four(self) -> int:
        """Return four bytes as a number."""
        return int.from_bytes(self.take(4), "big")

    def variable(self) -> int:
        """Return a number of one to four bytes, seven bits each."""
        value = 0
        for shift in (0, 7, 14, 21):
            digit = self.byte()
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                return value
        raise self.error("a length of more than four bytes")

    def binary(self) -> bytes:
        """Return bytes with their length in front."""
        return self.take(self.two())

    def text(self) -> str:
        """Return UTF-8 text with its length in front; refuse what MQTT forbids in it (1.5.4)."""
        try:
            value = self.binary().decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("a text that is not UTF-8") from None
        if "\0" in value:
            raise self.error("a text with U+0000")
        return value

    def pair(self) -> tuple[str, str]:
        """Return a name and its value."""
        return self.text(), self.text()

    def properties(self) -> dict[int, Any]:
        """Return MQTT 5 properties without user properties, by identifier; those of subscriptions as a list.

        All of the standard are read: an unknown one would hide where the next one starts.
        """
        size = self.variable()
        if size > self.left:
            raise self.error("properties that are longer than the packet")
        packet_end, self._end = self._end, self._offset + size
        found: dict[int, Any] = {}
        while self.left:
            identifier = self.variable()
            read = _READERS.get(identifier)
            if read is None:
                raise self.error(f"an unknown property 0x{identifier:02x}")
            value = read(self)
            if identifier == SUBSCRIPTION_IDENTIFIER:
                found.setdefault(identifier, []).append(value)
            elif identifier in found or (value == 0 and identifier in _NEVER_ZERO):
                raise self.error(f"property 0x{identifier:02x} must not repeat or be 0")
            elif identifier != USER_PROPERTY:
                found[identifier] = value
        self._end = packet_end
        return found

    def finish(self) -> None:
        """Refuse unread bytes."""
        if self.left:
            raise self.error(f"{self.left} bytes more than it has members")

    def error(self, problem: str) -> ProtocolError:
        """Return the error to raise for `problem`."""
        return ProtocolError(self._packet, problem)


def _each(read: Callable[[PacketReader], Any], *identifiers: int) -> dict[int, Callable[[PacketReader], Any]]:
    return dict.fromkeys(identifiers, read)


_READERS = (
    _each(PacketReader.byte, 0x01, 0x17, 0x19, 0x24, 0x25, 0x28, SUBSCRIPTION_IDENTIFIER_AVAILABLE, 0x2A)
    | _each(PacketReader.two, SERVER_KEEP_ALIVE, RECEIVE_MAXIMUM, 0x22, TOPIC_ALIAS)
    | _each(PacketReader.four, 0x02, SESSION_EXPIRY, 0x18, MAXIMUM_PACKET_SIZE)
    | _each(PacketReader.variable, SUBSCRIPTION_IDENTIFIER)
    | _each(PacketReader.text, 0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, REASON_STRING)
    | _each(PacketReader.binary, 0x09, 0x16)
    | _each(PacketReader.pair, USER_PROPERTY)
)


class Decoder:
    """Decodes packets from bytes in any pieces. Unusable after a `ProtocolError`.

    Keeps only bytes that arrived: a length field reserves nothing. Of a PUBLISH that claims more than
    `max_packet_bytes` (of a whole packet) only the beginning is kept; any other such packet fails at once.
    `owner` is the identifier of our subscriptions (MQTT 5 only, 0: none).
    """

    def __init__(self, version: int, max_packet_bytes: int, owner: int = 0) -> None:
        self._is_5 = version == 5
        self._owner = owner
        self._usual_properties = _owner_properties(owner)
        self._max = max_packet_bytes
        self._kept_bytes = min(_OVERSIZE_HEAD_BYTES, max_packet_bytes)
        self._rest = bytearray()
        self._needed = 0
        self._skip = 0
        # By the whole first byte: of all these packets the lower half is reserved, and 0.
        self._decode: dict[int, Callable[[bytes], Packet]] = {
            0x20: self._connack, 0x40: self._puback, 0x90: self._suback, 0xD0: self._pingresp,
            0xB0: lambda body: PubAck(_mid(PacketReader("UNSUBACK", body)), 0),
        }  # fmt: skip
        if self._is_5:
            self._decode[0xE0] = self._disconnect

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Yield the packets that are complete now; consume all of them before the next call.

        Decodes as far as it is consumed. Raises `ProtocolError`.
        """
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        offset, size = 0, len(data)
        while offset < size:
            first = data[offset]
            decode = self._decode.get(first)
            if decode is None and first >> 4 != _PUBLISH:
                problem = f"first byte 0x{first:02x}, a broker must not send it"
                raise ProtocolError(_NAMES[first >> 4], problem)
            start, end = self._frame(data, offset, size)
            kept = end if end - offset <= self._max else offset + self._kept_bytes
            if kept > size:
                self._rest += data[offset:]
                self._needed = kept - offset
                return
            if decode:
                yield decode(data[start:end])
            else:
                self._skip = max(0, end - size)
                yield self._publish(data, first, start, kept, end)
            offset = end

    def _frame(self, data: bytes, offset: int, size: int) -> tuple[int, int]:
        """Return the start and end of the body. An end past the data: so much is needed to go on."""
        length = 0
        for position in range(offset + 1, offset + 5):
            if position == size:
                return position, position + 1
            digit = data[position]
            length |= (digit & 0x7F) << 7 * (position - offset - 1)
            if digit < 0x80:
                end = position + 1 + length
                if end - offset > self._max and data[offset] >> 4 != _PUBLISH:
                    name = _NAMES[data[offset] >> 4]
                    raise ProtocolError(name, f"{end - offset} bytes, more than the limit of {self._max}")
                return position + 1, end
        raise ProtocolError(_NAMES[data[offset] >> 4], "a length of more than four bytes")

    def _publish(self, data: bytes, first: int, start: int, kept: int, end: int) -> Publish:
        """Decode a PUBLISH that ends at `end`, of which the bytes up to `kept` are in `data`."""
        # By far the most frequent packet: written out, no slices but topic and payload.
        qos = first >> 1 & 3
        position = start + 2
        topic_end = position + (data[start] << 8 | data[start + 1]) if position <= kept else kept + 1
        body = topic_end + 2 if qos else topic_end
        if body > kept or qos > 1:
            problem = f"QoS {qos}, we asked for 1" if qos > 1 else "it ends too early"
            raise ProtocolError("PUBLISH", problem)
        topic = _topic(data[position:topic_end])
        mid = data[topic_end] << 8 | data[topic_end + 1] if qos else 0
        if qos and not mid:
            raise ProtocolError("PUBLISH", "packet id 0")
        foreign = False
        if not self._is_5:
            payload = data[body:kept]
        elif data.startswith(self._usual_properties, body, kept):
            payload = data[body + len(self._usual_properties) : kept]
        else:
            reader = PacketReader("PUBLISH", data[body:kept])
            size = reader.variable()
            # They may be what makes a packet too large.
            properties = reader.take(min(size, reader.left) if kept < end else size)
            foreign = len(properties) == size and self._is_foreign(properties)
            payload = reader.rest()
        oversize = 0
        if kept < end:
            oversize = len(payload) + end - kept
            payload = payload[:OVERSIZE_BYTES]
        return Publish(topic, payload, mid, bool(first & 8), bool(first & 1), oversize, foreign)

    def _is_foreign(self, properties: bytes) -> bool:
        # Where Mosquitto 2.0 or 2.1 has it: a sender's properties cost no time then, however many (ADR 58).
        ours = self._usual_properties[1:]
        if self._owner and (properties.startswith(ours) or properties.endswith(ours)):
            return False
        found = PacketReader("PUBLISH", _sized(properties)).properties()
        if TOPIC_ALIAS in found:
            raise ProtocolError("PUBLISH", "a topic alias, which we did not allow")
        # Without any it was queued before subscriptions had an owner.
        owners = found.get(SUBSCRIPTION_IDENTIFIER, [self._owner])
        return bool(self._owner) and self._owner not in owners

    def _connack(self, body: bytes) -> ConnAck:
        reader = PacketReader("CONNACK", body)
        flags, reason = reader.byte(), reader.byte()
        if flags > 1:
            raise reader.error(f"reserved flags {flags:08b}")
        # A broker that does not know MQTT 5 refuses it in the form of MQTT 3.1.1.
        properties = reader.properties() if self._is_5 and (reader.left or not reason) else {}
        reader.finish()
        return ConnAck(flags == 1, reason, properties)

    def _puback(self, body: bytes) -> PubAck:
        if len(body) == 2 and body != b"\0\0":
            return PubAck(int.from_bytes(body, "big"), 0)  # nearly always
        reader = PacketReader("PUBACK", body)
        mid, reason = _mid(reader), 0
        if self._is_5 and reader.left:
            reason = reader.byte()
            if reader.left:
                reader.properties()
        reader.finish()
        return PubAck(mid, reason)

    def _suback(self, body: bytes) -> SubAck:
        reader = PacketReader("SUBACK", body)
        mid = _mid(reader)
        if self._is_5:
            reader.properties()
        return SubAck(mid, reader.rest())

    def _pingresp(self, body: bytes) -> PingResp:
        PacketReader("PINGRESP", body).finish()
        return PingResp()

    def _disconnect(self, body: bytes) -> Disconnect:
        reader = PacketReader("DISCONNECT", body)
        reason = reader.byte() if reader.left else 0
        properties = reader.properties() if reader.left else {}
        reader.finish()
        return Disconnect(reason, properties.get(REASON_STRING, ""))


def _mid(reader: PacketReader) -> int:
    mid = reader.two()
    if not mid:
        raise reader.error("packet id 0")
    return mid


@lru_cache(maxsize=64)  # a broker with more topics costs time, not memory
def _topic(raw: bytes) -> str:
    try:
        topic = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("PUBLISH", "a topic that is not UTF-8") from None
    if not topic or not {"\0", "+", "#"}.isdisjoint(topic):
        raise ProtocolError("PUBLISH", "a topic that is empty, or has a wildcard or U+0000 in it")
    return topic


def encode_connect(
    version: int,
    client_id: str,
    *,
    clean: bool,
    keepalive_s: int,
    username: str | None = None,
    password: bytes | None = None,
) -> bytes:
    """Encode CONNECT. A session that is not clean never expires.

    MQTT 3.1.1 has no password without a username. Raises `UnsendableError`. It states no largest packet: an
    MQTT 5 broker would drop a larger one without a word.
    """
    is_5 = version == 5
    flags = 0x02 if clean else 0x00
    payload = _text(client_id)
    if username is not None:
        flags |= 0x80
        payload += _text(username)
    if password is not None:
        flags |= 0x40
        payload += _binary(password)
    properties = b""
    if is_5:
        properties = _sized(b"" if clean else bytes((SESSION_EXPIRY,)) + _NEVER)
    head = b"\x00\x04MQTT" + bytes((version, flags)) + keepalive_s.to_bytes(2, "big")
    return b"\x10" + _sized(head + properties + payload)


def encode_subscribe(version: int, mid: int, filters: Sequence[str], qos: int, owner: int = 0) -> bytes:
    """Encode SUBSCRIBE to `filters`, all at the same QoS; `owner` is their identifier in MQTT 5 (0: none)."""
    options = bytes((qos,))
    head = mid.to_bytes(2, "big") + (_owner_properties(owner) if version == 5 else b"")
    return b"\x82" + _sized(head + b"".join(_text(each) + options for each in filters))


def encode_unsubscribe(version: int, mid: int, filters: Iterable[str]) -> bytes:
    """Encode UNSUBSCRIBE from `filters`."""
    head = mid.to_bytes(2, "big") + (b"\0" if version == 5 else b"")
    return b"\xa2" + _sized(head + b"".join(map(_text, filters)))


@lru_cache(maxsize=64)
def topic_name(topic: str) -> bytes:
    """Encode a topic for `encode_publish`. Raises `UnsendableError`."""
    if not topic or not {"+", "#"}.isdisjoint(topic):
        raise UnsendableError(topic, "a topic must not be empty nor have a wildcard in it")
    return _text(topic)


def encode_publish(version: int, topic: bytes, payload: bytes, mid: int, *, retain: bool = False) -> bytes:
    """Encode PUBLISH to a `topic_name`: at QoS 1, or at QoS 0 when `mid` is 0."""
    head = topic + (mid.to_bytes(2, "big") if mid else b"") + (b"\0" if version == 5 else b"")
    length = len(head) + len(payload)
    if length > _MAX_LENGTH:
        raise UnsendableError(f"{len(payload)} bytes", f"a packet has at most {_MAX_LENGTH}")
    first = 0x30 | (0x02 if mid else 0) | retain
    return b"".join((bytes((first,)), _variable(length), head, payload))


def encode_puback(mid: int) -> bytes:
    """Encode PUBACK in the form that both versions share."""
    return b"\x40\x02" + mid.to_bytes(2, "big")


def encode_disconnect(version: int, reason: int = 0) -> bytes:
    """Encode DISCONNECT; only MQTT 5 carries the `reason`."""
    return b"\xe0\x01" + bytes((reason,)) if version == 5 and reason else b"\xe0\x00"


def _owner_properties(owner: int) -> bytes:
    return _sized(bytes((SUBSCRIPTION_IDENTIFIER,)) + _variable(owner) if owner else b"")


def _text(value: str) -> bytes:
    if "\0" in value:
        raise UnsendableError(value, "U+0000 in a text")
    try:
        return _binary(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise UnsendableError(value, "half a surrogate pair in a text") from None


def _binary(value: bytes) -> bytes:
    if len(value) > 0xFFFF:
        raise UnsendableError(f"{len(value)} bytes", "such a member has at most 65535")
    return len(value).to_bytes(2, "big") + value


def _sized(body: bytes) -> bytes:
    return _variable(len(body)) + body


def _variable(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
