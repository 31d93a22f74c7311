"""The archive's records: what IoT Core accepted (tap) and what a router decided (ledger).

One record is one line of JSON. Routers send the ledger's lines to a queue, together with the contracts that
they decided by; two functions write tap and ledger to the archive. The audit compares the two and trusts
neither.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eventplane.errors import EventPlaneError
from eventplane.ingest import Accepted, IngestFrame
from eventplane.limits import MAX_SQS_BYTES
from eventplane.reasons import Outcome

TAP = "tap"
LEDGER = "ledger"
CONTRACTS = "contracts"
QUARANTINE = "quarantine"
HANDOVERS = "handovers"
"""The archive's top folders. `quarantine` holds what could not be read at all, with the reason; `handovers`
what readers of inboxes did with events, as webhooks and receipts tell."""

LEDGER_MESSAGE_FORMAT: Final = 1
"""The number of the form in which the ledger's lines are queued."""

MAX_LEDGER_CHARACTERS: Final = 4 * 1024 * 1024
"""Most characters of lines in one message. Ours: a device may choose names that hardly take room when they
are compressed, and whoever reads the message must hold them all."""

SENT_BEFORE: Final = "sent_before"
"""The reason of a delivery that an earlier attempt made on another basis: it was not made a second time."""

# Level 1 takes a quarter of the time of the default 9 for texts a few percent longer.
_GZIP_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class TapRecord:
    """One item that IoT Core accepted from a device, times in Unix milliseconds.

    `client_id` is the device and `principal` the certificate that brought it. `event` is the event's exact
    JSON text; an item that is none has `event` null, its bytes in `original_base64` and the `refusal` reason.
    `message_id` and `index` name the place it came in. The event expires at `expires_at_ms`; None: never.
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
    expires_at_ms: int | None = None


class Basis(StrEnum):
    """The contract that a router decided by."""

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
    queue message, from 1. `sender` is the text of an `eventplane.envelope.Sender`, '' of what is no event;
    `received_at_ms` is when the message was first received by the queue's clock, None where nobody knows.
    `put_back_by` is the operator who put a device's event back into the channel: the tap does not see that;
    with `REDRIVE` as reason, who sent an event back into the inbox `entered_by`, past the routers. `digest`
    is the `eventplane.device_reports.short_digest` of the event as it entered, None of what is no event and
    of the plane's own dead letters. `dead_letter_reason` is why a dead letter was written, None of others.
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
    put_back_by: str | None = None
    digest: str | None = None
    dead_letter_reason: str | None = None


@dataclass(frozen=True, slots=True)
class HandoverRecord:
    """The end of an event's way from the inbox `channel` to its reader, times in Unix milliseconds.

    `entered_at_ms` is when it came into the inbox. `status` is the endpoint's last HTTP status, None where
    it gave none, and of a program. `attempt` counts deliveries of the queue message, from 1; what was no
    event has empty names.
    `route` is the one that led into the inbox, None where the message does not say: it tells subscribed
    endpoints apart, which share theirs. `sender` is the text of the event's `eventplane.envelope.Sender`.
    """

    decided_at_ms: int
    entered_at_ms: int
    channel: str
    contract_version: str
    source: str
    id: str
    type: str
    outcome: Outcome
    reason: str | None
    status: int | None
    attempt: int
    message_id: str
    route: str | None = None
    sender: str = ""


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """The `body` of a message that is no frame, or has lines that are no receipts, and why."""

    archived_at_ms: int
    message_id: str
    reason: str
    detail: str
    body: str


def to_line(record: TapRecord | LedgerRecord | HandoverRecord) -> str:
    """The record as one line of JSON, without a line end."""
    # Five times as fast as `asdict`, which copies deeply.
    members = {name: getattr(record, name) for name in record.__slots__}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


class LedgerMessageError(EventPlaneError):
    """A message of the ledger's queue cannot be read. `problem` says why."""

    problem: str
    message = "{problem}; deploy the ledger writer before the routers, and find out who else writes there"


@dataclass(frozen=True, slots=True)
class LedgerMessage:
    """The content of a message of the ledger's queue: `lines`, and compiled `contracts` by their version."""

    lines: Sequence[str]
    contracts: Mapping[str, bytes]


def ledger_texts(lines: Sequence[str], contracts: Mapping[str, bytes]) -> list[tuple[str, LedgerMessage]]:
    """Return the texts of the messages that hold `lines`, and what each holds.

    The first has the `contracts`, so that a contract is never later than a line that names it. Lines that do
    not fit one message are halved until they do.
    """
    is_last = len(lines) < 2 and not (lines and contracts)
    if is_last or sum(map(len, lines)) <= MAX_LEDGER_CHARACTERS:
        text = _ledger_text(lines, contracts)
        if is_last or len(text) <= MAX_SQS_BYTES:
            return [(text, LedgerMessage(lines, contracts))]
    half = 0 if contracts else len(lines) // 2
    return [*ledger_texts(lines[:half], contracts), *ledger_texts(lines[half:], {})]


def parse_ledger_text(text: str) -> LedgerMessage:
    """Read one message of the ledger's queue. Raises `LedgerMessageError`."""
    try:
        members = json.loads(text)
        if members["format"] != LEDGER_MESSAGE_FORMAT:
            raise LedgerMessageError(f"its format is {members['format']!r}, not {LEDGER_MESSAGE_FORMAT}")
        lines = _unpacked(members["lines"]).decode("utf-8").split("\n")
        contracts = {str(version): _unpacked(each) for version, each in members["contracts"].items()}
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OSError,
        EOFError,
        zlib.error,
        RecursionError,
    ) as error:
        raise LedgerMessageError(f"it cannot be read: {error!r}") from error
    return LedgerMessage([line for line in lines if line], contracts)


def _ledger_text(lines: Sequence[str], contracts: Mapping[str, bytes]) -> str:
    members = {
        "format": LEDGER_MESSAGE_FORMAT,
        "lines": _packed("\n".join(lines).encode("utf-8")),
        "contracts": {version: _packed(each) for version, each in contracts.items()},
    }
    return json.dumps(members, separators=(",", ":"))


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, _GZIP_LEVEL, mtime=0)).decode("ascii")


def _unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text, validate=True))


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
        expires_at_ms=item.expires_at_ms,
    )
