"""The properties of MQTT 5 packets (chapter 2.2.2): identifier to value.

All of the standard are read, because one that is not known hides where the next one starts; only those with
a name here mean something to us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge.mqtt.errors import ProtocolError

SESSION_EXPIRY = 0x11
SERVER_KEEP_ALIVE = 0x13
REASON_STRING = 0x1F
RECEIVE_MAXIMUM = 0x21
TOPIC_ALIAS = 0x23
USER_PROPERTY = 0x26
MAXIMUM_PACKET_SIZE = 0x27

_SUBSCRIPTION_IDENTIFIER = 0x0B
_REPEATABLE = {USER_PROPERTY, _SUBSCRIPTION_IDENTIFIER}
_NEVER_ZERO = {RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE}


class Reader:
    """Reads values from the body of one packet, never beyond its end. Raises `ProtocolError`."""

    def __init__(self, packet: str, body: bytes) -> None:
        self._packet = packet
        self._body = body
        self._offset = 0
        self._end = len(body)

    @property
    def left(self) -> int:
        """How many bytes are unread."""
        return self._end - self._offset

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self._offset
        if size > self._end - start:
            raise self.error("it ends too early")
        self._offset = start + size
        return self._body[start : self._offset]

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self.left)

    def byte(self) -> int:
        """One byte as a number."""
        return self.take(1)[0]

    def two(self) -> int:
        """Two bytes as a number."""
        return int.from_bytes(self.take(2), "big")

    def four(self) -> int:
        """Four bytes as a number."""
        return int.from_bytes(self.take(4), "big")

    def variable(self) -> int:
        """A number of one to four bytes, seven bits each."""
        value = 0
        for shift in (0, 7, 14, 21):
            digit = self.byte()
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                return value
        raise self.error("a length of more than four bytes")

    def binary(self) -> bytes:
        """Bytes with their length in front."""
        return self.take(self.two())

    def text(self) -> str:
        """UTF-8 with its length in front; what MQTT forbids in it (1.5.4) is refused."""
        try:
            value = self.binary().decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("a text that is not UTF-8") from None
        if "\0" in value:
            raise self.error("a text with U+0000")
        return value

    def pair(self) -> tuple[str, str]:
        """A name and its value."""
        return self.text(), self.text()

    def properties(self) -> dict[int, Any]:
        """Identifier to value. Those that may repeat are skipped, for nobody asks for them."""
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
            if identifier in found or (value == 0 and identifier in _NEVER_ZERO):
                raise self.error(f"property 0x{identifier:02x} must not repeat or be 0")
            if identifier not in _REPEATABLE:
                found[identifier] = value
        self._end = packet_end
        return found

    def finish(self) -> None:
        """Nothing may be left."""
        if self.left:
            raise self.error(f"{self.left} bytes more than it has members")

    def error(self, problem: str) -> ProtocolError:
        """What to raise for `problem`."""
        return ProtocolError(self._packet, problem)


def _each(read: Callable[[Reader], Any], *identifiers: int) -> dict[int, Callable[[Reader], Any]]:
    return dict.fromkeys(identifiers, read)


_READERS = (
    _each(Reader.byte, 0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A)
    | _each(Reader.two, SERVER_KEEP_ALIVE, RECEIVE_MAXIMUM, 0x22, TOPIC_ALIAS)
    | _each(Reader.four, 0x02, SESSION_EXPIRY, 0x18, MAXIMUM_PACKET_SIZE)
    | _each(Reader.variable, _SUBSCRIPTION_IDENTIFIER)
    | _each(Reader.text, 0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, REASON_STRING)
    | _each(Reader.binary, 0x09, 0x16)
    | _each(Reader.pair, USER_PROPERTY)
)
