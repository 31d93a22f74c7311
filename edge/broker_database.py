"""Check the database of Mosquitto before it starts, and set a torn one aside.

Mosquitto does not start with one that ends early, and silently drops what zeros have replaced. The
format is that of Mosquitto 2.0 and 2.1 (its src/persist.h): a header, then chunks of known lengths, and no
checksum. So damage within a message's payload does not show, nor does an end between two chunks.

The first chunk says whether the file was written at a stop in order. Mosquitto does not read that: the check
clears it, so that it tells at the next start whether the broker was killed meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Final

from edge import durable
from eventplane_mqtt.codec import PacketReader
from eventplane_mqtt.endpoint import MqttError

KEPT_BYTES = 64 * 1024 * 1024
"""Most of the older torn files that are kept, together (`edge.durable.prune`)."""

_TORN: Final = r"\.torn-(\d+)"
_MAGIC: Final = b"\0\xb5\0mosquitto db"
_HEADER: Final = Struct(">15sII")  # magic, unused, version
_CHUNK: Final = Struct(">II")  # kind, length
_VERSION: Final = 6
"""What 2.0 and 2.1 write. They also read 5, whose heads are shorter: that of 1.6, before an upgrade."""
_OLDEST_READ, _NEWEST_THINKABLE = 5, 15
"""The broker does not start with older ones, and what a later one writes is for it to judge. In Mosquitto's
first twelve years there were six versions; a number beyond is damage."""

_CONFIGURATION, _MESSAGE = 1, 2
_STOPPED_AT: Final = _HEADER.size + _CHUNK.size + 8
"""Where the file has whether it was written at a stop: behind the last number of a message."""
_TEXTS: Final = {
    _MESSAGE: (Struct(">16xI2x3H4x"), 1),  # message: payload, client, user name, topic
    3: (Struct(">10xH4x"), 1),  # message of a client: client
    4: (Struct(">8x"), 0),  # retained message
    5: (Struct(">4xHH4x"), 2),  # subscription: client, topic
    6: (Struct(">14xH2xH4x"), 0),  # client: client, user name
}
"""What each kind of later chunks begins with: the lengths of its texts. So many of the last are not 0."""

_LOST: Final = "are lost, except those that services with receipts send again"


def set_aside_if_torn(database: Path) -> str:
    """Set a torn database aside for the broker's start. Return a report, '' for none, or raise `OSError`."""
    try:
        damage = find_damage(database)
    except FileNotFoundError:
        return ""
    if not damage:
        if _was_stopped(database):
            return ""
        killed = f"{database} was not written at a stop: the broker was killed or lost power"
        return f"{killed}. The messages that it alone had since then {_LOST}"
    number = max((number for number, _ in durable.numbered(database, _TORN)), default=0) + 1
    aside = database.replace(durable.beside(database, f".torn-{number}"))
    durable.prune([[each] for _, each in durable.numbered(database, _TORN)], KEPT_BYTES)
    kept = f"{database} is torn: {damage}. It is kept as {aside.name}, and the broker starts without it"
    return f"{kept}: the messages in it {_LOST}"


def find_damage(database: Path) -> str:
    """Return what is torn in a database, '' for nothing or a version that is not known. Raises `OSError`."""
    with database.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size < _HEADER.size:
            return f"it has {size} bytes"
        magic, _, version = _HEADER.unpack(file.read(_HEADER.size))
        if magic != _MAGIC:
            return "it does not begin as one"
        if version != _VERSION:
            return "" if _OLDEST_READ <= version <= _NEWEST_THINKABLE else "its header is cut"
        at, fits = _HEADER.size, _is_configuration
        while at < size:
            kind, length = _read(file, _CHUNK, (0, 0))
            at += _CHUNK.size
            if at + length > size or not fits(file, kind, length):
                return f"from byte {at - _CHUNK.size} of {size} on it cannot be read"
            at, fits = file.seek(at + length), _has_its_texts
        return "it has no content" if at == _HEADER.size else ""


def _was_stopped(database: Path) -> bool:
    """Return whether the broker wrote the database at a stop, and have it say no from now on."""
    with database.open("r+b") as file:
        is_known = _read(file, _HEADER, (b"", 0, 0))[2] == _VERSION
        file.seek(_STOPPED_AT)
        was_stopped = file.read(1) != b"\0"
        if is_known and was_stopped:
            file.seek(_STOPPED_AT)
            file.write(b"\0")
    return was_stopped or not is_known


def _is_configuration(file: BinaryIO, kind: int, length: int) -> bool:
    # With another size of its numbers, as zeros have, the broker does not start.
    return kind == _CONFIGURATION and length >= 16 and file.read(10)[9:] == b"\x08"


def _has_its_texts(file: BinaryIO, kind: int, length: int) -> bool:
    if kind not in _TEXTS:
        return False
    head, needed = _TEXTS[kind]
    lengths = _read(file, head, (length,) * 4)
    left = length - head.size - sum(lengths)
    if left < 0 or not all(lengths[len(lengths) - needed :]):
        return False
    # The broker does not start with texts of zeros, nor with properties that are none.
    payload = lengths[0] if kind == _MESSAGE else 0
    if b"\0" in file.read(sum(lengths) - payload):
        return False
    file.seek(payload, os.SEEK_CUR)
    try:
        return not left or PacketReader("the database", file.read(left)).properties() is not None
    except MqttError:
        return False


def _read(file: BinaryIO, struct: Struct, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    content = file.read(struct.size)
    return struct.unpack(content) if len(content) == struct.size else otherwise
