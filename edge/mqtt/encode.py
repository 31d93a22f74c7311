"""The packets that we send, as bytes. `version` is 4 (MQTT 3.1.1) or 5; a packet id is 1 to 65535.

Raises `UnsendableError` for a text that MQTT has no place for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from edge.mqtt.endpoint import Will
from edge.mqtt.errors import UnsendableError
from edge.mqtt.properties import MAXIMUM_PACKET_SIZE, SESSION_EXPIRY

PINGREQ: Final = b"\xc0\x00"

_MAX_LENGTH = 268_435_455


def connect(
    version: int,
    client_id: str,
    *,
    clean: bool,
    keepalive_s: int,
    session_expiry_s: int = 0,
    max_packet_bytes: int = _MAX_LENGTH,
    will: Will | None = None,
    username: str | None = None,
    password: bytes | None = None,
) -> bytes:
    """CONNECT; `session_expiry_s` and `max_packet_bytes` exist in MQTT 5 only.

    MQTT 3.1.1 knows no password without a username.
    """
    is_5 = version == 5
    flags = 0x02 if clean else 0x00
    payload = _text(client_id)
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        payload += b"\0" if is_5 else b""
        payload += _text(will.topic) + _binary(will.payload)
    if username is not None:
        flags |= 0x80
        payload += _text(username)
    if password is not None:
        flags |= 0x40
        payload += _binary(password)
    properties = b""
    if is_5:
        expiry = _property(SESSION_EXPIRY, session_expiry_s) if session_expiry_s else b""
        properties = _sized(expiry + _property(MAXIMUM_PACKET_SIZE, max_packet_bytes))
    head = b"\x00\x04MQTT" + bytes((version, flags)) + keepalive_s.to_bytes(2, "big")
    return b"\x10" + _sized(head + properties + payload)


def subscribe(version: int, mid: int, filters: Sequence[str], qos: int) -> bytes:
    """SUBSCRIBE to `filters`, all at the same QoS."""
    options = bytes((qos,))
    head = mid.to_bytes(2, "big") + (b"\0" if version == 5 else b"")
    return b"\x82" + _sized(head + b"".join(_text(each) + options for each in filters))


@lru_cache(maxsize=64)
def topic_name(topic: str) -> bytes:
    """A topic to publish to, as `publish` wants it."""
    if not topic or not {"+", "#"}.isdisjoint(topic):
        raise UnsendableError(topic, "a topic must not be empty nor have a wildcard in it")
    return _text(topic)


def publish(
    version: int, topic: bytes, payload: bytes, mid: int, *, duplicate: bool = False, retain: bool = False
) -> bytes:
    """PUBLISH to a `topic_name`: at QoS 1, or at QoS 0 when `mid` is 0."""
    head = topic + (mid.to_bytes(2, "big") if mid else b"") + (b"\0" if version == 5 else b"")
    length = len(head) + len(payload)
    if length > _MAX_LENGTH:
        raise UnsendableError(f"{len(payload)} bytes", f"a packet has at most {_MAX_LENGTH}")
    first = 0x30 | (0x02 if mid else 0) | (0x08 if duplicate else 0) | retain
    return b"".join((bytes((first,)), _variable(length), head, payload))


def puback(mid: int) -> bytes:
    """PUBACK: we have it. The form that both versions share."""
    return b"\x40\x02" + mid.to_bytes(2, "big")


def disconnect(version: int, reason: int = 0) -> bytes:
    """DISCONNECT; `reason` is told in MQTT 5 only."""
    return b"\xe0\x01" + bytes((reason,)) if version == 5 and reason else b"\xe0\x00"


def _property(identifier: int, value: int) -> bytes:
    return bytes((identifier,)) + value.to_bytes(4, "big")


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
