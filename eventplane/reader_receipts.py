"""Receipts of readers in the cloud: of which events they are asked for, and what a valid one says.

A reader leaves a receipt of each event that it settled in a queue of its own. It is a line of JSON, a
`HandoverRecord`, and becomes a row of the archive's handovers.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from eventplane.errors import EventPlaneError
from eventplane.ledger import HandoverRecord
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.reasons import Outcome

if TYPE_CHECKING:
    from eventplane.contract import Channel

SETTLED_BEFORE: Final = "settled_before"
"""The reason of a receipt for a copy of what was settled before, by this reader or one that crashed."""

LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, as Unix time."""

ENDS: Final = frozenset({Outcome.DELIVERED, Outcome.DEAD_LETTERED, Outcome.EXPIRED})
"""What a reader may say that it did with an event."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "int | None": (int, type(None)),
    "str": (str,),
    "str | None": (str, type(None)),
    "Outcome": (str,),
}


class ReaderReceiptError(EventPlaneError):
    """A line in a queue for receipts is no receipt of the reader whose queue it is."""

    problem: str
    message = "not a receipt: {problem}; let the client library write them"


def is_asked(source: str, id: str, percent: int) -> bool:
    """Return whether a receipt of this event is asked for, where `percent` of all are.

    Router, reader and audit decide alike: by the CRC-32 of the two names, with a line end between them.
    """
    return zlib.crc32(f"{source}\n{id}".encode()) % 100 < percent


def recorded_percent(inbox: Channel) -> int:
    """Return of how many percent of its events the archive has the end, by a webhook or by receipts."""
    return 100 if inbox.webhook else inbox.receipts_percent if inbox.asks_for_receipts else 0


def read_receipt(line: str, inbox: str) -> HandoverRecord:
    """Return the receipt in `line`, of the reader of `inbox`. Raises `ReaderReceiptError`.

    Members that this version does not know are left out.
    """
    if len(line) > MAX_EVENT_BYTES:
        raise ReaderReceiptError(f"it has {len(line)} characters")
    try:
        stated: dict[str, Any] = json.loads(line)
        json.dumps(stated, ensure_ascii=False).encode()  # half a surrogate pair is no text
        members = {each.name: stated[each.name] for each in fields(HandoverRecord)}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ReaderReceiptError(repr(error)[:200]) from error
    for each in fields(HandoverRecord):
        value = members[each.name]
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if type(value) not in _TYPES[str(each.type)] or (is_number and not 0 <= value <= LAST_MS):
            raise ReaderReceiptError(f"its {each.name} is {value!r:.80}")
    if members["channel"] != inbox:
        raise ReaderReceiptError(f"it is about {members['channel']!r:.80}, and its sender reads {inbox}")
    if members["outcome"] not in ENDS or members["status"] is not None:
        raise ReaderReceiptError(f"its outcome is {members['outcome']!r:.80}, its status {members['status']}")
    return HandoverRecord(**members)
