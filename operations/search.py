"""Finding one event in the archive's lines without parsing all of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.envelope import EventKey
from eventplane.ledger import LEDGER, TAP
from operations.archive import Days, Record, json_object
from operations.names import Claim, answers_in, names_in, names_in_letter

_NO_EVENT: Final = b'"event":null'
_LETTER: Final = DEAD_LETTER_TYPE.encode()


def in_tap(claim: Claim) -> Callable[[bytes], Record | None]:
    """Gives a tap line's record if it is about an event that claims this `source` and `id`: the event, the
    bytes of an item that was no event and yet has its names, or a device's dead letter of it."""
    is_near = may_name(claim[1])

    def wanted(line: bytes) -> Record | None:
        record = json_object(line) if is_near(line) else None
        return record if record is not None and claim in _claims(record) else None

    return wanted


def may_name(id: str) -> Callable[[bytes], bool]:
    """Return a quick check whether a line can be about an event with this id."""
    literal = _literal(id)
    # An event's text may write its id with escapes, which stand here as two backslashes.
    return lambda line: literal in line or b"\\\\" in line or _NO_EVENT in line or _LETTER in line


def _claims(record: Record) -> tuple[Claim | None, ...]:
    """Return the names that a record of the tap has: of its event, in a dead letter, in answers."""
    text = record.get("event")
    if text is None:
        return (names_in(base64.b64decode(record["original_base64"])),)
    return names_in(text), names_in_letter(text), *((each.source, each.id) for each in answers_in(text))


def sources_of(id: str, days: Days) -> set[str]:
    """Return each `source` of an event with this id in the archive, also in the originals of dead letters."""
    is_near = may_name(id)

    def wanted(line: bytes) -> set[str] | None:
        record = json_object(line) if is_near(line) else None
        if record is None:
            return None
        own = (str(record.get("source", "")), str(record.get("id", "")))
        claims = _claims(record) if "event" in record else (own,)
        return {each[0] for each in claims if each and each[1] == id and each[0]}

    return {source for folder in (TAP, LEDGER) for found in days.rows(folder, wanted, id) for source in found}


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a device's payload that was never an event, as tap and ledger both know it; `sender` is the
    text of who sent it."""

    sender: str
    client_id: str
    reason: str
    accepted_at_ms: int
    index: int

    def is_refused_by(self, record: Record) -> bool:
        """Return whether a ledger record, which has no names, says that the item was refused."""
        return record["id"] == "" and record["reason"] == self.reason and self._came_with(record)

    def has_letter(self, record: Record) -> bool:
        """Return whether a ledger record is about the dead letter that the router made of the item."""
        return record["id"] == f"{record['message_id']}.{self.index}" and self._came_with(record)

    def _came_with(self, record: Record) -> bool:
        return (record["client_id"], record["entered_at_ms"]) == (self.client_id, self.accepted_at_ms)


@dataclass(frozen=True)
class Sought:
    """The targets of a search of the ledger: events with the names `claim` of any of `senders`, the `letters`
    about them with the sender that each is about, and `items` that have these names.
    """

    claim: Claim
    senders: frozenset[str]
    letters: Mapping[EventKey, str] = field(default_factory=dict)
    items: frozenset[Item] = frozenset()

    def sender_by_letter(self, record: Record) -> str | None:
        """The sender of the event that a ledger record's dead letter is about; None if it has none."""
        if record["type"] != DEAD_LETTER_TYPE:
            return None
        if (sender := self._letter_ids.get(record["id"].partition(".")[0])) is not None:
            return sender
        key = (record.get("sender", ""), record["source"], record["id"])
        if (sender := self.letters.get(key)) is not None:
            return sender
        return next((item.sender for item in self.items if item.has_letter(record)), None)

    def sender_of(self, record: Record) -> str | None:
        """The sender of the event that a ledger record is about; None if it is about another."""
        if (record["source"], record["id"]) == self.claim:
            return str(record.get("sender", ""))
        return next((item.sender for item in self.items if item.is_refused_by(record)), None)

    def wanted(self, line: bytes) -> Record | None:
        """A ledger line's record if it is about what is followed."""
        if not any(literal in line for literal in self._literals):
            return None
        record = json_object(line)
        if record is None:
            return None
        senders = (self.sender_of(record), self.sender_by_letter(record))
        return record if any(each is not None for each in senders) else None

    def handed_over(self, line: bytes) -> Record | None:
        """A line of the handovers as a record, if it is about what is followed."""
        record = json_object(line) if _literal(self.claim[1]) in line else None
        return record if record is not None and (record["source"], record["id"]) == self.claim else None

    @property
    def about(self) -> Hashable:
        """The identity of the search."""
        return self.claim, self.senders, frozenset(self.letters.items()), self.items

    @cached_property
    def _letter_ids(self) -> dict[str, str]:
        return {letter_id(each, *self.claim): each for each in self.senders}

    @cached_property
    def _literals(self) -> list[bytes]:
        """One of them stands in each line that is wanted."""
        ids = {self.claim[1], *self._letter_ids, *(id for _, _, id in self.letters)}
        times = {item.accepted_at_ms for item in self.items}
        return [_literal(id) for id in ids] + [f'"entered_at_ms":{each}'.encode() for each in times]


def _literal(text: str) -> bytes:
    """How `to_line` writes a text, without the quotes around it."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
