"""The dead letters of the archive: what devices reported, the cloud's routers refused, and readers gave up.

The archive keeps what devices sent, so it has the original of everything refused that came from a device. Of
what a reader in the cloud gave up it has who did so and why.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from eventplane.account import by_letter
from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.envelope import THE_PLANE, Envelope, EventKey, parse_sender, sender_in_frame
from eventplane.errors import EnvelopeError
from eventplane.ledger import LEDGER, TAP
from eventplane.reasons import Outcome
from operations.archive import Days, Record, json_object
from operations.letters import Letter, LetterKind, letter_of
from operations.names import event_in_tap, sender_in_tap

ARCHIVE: Final = "archive"
"""What a letter's `place` is called."""

_DEAD_LETTERED: Final = f'"outcome":"{Outcome.DEAD_LETTERED}"'.encode()
_OF_LETTER: Final = f'"type":"{DEAD_LETTER_TYPE}"'.encode()
_IS_EVENT: Final = b'"refusal":null'


def archived_letters(days: Days, uplink: str, downlink: str) -> Iterator[Letter]:
    """Yield each dead letter of `days` once.

    `uplink` and `downlink` are the addresses of the device's outbox and inbox.
    """
    refused = {
        (record.get("sender", ""), record["source"], record["id"]): record
        for record in days.records(LEDGER, lambda line: json_object(line) if _DEAD_LETTERED in line else None)
        if record["id"]
    }
    found: set[str] = set()

    def wanted(line: bytes) -> Record | None:
        if _IS_EVENT in line and not refused and DEAD_LETTER_TYPE.encode() not in line:
            return None
        record = json_object(line)
        if record is None:
            return None
        if record["event"] is None:
            base64.b64decode(record["original_base64"])  # damaged here, and not for whoever reads it
            return record
        event = json_object(record["event"].encode())
        if event is None:
            return None
        key = (str(sender_in_frame(record["client_id"], event)), event.get("source"), event.get("id"))
        return record if key in refused or event.get("type") == DEAD_LETTER_TYPE else None

    for record in days.records(TAP, wanted):
        letter = _from_tap(record, refused, uplink)
        if letter is not None and letter.id not in found:
            found.add(letter.id)
            yield letter
    for key, record in refused.items():
        if letter_id(*key) not in found:
            yield _letter(record, letter_id(*key), None, None)
    yield from _given_up(days, found, downlink)


def _given_up(days: Days, found: set[str], downlink: str) -> Iterator[Letter]:
    for record in days.records(LEDGER, lambda line: json_object(line) if _OF_LETTER in line else None):
        account = by_letter(record, downlink)
        if account and record["id"] not in found:
            found.add(record["id"])
            told = {**record, "reason": account.why, "entered_by": account.inbox}
            letter = _letter(told, record["id"], None, None)
            yield replace(letter, sender=None, written_by=letter.sender)


def _from_tap(tap: Record, refused: dict[EventKey, Record], uplink: str) -> Letter | None:
    if tap["event"] is None:
        decision = {
            "decided_at_ms": tap["accepted_at_ms"],
            "reason": tap["refusal"],
            "attempt": 1,
            "entered_by": uplink,
            "contract_version": None,
            "sender": str(sender_in_tap(tap)),
        }
        original = base64.b64decode(tap["original_base64"])
        return _letter(decision, f"{tap['message_id']}.{tap['index']}", None, original)
    try:
        event = event_in_tap(tap)
    except EnvelopeError:
        return None
    if event.key in refused:
        return _letter(refused[event.key], letter_id(*event.key), event, tap["event"].encode())
    return letter_of(event, place=ARCHIVE, id=event.id, since_ms=tap["accepted_at_ms"], body=event.json)


def _letter(decision: Record, id: str, event: Envelope | None, original: bytes | None) -> Letter:
    return Letter(
        place=ARCHIVE,
        id=id,
        since_ms=decision["decided_at_ms"],
        attempt=decision["attempt"],
        kind=LetterKind.DEAD_LETTER,
        reason=decision["reason"],
        detail="the letter in the inbox has it; the archive keeps the reason only",
        channel=decision["entered_by"],
        route=None,
        contract_version=decision["contract_version"],
        sender=parse_sender(decision["sender"]) if decision.get("sender") else None,
        # The ledger is the plane's own.
        written_by=THE_PLANE,
        events=(event,) if event else (),
        original=original or b"",
        original_bytes=None if original is None else len(original),
        body="",
    )
