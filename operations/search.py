"""Finding one event in the archive's lines without parsing all of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from eventplane.delivery import DEAD_LETTER_TYPE, letter_id
from operations.archive import Record, json_object

Key = tuple[str, str]
"""`source` and `id` of an event."""

_NO_EVENT: Final = b'"event":null'
_LETTER: Final = DEAD_LETTER_TYPE.encode()


def names_in(text: bytes | str) -> Key | None:
    """The `source` and `id` that a text has, if it is JSON that has them; it need not be a valid event."""
    try:
        members = json.loads(text)
        source, id = members["source"], members["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return (source, id) if isinstance(source, str) and isinstance(id, str) else None


def names_in_letter(text: str) -> Key | None:
    """The `source` and `id` in the original of a dead-letter event, if it has them."""
    try:
        members = json.loads(text)
        if members["type"] != DEAD_LETTER_TYPE:
            return None
        return names_in(base64.b64decode(members["data"]["original_base64"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def in_tap(key: Key) -> Callable[[bytes], Record | None]:
    """Gives a tap line's record if it is about the event `key`: the event, the bytes of an item that was no
    event and yet has its names, or a device's dead letter of it."""
    literal = _literal(key[1])

    def wanted(line: bytes) -> Record | None:
        # An event's text may write its id with escapes, which stand here as two backslashes.
        if not (literal in line or b"\\\\" in line or _NO_EVENT in line or _LETTER in line):
            return None
        record = json_object(line)
        if record is None:
            return None
        text = record.get("event")
        if text is None:
            return record if names_in(base64.b64decode(record["original_base64"])) == key else None
        return record if key in (names_in(text), names_in_letter(text)) else None

    return wanted


@dataclass(frozen=True)
class Followed:
    """What the ledger is searched for: the event `key`, its letters, and items that were never an event."""

    key: Key
    letters: set[Key] = field(default_factory=set)
    items: set[tuple[str, str, int]] = field(default_factory=set)
    """What a nameless ledger record shares with its tap record: client id, reason, time of acceptance."""

    def is_letter(self, record: Record) -> bool:
        """Whether the record is about a dead letter of the event."""
        named = (record["source"], record["id"])
        return record["type"] == DEAD_LETTER_TYPE and (
            named in self.letters or record["id"] == letter_id(*self.key)
        )

    def wanted(self, line: bytes) -> Record | None:
        """A ledger line's record if it is about what is followed."""
        if not any(literal in line for literal in self._literals()):
            return None
        record = json_object(line)
        if record is None:
            return None
        if record["id"] == "":
            item = (record["client_id"], record["reason"], record["entered_at_ms"])
            return record if item in self.items else None
        mine = (record["source"], record["id"]) == self.key or self.is_letter(record)
        return record if mine else None

    def _literals(self) -> list[bytes]:
        ids = {self.key[1], letter_id(*self.key), *(id for _, id in self.letters)}
        return [_literal(id) for id in ids] + [f'"entered_at_ms":{at}'.encode() for _, _, at in self.items]


def _literal(text: str) -> bytes:
    """How `to_line` writes a text, without the quotes around it."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
