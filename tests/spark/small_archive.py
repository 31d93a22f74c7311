"""An archive of a few events, written with the core's own records, in which a test plants its faults."""

import gzip
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, Place
from eventplane.contract.publication import Head, head_name, head_text
from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.device_reports import short_digest
from eventplane.envelope import Envelope, Sender, sender_in_frame, write_event
from eventplane.ingest import IngestFrame
from eventplane.ledger import (
    CONTRACTS,
    HANDOVERS,
    LEDGER,
    TAP,
    HandoverRecord,
    LedgerRecord,
    TapRecord,
    tap_records,
    to_line,
)
from eventplane.names import PLANE
from eventplane.reasons import Outcome
from eventplane.router import Router
from glue_jobs.delivery_audit.rules import is_time
from tests import small_contract as contracts

DAY = "2026-03-01"
NOON_MS = 1_772_366_400_000
"""12:00 on `DAY`, UTC."""
HOUR_MS = 3_600_000
CLOUD_MS = 40
"""How long a router takes from acceptance to delivery, milliseconds."""
DEVICE_MS = 1_000
"""How long an event takes from being recorded to acceptance, milliseconds."""

ALARM, READING, DIARY = "org.example.alarm.v1", "org.example.reading.v1", "org.example.diary.v1"


WEBHOOK: dict[str, Any] = {"webhook": {"timeout_s": 5, "give_up_after_s": 600}}
"""An inbox whose endpoint is tried for ten minutes."""


def small_contract(
    schema_check: str = "none", inboxes: dict[str, dict[str, Any]] | None = None, **routes: dict[str, Any]
) -> Contract:
    """One device, two cloud services, two routes: alarms and readings; `routes` adds or replaces.

    Readings have a schema, which is used as `schema_check` says. `inboxes` are those of `help` and `care`.
    """
    of = inboxes or {}
    return contracts.small_contract(
        {
            "device": "device",
            "help": {"kind": "cloud_service", "inbox": of.get("help", {})},
            "care": {"kind": "cloud_service", "inbox": of.get("care", {})},
        },
        {
            "alarms": ({"exact": {"type": ALARM}}, "help.inbox"),
            "readings": ({"suffix": {"type": ".reading.v1"}}, "care.inbox"),
            **routes,
        },
        {
            ALARM: {"priority": "urgent"},
            READING: {
                "schemas": [{"$id": "https://schemas.example.org/reading", "type": "object"}],
                "schema_check": schema_check,
            },
        },
    )


class SmallArchive:
    """Rows of tap and ledger as a plane without a fault writes them, in `tap` and `ledger` until `write`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contract = small_contract()
        self.contracts: list[Contract] = [self.contract]
        self.heads: list[Head] = []
        self.tap: list[TapRecord] = []
        self.ledger: list[LedgerRecord] = []
        self.handovers: list[HandoverRecord] = []
        self.epochs: dict[str, str] = {}
        self.bad_lines: list[tuple[str, str]] = []
        self._sequences: dict[str, int] = {}
        self._messages = 0

    def use(self, contract: Contract, *before: Contract) -> None:
        """Decide by `contract` from now on; the archive has those `before` it as well."""
        self.contract = contract
        self.contracts = [*before, contract]

    def event(
        self,
        type: str = READING,
        home: str = "home-1",
        at_ms: int = NOON_MS,
        data: Any = None,
        **more: AttributeValue,
    ) -> Envelope:
        """A new event as its device sends it, accepted at `at_ms`."""
        sequence = self._sequences[home] = self._sequences.get(home, 0) + 1
        epoch = self.epoch_of(home)
        attributes: dict[str, AttributeValue] = {
            "id": f"{home}-{epoch}-{sequence}",
            "source": f"//{home}/service",
            "type": type,
            "recordedtime": datetime.fromtimestamp((at_ms - DEVICE_MS) / 1000, UTC).isoformat(),
            **more,
        }
        event = write_event(attributes, {"value": sequence} if data is None else data)
        return event.stamped(deviceepoch=epoch, devicesequence=f"{sequence:012d}")

    def epoch_of(self, home: str) -> str:
        return self.epochs.get(home, "e1" if home == "home-1" else f"e1-{home}")

    def begin_epoch(self, home: str, epoch: str) -> None:
        """The store of `home` begins a new life."""
        self.epochs[home] = epoch
        self._sequences[home] = 0

    def accept(self, event: Envelope, home: str = "home-1", at_ms: int = NOON_MS) -> list[TapRecord]:
        """The tap sees `event`."""
        return self._tapped(event.json.encode(), home, at_ms)

    def refuse(self, original: bytes, home: str = "home-1") -> list[LedgerRecord]:
        """The tap sees what is no event; the router records it and sends a dead letter to `help`."""
        (tapped,) = self._tapped(original, home, NOON_MS)
        sent = self._letter(f"dead-{tapped.message_id}", home)
        refused = replace(
            sent,
            sender=str(Sender(home)),
            source="",
            id="",
            type="",
            route=None,
            destination=None,
            outcome=Outcome.DEAD_LETTERED,
            reason=tapped.refusal,
        )
        self.ledger += [refused, sent]
        return [refused, sent]

    def refuse_event(
        self, event: Envelope, reason: str, home: str = "home-1", **more: Any
    ) -> list[LedgerRecord]:
        """The tap sees an event that the router refuses; its dead letter goes to `help`."""
        self.accept(event, home)
        refused = self.record(event, home, outcome=Outcome.DEAD_LETTERED, reason=reason, **more)
        sent = self._letter(letter_id(refused.sender, event.source, event.id), home)
        self.ledger += [refused, sent]
        return [refused, sent]

    def record(
        self, event: Envelope, home: str | None = "home-1", at_ms: int = NOON_MS, **more: Any
    ) -> LedgerRecord:
        """What the router writes of `event`; unrouted unless `more` says otherwise."""
        self._messages += 1
        row = LedgerRecord(
            decided_at_ms=at_ms + CLOUD_MS,
            entered_at_ms=at_ms,
            entered_by="device.outbox",
            contract_version=self.contract.version,
            source=event.source,
            id=event.id,
            type=event.type,
            priority="urgent" if event.type == ALARM else "normal",
            client_id=home,
            route=None,
            destination=None,
            outcome=Outcome.UNROUTED,
            reason=None,
            attempt=1,
            message_id=f"ledger-{self._messages}",
            sender=str(sender_in_frame(home, event.attributes) if home else event.sender),
            received_at_ms=at_ms + CLOUD_MS // 2,
            digest=short_digest(event.json.encode()),
        )
        return replace(row, **more)

    def route(self, event: Envelope, home: str = "home-1", at_ms: int = NOON_MS) -> list[LedgerRecord]:
        """The router delivers `event` by the present contract."""
        routes = Router(self.contract, Place.CLOUD).route(event.stamped(senderdevice=home))
        rows = [
            self.record(
                event, home, at_ms, route=each.name, destination=each.destination, outcome=Outcome.DELIVERED
            )
            for each in routes
        ] or [self.record(event, home, at_ms)]
        self.ledger += rows
        return rows

    def send(
        self, type: str = READING, home: str = "home-1", at_ms: int = NOON_MS, **more: AttributeValue
    ) -> Envelope:
        """An event's whole way, without a fault."""
        event = self.event(type, home, at_ms, **more)
        self.accept(event, home, at_ms)
        self.route(event, home, at_ms)
        return event

    def alter(self, **members: Any) -> LedgerRecord:
        """The last decision has other members."""
        self.ledger[-1] = replace(self.ledger[-1], **members)
        return self.ledger[-1]

    def move(self, event: Envelope, decided_at_ms: int) -> None:
        """The router decided on `event` at another time."""
        times = {"received_at_ms": decided_at_ms, "decided_at_ms": decided_at_ms}
        self.ledger = [replace(row, **times) if row.id == event.id else row for row in self.ledger]

    def hand_over(
        self, event: Envelope | None = None, outcome: Outcome = Outcome.DELIVERED, **more: Any
    ) -> HandoverRecord:
        """What the webhook of `help` writes of `event` (None: the last one of the ledger)."""
        last = self.ledger[-1]
        about = event or Envelope({"source": last.source, "id": last.id, "type": last.type}, "")
        row = HandoverRecord(
            decided_at_ms=NOON_MS + 900,
            entered_at_ms=NOON_MS + 100,
            channel="help.inbox",
            contract_version=self.contract.version,
            source=about.source,
            id=about.id,
            type=about.type,
            outcome=outcome,
            reason=None if outcome is Outcome.DELIVERED else "rejected",
            status=204 if outcome is Outcome.DELIVERED else 503,
            attempt=1,
            message_id="m",
            sender=last.sender,
        )
        self.handovers.append(replace(row, **more))
        return self.handovers[-1]

    def give_up(self, event: Envelope, by: str, suffix: str = "", **more: Any) -> None:
        """The reader `by` makes a dead letter of `event`, the last one that the ledger has, in `help`."""
        sender = next(row.sender for row in reversed(self.ledger) if row.id == event.id)
        id = letter_id(sender, event.source, event.id) + suffix
        letter = write_event({"id": id, "source": f"/eventplane/client/{by}", "type": DEAD_LETTER_TYPE})
        to_help = {"route": "letters", "destination": "help.inbox", "outcome": Outcome.DELIVERED}
        words = {"sender": by, "entered_by": f"{by}.outbox", "dead_letter_reason": "bug"}
        self.ledger.append(replace(self.record(letter, None), **{**to_help, **words, **more}))

    def write(self) -> None:
        """Put the objects into the folder."""
        for name, body in self.bodies().items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)

    def bodies(self) -> dict[str, bytes]:
        """The objects that the archive writer and the routers write, one an hour, and the contracts."""
        objects: dict[str, list[str]] = {}

        def add(folder: str, written_ms: int | None, line: str) -> None:
            # No writer chooses a folder by an impossible time.
            hour = _hour(written_ms if is_time(written_ms) else NOON_MS)
            objects.setdefault(f"{folder}/{hour}/rows.json.gz", []).append(line)

        for tapped in self.tap:
            add(TAP, tapped.archived_at_ms, to_line(tapped))
        for row in self.ledger:
            add(LEDGER, row.decided_at_ms, to_line(row))
        for handover in self.handovers:
            add(HANDOVERS, NOON_MS, to_line(handover))
        for folder, line in self.bad_lines:
            add(folder, NOON_MS, line)
        found = {
            name: gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
            for name, lines in objects.items()
        }
        kept = {each.version: each.canonical for each in self.contracts}
        kept |= {head_name(each): head_text(each) for each in self.heads}
        return found | {f"{CONTRACTS}/{name}.json": body for name, body in kept.items()}

    def _letter(self, id: str, home: str) -> LedgerRecord:
        """What the router writes of its own dead letter, which goes to `help`."""
        letter = write_event({"id": id, "source": "//router", "type": DEAD_LETTER_TYPE})
        to_help = {"route": "letters", "destination": "help.inbox", "outcome": Outcome.DELIVERED}
        return self.record(letter, home, sender=PLANE, **to_help)

    def _tapped(self, payload: bytes, home: str, at_ms: int) -> list[TapRecord]:
        self._messages += 1
        frame = IngestFrame(payload, f"devices/{home}/outbox", home, "principal", at_ms)
        rows = tap_records(frame, f"tap-{self._messages}", at_ms + CLOUD_MS)
        self.tap += rows
        return rows


def _hour(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("date=%Y-%m-%d/hour=%H")
