"""What a broker sends, as bytes; written without the code under test."""


def packet(first: int, body: bytes) -> bytes:
    """A packet with a body of less than 2 MiB."""
    length = len(body)
    digits = [length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14]
    while len(digits) > 1 and not digits[-1]:
        digits.pop()
        digits[-1] &= 0x7F
    return bytes((first, *digits)) + body


def connack(version: int = 4, reason: int = 0, properties: bytes = b"", *, present: bool = False) -> bytes:
    """`properties` without their length, at most 127 bytes."""
    tail = bytes((len(properties),)) + properties if version == 5 else b""
    return packet(0x20, bytes((present, reason)) + tail)


def suback(mid: int, reasons: bytes, version: int = 4) -> bytes:
    return packet(0x90, mid.to_bytes(2, "big") + (b"\0" if version == 5 else b"") + reasons)


def publish(
    topic: bytes,
    payload: bytes,
    mid: int = 0,
    version: int = 4,
    *,
    duplicate: bool = False,
    properties: bytes = b"",
) -> bytes:
    """At QoS 1, or at QoS 0 when `mid` is 0."""
    first = 0x30 | (2 if mid else 0) | (8 if duplicate else 0)
    head = len(topic).to_bytes(2, "big") + topic + (mid.to_bytes(2, "big") if mid else b"")
    tail = bytes((len(properties),)) + properties if version == 5 else b""
    return packet(first, head + tail + payload)


def puback(mid: int, reason: int | None = None, properties: bytes | None = None) -> bytes:
    """With `reason` and `properties` in the longer forms of MQTT 5."""
    body = mid.to_bytes(2, "big")
    if reason is not None:
        body += bytes((reason,))
    if properties is not None:
        body += bytes((len(properties),)) + properties
    return packet(0x40, body)


def disconnect(reason: int, text: bytes = b"") -> bytes:
    """MQTT 5's, with a reason string."""
    property_ = b"\x1f" + len(text).to_bytes(2, "big") + text if text else b""
    return packet(0xE0, bytes((reason, len(property_))) + property_)


PINGRESP = b"\xd0\x00"
