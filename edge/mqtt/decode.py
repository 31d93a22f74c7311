"""From bytes, in whatever pieces they come, to packets.

Nothing is set aside because a length field says so: what is kept is what arrived, and a packet that claims
to be larger than the limit ends the connection at its first bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from edge.mqtt.errors import ProtocolError
from edge.mqtt.packets import ConnAck, Disconnect, Packet, PingResp, PubAck, Publish, SubAck
from edge.mqtt.properties import REASON_STRING, TOPIC_ALIAS, Reader

_NAMES: Final = (
    "reserved packet", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE",
    "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip
_PUBLISH: Final = 3


class Decoder:
    """Incremental: `feed` it with what arrives. After a `ProtocolError` it is of no use any more.

    `version` is 4 (MQTT 3.1.1) or 5; `max_packet_bytes` bounds a whole packet.
    """

    def __init__(self, version: int, max_packet_bytes: int) -> None:
        self._is_5 = version == 5
        self._max = max_packet_bytes
        self._rest = bytearray()
        self._needed = 0
        # By the whole first byte: of all these packets the lower half is reserved, and 0.
        self._decode: dict[int, Callable[[bytes], Packet]] = {
            0x20: self._connack, 0x40: self._puback, 0x90: self._suback, 0xD0: self._pingresp,
        }  # fmt: skip
        if self._is_5:
            self._decode[0xE0] = self._disconnect

    def feed(self, data: bytes) -> Iterator[Packet]:
        """The packets that are complete now; take all of them. Raises `ProtocolError`."""
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
                problem = f"first byte 0x{first:02x}, it is not for a broker to send that"
                raise ProtocolError(_NAMES[first >> 4], problem)
            start, end = self._frame(data, offset, size)
            if end > size:
                self._rest += data[offset:]
                self._needed = end - offset
                return
            yield decode(data[start:end]) if decode else self._publish(data, first, start, end)
            offset = end

    def _frame(self, data: bytes, offset: int, size: int) -> tuple[int, int]:
        """Where the body starts and ends. An end beyond the data: so much is needed to know more."""
        length = 0
        for position in range(offset + 1, offset + 5):
            if position == size:
                return position, position + 1
            digit = data[position]
            length |= (digit & 0x7F) << 7 * (position - offset - 1)
            if digit < 0x80:
                end = position + 1 + length
                if end - offset > self._max:
                    name = _NAMES[data[offset] >> 4]
                    raise ProtocolError(name, f"{end - offset} bytes, more than the limit of {self._max}")
                return position + 1, end
        raise ProtocolError(_NAMES[data[offset] >> 4], "a length of more than four bytes")

    def _publish(self, data: bytes, first: int, start: int, end: int) -> Publish:
        # The packet that there are thousands of: written out, and no slices but topic and payload.
        qos = first >> 1 & 3
        position = start + 2
        topic_end = position + (data[start] << 8 | data[start + 1]) if position <= end else end + 1
        body = topic_end + 2 if qos else topic_end
        if body > end or qos > 1:
            problem = f"QoS {qos}, we asked for 1" if qos > 1 else "it ends too early"
            raise ProtocolError("PUBLISH", problem)
        topic = _topic(data[position:topic_end])
        mid = data[topic_end] << 8 | data[topic_end + 1] if qos else 0
        if qos and not mid:
            raise ProtocolError("PUBLISH", "packet id 0")
        if not self._is_5:
            payload = data[body:end]
        elif body < end and not data[body]:
            payload = data[body + 1 : end]
        else:
            reader = Reader("PUBLISH", data[body:end])
            if TOPIC_ALIAS in reader.properties():
                raise ProtocolError("PUBLISH", "a topic alias, which we did not allow")
            payload = reader.rest()
        return Publish(topic, payload, qos, mid, bool(first & 8), bool(first & 1))

    def _connack(self, body: bytes) -> ConnAck:
        reader = Reader("CONNACK", body)
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
        reader = Reader("PUBACK", body)
        mid, reason = _mid(reader), 0
        if self._is_5 and reader.left:
            reason = reader.byte()
            if reader.left:
                reader.properties()
        reader.finish()
        return PubAck(mid, reason)

    def _suback(self, body: bytes) -> SubAck:
        reader = Reader("SUBACK", body)
        mid = _mid(reader)
        if self._is_5:
            reader.properties()
        return SubAck(mid, reader.rest())

    def _pingresp(self, body: bytes) -> PingResp:
        Reader("PINGRESP", body).finish()
        return PingResp()

    def _disconnect(self, body: bytes) -> Disconnect:
        reader = Reader("DISCONNECT", body)
        reason = reader.byte() if reader.left else 0
        properties = reader.properties() if reader.left else {}
        reader.finish()
        return Disconnect(reason, properties.get(REASON_STRING, ""))


def _mid(reader: Reader) -> int:
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
