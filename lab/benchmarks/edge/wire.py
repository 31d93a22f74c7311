"""The part of MQTT 3.1.1 that a benchmark needs, apart from the forwarder's own layer.

A benchmark over the code that it measures would share its faults and its speed.
"""

import struct
from collections.abc import Iterator

CONNECT, PUBLISH, PUBACK, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 4, 8, 12, 14
CONNACK_OK = b"\x20\x02\x00\x00"
PINGRESP = b"\xd0\x00"
_RETAIN_QOS_DUP_BITS = 4
_LENGTH_BITS = 7


class Packets:
    """Cuts the bytes of a connection into packets, `(first byte, body)`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the packets that `data` completes."""
        rest = self._rest + data
        at = 0
        while (packet := _packet(rest, at)) is not None:
            first, body, at = packet
            yield first, body
        self._rest = rest[at:]


def kind(first: int) -> int:
    """Return a packet's type from its first byte."""
    return first >> _RETAIN_QOS_DUP_BITS


def connect(client_id: str) -> bytes:
    """Return CONNECT with a clean session and without keepalive."""
    body = struct.pack("!H4sBBH", 4, b"MQTT", 4, 2, 0) + _text(client_id)
    return bytes([CONNECT << 4]) + _length(len(body)) + body


def publish(topic: str, payload: bytes, mid: int = 0) -> bytes:
    """Return PUBLISH at QoS 1, or at QoS 0 without a packet id."""
    body = _text(topic) + (struct.pack("!H", mid) if mid else b"") + payload
    return bytes([PUBLISH << 4 | (2 if mid else 0)]) + _length(len(body)) + body


def read_publish(body: bytes) -> tuple[bytes, bytes]:
    """Return the packet id as two bytes, and the payload, of a PUBLISH at QoS 1."""
    at = 2 + int.from_bytes(body[:2], "big")
    return body[at : at + 2], body[at + 2 :]


def puback(mid: bytes) -> bytes:
    """Return PUBACK for a packet id in two bytes."""
    return b"\x40\x02" + mid


def suback(body: bytes) -> bytes:
    """Return SUBACK that grants QoS 1 to every filter of a SUBSCRIBE."""
    filters, at = 0, 2
    while at < len(body):
        at += 2 + int.from_bytes(body[at : at + 2], "big") + 1
        filters += 1
    return bytes([0x90, 2 + filters]) + body[:2] + b"\x01" * filters


def _packet(data: bytes, at: int) -> tuple[int, bytes, int] | None:
    length = shift = 0
    place = at + 1
    while True:
        if place >= len(data):
            return None
        byte = data[place]
        length |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            break
        shift += _LENGTH_BITS
    end = place + length
    return (data[at], data[place:end], end) if end <= len(data) else None


def _length(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= _LENGTH_BITS
    return bytes(encoded) + bytes([value])


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("!H", len(raw)) + raw
