"""The archive's layout: every folder, what a row in it is, and the columns of that row, in one place.

Writers, jobs, the Glue catalog and docs/reference/archive.md all follow it. A folder's version grows when its
columns do; columns are only ever added, at the end, and are null in what was written before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, get_args, get_type_hints

from eventplane.device_record import FLEET, FleetRecord
from eventplane.envelope import parse_event
from eventplane.ledger import (
    CONTRACTS,
    HANDOVERS,
    LEDGER,
    QUARANTINE,
    TAP,
    HandoverRecord,
    LedgerRecord,
    QuarantineRecord,
    TapRecord,
)
from eventplane.written import WRITTEN

COMPACTED: Final = "compacted"
"""The folder of the compacted hours: `compacted/<folder>/date=/hour=/run=/*.parquet`."""

PUBLISHED: Final = "published"
"""The folder that says which files of a compacted hour count: `published/<folder>/date=/hour=/files`."""

COMPACTIONS: Final = "compactions"
"""The folder of the compaction's receipts: `compactions/<folder>/date=/hour=/receipt.json`."""

AUDIT: Final = "audit"
"""The folder that the delivery audit writes."""

REPORTS: Final = "reports"
"""The folder of the audit with one report for each window and revision."""

VERDICTS: Final = "verdicts"
"""The folder of the audit with the last verdict on each window."""

ERASURES: Final = "erasures"
"""The folder of the erasures' plans and receipts."""

LEAST_RAW_DAYS: Final = 16
"""Days for which raw objects stay at least: traces and replays read raw rows, and a queue keeps a message for
14 days."""

HOURLY: Final = ("date", "hour")
"""Partition folders `date=YYYY-MM-DD/hour=HH`, UTC: when a row was written, not when it was accepted."""


_MEANINGS: Final = {
    "accepted_at_ms": "when IoT Core accepted it, Unix milliseconds",
    "archived_at_ms": "when the archive writer wrote it, Unix milliseconds",
    "client_id": "the device's MQTT client id",
    "topic": "the MQTT topic it came over",
    "principal": "the certificate that brought it",
    "thing": "the device's name, which is its MQTT client id",
    "state": "the state of the device: `provisioned` or `quarantined`",
    "since_ms": "when the device came into that state, Unix milliseconds",
    "sender": "the sender: `device/service`, or a cloud service; empty or null for a malformed item",
    "received_at_ms": "when its message was first received, by the queue's clock, Unix milliseconds",
    "basis": "the contract of the decision: `in_force`, or `bundled` where the router had not seen that one",
    "put_back_by": "`operator` where an operator put the event back into the channel; null otherwise",
    "message_id": "the queue message that held it",
    "index": "its place in that message, from 0",
    "event": "the event's exact JSON text; null for a malformed item",
    "expires_at_ms": "when the event expires by the clock of its acceptance, Unix milliseconds; null: never",
    "original_base64": "the bytes of a malformed item",
    "refusal": "why it is malformed",
    "dead_letter_reason": "why a dead letter was written, as `deadletterreason` has it; null for others",
    "decided_at_ms": "when it was decided, Unix milliseconds",
    "entered_at_ms": "when it entered the channel, Unix milliseconds",
    "entered_by": "the channel the event came over",
    "contract_version": "the contract in force",
    "source": "the event's source; empty or null for a malformed item",
    "id": "the event's id; empty or null for a malformed item",
    "type": "the event's type; empty or null for a malformed item",
    "priority": "the event's priority",
    "route": "the route taken; null for an unrouted or refused event",
    "destination": "the channel it leads to",
    "outcome": "the end of the event's way on that route",
    "reason": "the reason of that outcome",
    "attempt": "deliveries of the queue message, from 1",
    "channel": "the inbox it was taken from",
    "status": "the endpoint's last HTTP status",
    "detail": "the reason in detail",
    "body": "the message as it was",
    "kind": "what was found",
    "hop": "the hop: `device_inbox`, `device_cloud`, `iot_rule`, `router`, `inbox_consumer`, `archive`",
    "device": "the device's client id",
    "epoch": "the device's `deviceepoch`",
    "sequence": "the device's `devicesequence`; null where there is none",
    "at_ms": "when it happened, Unix milliseconds",
    "line": "the line's number in the object, from 1",
    "text": "the row's text, cut",
    "archive": "the folder of the archive that holds it",
    "expected": "deliveries that the contract asks for, whatever their end",
    "delivered": "of these, delivered",
    "dead_lettered": "of these, ended as a dead letter that was delivered",
    "expired": "of these, ended because they were too old",
    "dropped": "of these, dropped by policy",
    "lost": "missing without a known reason after the time that they had",
    "acknowledged_lost": "of these, lost after IoT Core had acknowledged them, as the device reports",
    "pending": "missing, and too recent to be judged",
    "unrecorded": "without a record, and the archive has a hole where it would be",
    "not_understood": "recorded only by a newer version, or invalidly: neither proven nor lost",
    "unrouted": "events that no route takes, as recorded",
    "no_interest": "not forwarded, because the reader announced that it does not handle them",
    "misrouted": "recorded on a route that no contract in force gives",
    "unexplained": "recorded as coming from a device, unknown to the tap",
    "internal": "entered in the cloud; the ledger is the only evidence",
    "duplicated": "copies beyond the first",
    "replayed": "delivered by sending it again",
    "events": "distinct events received",
    "tap_copies": "copies beyond the first that the device sent",
    "first": "the least number seen",
    "last": "the greatest number seen",
    "gaps": "numbers between them that were not seen",
    "stated": "events in the manifests of the day for the uplink",
    "missing": "in a manifest and not seen",
    "explained": "of the missing, discarded by the device",
    "not_stored": "events without a number that the device refused or discarded",
    "manifest": "events whose number a manifest has",
    "numbering": "events with a number that no manifest has",
    "tap": "events without a number",
    "nothing": "numbers that were not seen and that no manifest has",
    "awaiting": "of `numbering`, events before the next manifest is due",
    "best_effort": "events at best effort without a number, whose delivery is not promised",
    "coverage": "how far the device's manifests reach: `attested`, `partly`, `silent`, `unregistered`",
    "home_stated": "events for inboxes of services on the device, in the manifests of the day",
    "home_receipt": "of these, confirmed by the inbox's reader",
    "home_broker": "of these, taken by the home's broker; whether a reader had them is not known",
    "home_explained": "of these, given up by the device as it reports",
    "home_lost": "of these, still pending by a later manifest: no reader took them",
    "home_pending": "of these, too recent to be judged",
    "home_unattested": "of these, of which no later manifest says how they ended",
    "home_unstated": "of these, of a forwarder that never says how they end",
    "verdict": "what became of it at the hop, in the audit's words",
    "fate": "what became of it at the inbox, in the words of the account",
    "said_at_ms": "when it was said by the event's `time`, Unix milliseconds; null of events from the cloud",
    "stored_at_ms": "when the device stored it, by its clock, Unix milliseconds",
    "routed_at_ms": "when it was decided, and put into the inbox if so, Unix milliseconds",
    "rung_at_ms": "when it had ended at the home's inbox, at the latest, Unix milliseconds",
    "taken_at_ms": "when the inbox's reader ended it, Unix milliseconds",
    "rests_on": "the folders or reports that have its records",
    "skew_ms": "how far the device's clock is ahead, milliseconds; negative: behind; null: unknown",
    "archive_file": "the object that holds it, from the archive's root",
    "subject": "the event's subject",
    "datacontenttype": "the media type of the event's data",
    "dataschema": "the URI of the schema of the event's data",
    "partitionkey": "the key within which the order of events matters",
    "recordedtime": "when the event was recorded, RFC 3339",
    "expirytime": "when the event expires, RFC 3339",
    "replayedtime": "when the event was sent again, RFC 3339",
    "deadletterreason": "the reason of a dead letter; null in another event",
    "deliveryguarantee": "`best_effort` where the event asks for it",
    "replyto": "the participant that waits for a reply",
    "deviceepoch": "the device's epoch, within which it numbers events",
    "devicesequence": "the device's number of the event, decimal digits",
    "routerhops": "how often a router passed it on",
    "senderdevice": "the device that the event names as its sender",
    "senderservice": "the service that the event names as its sender",
    "severitynumber": "the event's severity, 1 to 24",
    "severitytext": "the event's severity, in words",
    "integer_attributes": "which of these attributes are Integers in the event, separated by spaces",
    "boolean_attributes": "which of these attributes are Booleans in the event, separated by spaces",
    "digest": "the digest of the event as it entered; in the tap null but for a redacted event",
    "event_digest": "the digest of `event`",
    "data_digest": "equal where the event's data is equal",
    "event_bytes": "bytes of `event`",
    "report": "`event` where it is a device's report that the audit reads: started, discarded, manifest",
    "line_text": "the line, where the columns do not hold all of it",
}
"""What a column means, by its name, which means the same in every table."""


class Form(StrEnum):
    """The form of a folder's rows."""

    LINES = "gzipped lines of JSON, `*.json.gz`"
    DOCUMENT = "JSON documents"
    NAMES = "objects without content, whose keys say all"
    PARQUET = "Parquet"


class ColumnType(StrEnum):
    """A column's type as Hive, Athena and Spark's DDL call it."""

    TEXT = "string"
    WHOLE_NUMBER = "bigint"
    TRUTH = "boolean"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a row; any may be null where the record says so."""

    name: str
    type: ColumnType = ColumnType.TEXT

    @property
    def meaning(self) -> str:
        """The content in words."""
        return _MEANINGS[self.name]


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of a folder's hours to Parquet.

    `identity` names a row: another one with the same is a copy. `order` is the sorting. `attributes` are
    those of the record's `event` that have a column of their own, as canonical text; `derived` are further
    columns made of the event.
    """

    identity: tuple[str, ...]
    order: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    derived: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Folder:
    """One table of the archive: `name` is its folder, `row` what one row is, `is_personal` whether the rows
    are about persons and so are looked through by an erasure."""

    name: str
    version: int
    row: str
    written_by: str
    form: Form = Form.LINES
    columns: tuple[Column, ...] = ()
    partitions: tuple[str, ...] = HOURLY
    compaction: Compaction | None = None
    is_personal: bool = True

    @property
    def compacted_columns(self) -> tuple[Column, ...]:
        """The columns of the compacted table: the record's, and what the compaction adds."""
        if self.compaction is None:
            return ()
        attributes = map(Column, self.compaction.attributes)
        return (*self.columns, *attributes, *_ADDED, *self.compaction.derived)


_ADDED: Final = (Column("archive_file"), Column("line_text"))


def _columns(record: type[Any]) -> tuple[Column, ...]:
    types = get_type_hints(record)
    return tuple(Column(each.name, _type(types[each.name])) for each in fields(record))


def _type(hint: Any) -> ColumnType:
    (kind,) = {*(get_args(hint) or (hint,))} - {type(None)}
    return ColumnType.WHOLE_NUMBER if issubclass(kind, int) else ColumnType.TEXT


def _names(record: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(record))


def _texts(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name) for name in names)


def _counts(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, ColumnType.WHOLE_NUMBER) for name in names)


ERASED: Final = "+erased-"
"""The beginning of what stands for an erased name in the archive. No thing can have such a name (AWS IoT
allows letters, digits, ":", "_" and "-"), so it never names a device."""

TAP_ATTRIBUTES: Final = (
    *("source", "id", "type", "subject", "datacontenttype", "dataschema", "partitionkey"),
    *("recordedtime", "expirytime", "replayedtime", "deadletterreason", "deliveryguarantee", "replyto"),
    *("deviceepoch", "devicesequence", "routerhops", "senderdevice", "senderservice"),
    *("severitynumber", "severitytext"),
)
"""Attributes of events that have a column in the compacted tap: those that the audit reads, and those that
filters commonly look at. What is not among them is read out of the event."""

DIGEST: Final = Column("digest")
"""A tap row has it where an erasure redacted the event, of what the event was. The archive writer leaves it
out, since it can be made of the event."""

TAP_FOLDER: Final = Folder(
    name=TAP,
    version=5,
    row="one item that IoT Core accepted from a device: `TapRecord`",
    written_by="archive writer",
    # A column keeps its place.
    columns=(*_columns(TapRecord)[:-1], DIGEST, *_columns(TapRecord)[-1:]),
    compaction=Compaction(
        identity=("message_id", "index"),
        order=("source", "accepted_at_ms", "message_id", "index"),
        attributes=TAP_ATTRIBUTES,
        derived=(
            *_texts("integer_attributes", "boolean_attributes"),
            *_counts("data_digest", "event_bytes"),
            *_texts("report", "event_digest"),
        ),
    ),
)

LEDGER_FOLDER: Final = Folder(
    name=LEDGER,
    version=5,
    row="one routing decision and its outcome: `LedgerRecord`",
    written_by="ledger writer; routers, if its queue refuses",
    columns=_columns(LedgerRecord),
    compaction=Compaction(identity=_names(LedgerRecord), order=("source", "id", "decided_at_ms")),
)

HANDOVERS_FOLDER: Final = Folder(
    name=HANDOVERS,
    version=3,
    row="how a webhook, or a reader that leaves receipts, ended an event: `HandoverRecord`",
    written_by="the functions of webhooks and of subscribers; the ledger writer, of receipts",
    columns=_columns(HandoverRecord),
    compaction=Compaction(identity=_names(HandoverRecord), order=("source", "id", "decided_at_ms")),
)

QUARANTINE_FOLDER: Final = Folder(
    name=QUARANTINE,
    version=1,
    row="a message that could not be read, of the tap queue or with receipts: `QuarantineRecord`",
    written_by="archive writer; ledger writer, of receipts",
    columns=_columns(QuarantineRecord),
)

FLEET_FOLDER: Final = Folder(
    name=FLEET,
    version=1,
    row="one device in service when the fleet's registry was written down: `FleetRecord`",
    written_by="fleet snapshot",
    columns=_columns(FleetRecord),
)

CONTRACTS_FOLDER: Final = Folder(
    name=CONTRACTS,
    version=1,
    row="a compiled contract, `<version>.json`",
    written_by="ledger writer, before the first record by it; routers, if its queue refuses",
    form=Form.DOCUMENT,
    partitions=(),
    is_personal=False,
)

WRITTEN_FOLDER: Final = Folder(
    name=WRITTEN,
    version=1,
    row="an object that was written, in its writer's list: `written/<key of the object>.<entry>`, `Entry`",
    written_by="each writer of tap, ledger and handovers, after the object",
    form=Form.NAMES,
    partitions=(),
    is_personal=False,
)

FINDINGS_FOLDER: Final = Folder(
    name=f"{AUDIT}/findings",
    version=1,
    row="one finding of the delivery audit, as evidence",
    written_by="delivery audit",
    form=Form.PARQUET,
    columns=(
        *_texts("kind", "hop", "device", "epoch"),
        Column("sequence", ColumnType.WHOLE_NUMBER),
        *_texts("source", "id", "type", "route", "destination", "contract_version", "archive_file"),
        Column("at_ms", ColumnType.WHOLE_NUMBER),
        Column("detail"),
    ),
    partitions=("date",),
)

AUDIT_ROUTES_FOLDER: Final = Folder(
    name=f"{AUDIT}/routes",
    version=3,
    row="one route on one day, its verdicts counted in events",
    written_by="delivery audit",
    form=Form.PARQUET,
    columns=(
        *_texts("route", "destination"),
        *_counts("expected", "delivered", "dead_lettered", "expired", "dropped", "lost", "pending"),
        *_counts("unrouted", "misrouted", "unexplained", "internal"),
        *_counts("duplicated", "replayed", "events", "tap_copies", "no_interest"),
        *_counts("unrecorded", "not_understood"),
    ),
    partitions=("date",),
    is_personal=False,
)

AUDIT_DEVICES_FOLDER: Final = Folder(
    name=f"{AUDIT}/devices",
    version=4,
    row="one epoch of a device on one day: what was received, and what its manifests state",
    written_by="delivery audit",
    form=Form.PARQUET,
    columns=(
        *_texts("client_id", "epoch"),
        *_counts("first", "last", "events", "gaps", "tap_copies"),
        *_counts("stated", "missing", "explained", "lost", "pending", "not_stored", "skew_ms"),
        *_counts("acknowledged_lost"),
        *_counts("unrecorded", "manifest", "numbering", "tap", "nothing", "awaiting", "best_effort"),
        Column("coverage"),
        *_counts("home_stated", "home_receipt", "home_broker", "home_explained", "home_lost"),
        *_counts("home_pending", "home_unattested", "home_unstated"),
    ),
    partitions=("date",),
)

AUDIT_CONSUMERS_FOLDER: Final = Folder(
    name=f"{AUDIT}/consumers",
    version=4,
    row="one webhook on one day: the ends of the events in its inbox",
    written_by="delivery audit",
    form=Form.PARQUET,
    columns=(
        Column("channel"),
        *_counts("expected", "delivered", "dead_lettered", "pending", "lost", "duplicated", "expired"),
        *_counts("dropped", "unrecorded", "not_understood"),
    ),
    partitions=("date",),
    is_personal=False,
)

AUDIT_DELIVERIES_FOLDER: Final = Folder(
    name=f"{AUDIT}/deliveries",
    version=1,
    row="one event on one route, in the cloud or (urgent ones) in the home, where the audit lists them",
    written_by="delivery audit",
    form=Form.PARQUET,
    columns=(
        *_texts("sender", "source", "id", "type", "device", "epoch"),
        Column("sequence", ColumnType.WHOLE_NUMBER),
        *_texts("route", "destination", "contract_version", "hop", "verdict", "fate"),
        *_counts("said_at_ms", "stored_at_ms", "accepted_at_ms"),
        *_counts("routed_at_ms", "rung_at_ms", "taken_at_ms"),
        *_texts("rests_on", "archive_file"),
    ),
    partitions=("date",),
)

AUDIT_QUARANTINE_FOLDER: Final = Folder(
    name=f"{AUDIT}/quarantine",
    version=2,
    row="one row of the archive that the audit could not read",
    written_by="delivery audit",
    form=Form.PARQUET,
    columns=(
        Column("archive_file"),
        Column("line", ColumnType.WHOLE_NUMBER),
        *_texts("reason", "text", "archive"),
    ),
    partitions=("date",),
)

ERASURES_FOLDER: Final = Folder(
    name=ERASURES,
    version=1,
    row="what an erasure removed; it holds counts and names of objects, nothing of the person",
    written_by="erasure",
    form=Form.DOCUMENT,
    partitions=(),
    is_personal=False,
)

FOLDERS: Final = (
    TAP_FOLDER,
    LEDGER_FOLDER,
    HANDOVERS_FOLDER,
    QUARANTINE_FOLDER,
    FLEET_FOLDER,
    CONTRACTS_FOLDER,
    WRITTEN_FOLDER,
    FINDINGS_FOLDER,
    AUDIT_ROUTES_FOLDER,
    AUDIT_DEVICES_FOLDER,
    AUDIT_CONSUMERS_FOLDER,
    AUDIT_DELIVERIES_FOLDER,
    AUDIT_QUARANTINE_FOLDER,
    ERASURES_FOLDER,
)
"""All that people and jobs read. What the compaction adds lies under the same folder's name."""


def compacted_folders() -> Iterator[tuple[Folder, Compaction]]:
    """The folders that have a compacted table, each with the way to it."""
    return ((each, each.compaction) for each in FOLDERS if each.compaction is not None)


def report_name(window: str, revision: int) -> str:
    """Return the name of a report beneath the audit's folder."""
    return f"{REPORTS}/{window}/{revision}.json"


def inventory_name(window: str, digest: str) -> str:
    """Return the name of an inventory beneath the audit's folder."""
    return f"inventories/{window}/{digest}.json.gz"


def verdict_name(window: str) -> str:
    """Return the name of the last verdict on `window`, a day or `all`, beneath the audit's folder."""
    return f"{VERDICTS}/{window}.json"


def checks_name(window: str) -> str:
    """Return the name of the rules of the last verdict on `window`, beneath the audit's folder."""
    return f"checks/{window}.json"


def last_report(read: Callable[[str], bytes | None], window: str) -> Mapping[str, Any] | None:
    """Return the last report on `window`; None when nobody audited it.

    `read` returns what lies beneath the audit's folder, None for a name that does not exist.
    """
    verdict = read(verdict_name(window))
    if verdict is None:
        return None
    body = read(parse_event(verdict).data()["report"])
    # An erasure deletes reports that name the person.
    return None if body is None else json.loads(body)
