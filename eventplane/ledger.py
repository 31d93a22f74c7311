"""The archive's records: what IoT Core accepted (tap) and what a router decided (ledger).

One record is one line of JSON. The tap is written by the archive writer, the ledger by the routers; the
audit compares the two and trusts neither.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from eventplane.delivery import Outcome
from eventplane.ingest import Accepted, IngestFrame

TAP = "tap"
LEDGER = "ledger"
CONTRACTS = "contracts"
QUARANTINE = "quarantine"
"""The archive's top folders; the last holds what could not be read at all, with the reason."""


@dataclass(frozen=True, slots=True)
class TapRecord:
    """One item that IoT Core accepted from a device, times in Unix milliseconds.

    `client_id` is the device and `principal` the certificate that brought it. `event` is the event's exact
    JSON text; an item that is none has `event` null, its bytes in `original_base64` and the `refusal` reason.
    `message_id` and `index` name the place it came in.
    """

    accepted_at_ms: int
    archived_at_ms: int
    client_id: str
    topic: str
    message_id: str
    index: int
    event: str | None
    original_base64: str | None
    refusal: str | None
    principal: str = ""


class Basis(StrEnum):
    """By which contract a router decided."""

    IN_FORCE = "in_force"
    BUNDLED = "bundled"
    """What it had at hand: the contract that came with its code, or the published one without what was
    subscribed. It had not yet seen the one in force, by which such an urgent event is decided again."""


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One routing decision and its outcome, times in Unix milliseconds.

    `entered_by` is the channel the event came over, `entered_at_ms` when it was accepted there; an unrouted
    event has no `route` and no `destination`. A refused item that is no event has empty `source`, `id` and
    `type` and no route; `client_id`, `reason` and `entered_at_ms` are what it shares with its tap record.
    An event that was refused by its payload has its names and no route. `attempt` counts deliveries of the
    queue message, from 1. `sender` is the text of an `eventplane.sender.Sender`, '' of what is no event;
    `received_at_ms` is when the message was first received by the queue's clock, None where nobody knows.
    """

    decided_at_ms: int
    entered_at_ms: int
    entered_by: str
    contract_version: str
    source: str
    id: str
    type: str
    priority: str
    client_id: str | None
    route: str | None
    destination: str | None
    outcome: Outcome
    reason: str | None
    attempt: int
    message_id: str
    sender: str = ""
    received_at_ms: int | None = None
    basis: Basis = Basis.IN_FORCE


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """A message of the tap queue that is no frame: its `body`, and the reason, short and at length."""

    archived_at_ms: int
    message_id: str
    reason: str
    detail: str
    body: str


def to_line(record: TapRecord | LedgerRecord) -> str:
    """The record as one line of JSON, without a line end."""
    return json.dumps(asdict(record), ensure_ascii=False, separators=(",", ":"))


def tap_records(frame: IngestFrame, message_id: str, archived_at_ms: int) -> list[TapRecord]:
    """The tap records of one frame, one an item."""
    return [_tap_record(frame, item, message_id, archived_at_ms) for item in frame.items()]


def _tap_record(frame: IngestFrame, item: Accepted, message_id: str, archived_at_ms: int) -> TapRecord:
    return TapRecord(
        accepted_at_ms=frame.accepted_at_ms,
        archived_at_ms=archived_at_ms,
        client_id=frame.client_id,
        topic=frame.topic,
        message_id=message_id,
        index=item.index,
        event=item.event.json if item.event else None,
        original_base64=None if item.event else base64.b64encode(item.original).decode("ascii"),
        refusal=item.error.reason if item.error else None,
        principal=frame.principal,
    )
