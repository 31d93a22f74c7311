"""The rows of `rows` and `expect`, made in Python of `common.lines`.

Each function is the twin of one that makes Spark's columns, and gives the same rows; a test holds them
against each other on damaged archives. What they decide in common is decided by the core.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventplane.archive_layout import ERASED
from eventplane.contract import Contract, DeliveryGuarantee
from eventplane.device_reports import forwarder_source, key_digest, short_digest
from eventplane.guarantee import DELIVERY_GUARANTEE
from eventplane.hops import ROUTER_HOPS
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.names import (
    CANARY_CLIENTS,
    EPOCH,
    FOLLOWED_CONTRACT,
    PLANE_CLIENT,
    SENDER_DEVICE,
    SENDER_SERVICE,
    SEQUENCE,
)
from eventplane.values import is_timestamp, timestamp_ms, whole_number
from glue_jobs.common.archive import REPORTS
from glue_jobs.common.lines import JsonRow, members_of, text_of, to_json
from glue_jobs.delivery_audit.claims import HourRow
from glue_jobs.delivery_audit.contracts import best_effort_names
from glue_jobs.delivery_audit.event import IMPOSSIBLE_TIME, MAX_TEXT, MISSING_MEMBER, UNREADABLE
from glue_jobs.delivery_audit.event_group import (
    HOUR_MS,
    BadRow,
    HandoverRow,
    LedgerRow,
    RefusedItem,
    TapRow,
)
from glue_jobs.delivery_audit.expect import Routes, attributes_of, severity
from glue_jobs.delivery_audit.home import Due
from glue_jobs.delivery_audit.number_ranges import pack_events
from glue_jobs.delivery_audit.rows import BAD_MEMBERS, MAX_SEQUENCE, MEMBER
from glue_jobs.delivery_audit.rules import DAY_MS, LATE_DAYS, Window, is_time

Grouped = tuple[Any, ...]
"""A row with the columns `rows.GROUPED`."""

_DIGEST: Final = re.compile("[0-9a-f]{16}")

Number = Callable[[Any], int]
"""Gives what is equal one number, by which the rows of one event meet: `rows.KEY`."""


class TappedRow(NamedTuple):
    """A row of the tap as `grouped`; `report` is a device's report, `due_at_home` by `expect`."""

    grouped: Grouped
    report: str | None
    due_at_home: str


def ledger_rows(records: Iterable[JsonRow], window: Window, number: Number) -> list[Grouped]:
    """Return the ledger's rows, as `rows.grouped` does."""
    made = []
    for record in records:
        within = _is_within(record, record.values[1], window)
        row = LedgerRow._make((*record.values, record.file, record.unknown_members, within))
        item = ("item", row.client_id, row.reason, row.entered_at_ms) if row.id == "" else None
        bad = _unreadable(LEDGER, record, row) if record.line else None
        key = number(item or _key(record, row.source, row.id, row.message_id))
        made.append((key, 0, None, None if bad else row, None, None, bad))
    return made


def handover_rows(records: Iterable[JsonRow], window: Window, number: Number) -> list[Grouped]:
    """Return the handovers of events, as `rows.grouped` does."""
    made = []
    for record in records:
        within = window.holds(record.date)
        row = HandoverRow._make((*record.values, record.file, record.unknown_members, within))
        if row.id == "":
            continue
        bad = _unreadable(HANDOVERS, record, row) if record.line else None
        key = number(_key(record, row.source, row.id, row.message_id))
        made.append((key, 0, None, None, None if bad else row, None, bad))
    return made


def tap_rows(
    records: Iterable[JsonRow],
    window: Window,
    routes: Routes,
    number: Number,
    *,
    is_listed: bool = False,
    is_rolled_out: bool = False,
) -> list[TappedRow]:
    """Return the tap's rows, as `rows.tap_rows` does; `routes` are `expected_routes`."""
    more = {name for name, is_read in (("time", is_listed), (FOLLOWED_CONTRACT, is_rolled_out)) if is_read}
    return [_tapped(each, window, routes, number, more) for each in records]


def _tapped(
    record: JsonRow, window: Window, routes: Routes, number: Number, more: Collection[str]
) -> TappedRow:
    accepted_at_ms, archived_at_ms, client_id, _, message_id, place, event, original, refusal, *_ = (
        record.values
    )
    members = members_of(event)
    texts = {name: text_of(value) for name, value in members.items() if value is not None}
    read, unread = _read(texts)
    has_time, has_members = is_time(accepted_at_ms), message_id is not None and place is not None
    if not has_members:
        unread = MISSING_MEMBER
    if not has_time:
        unread = IMPOSSIBLE_TIME
    stated, ends_ms = record.values[-2:]
    own_end_ms, raw = read["expirytime"], None if event is None else event.encode()
    data = [texts[name] for name in ("data", "data_base64") if name in texts]
    taken, due = routes(attributes_of(members, client_id))
    # Without one of these it is not judged.
    known: dict[str, Any] = {name: texts.get(name) for name in ("source", "id", "type")}
    known["is_too_large"] = None if raw is None else len(raw) > MAX_SENT_EVENT_BYTES
    row = TapRow(
        **known,
        accepted_at_ms=accepted_at_ms if has_time else _written_ms(record, archived_at_ms),
        message_id=message_id,
        place=place,
        archived_at_ms=archived_at_ms,
        file=record.file,
        client_id=client_id,
        service=texts.get(SENDER_SERVICE),
        epoch=texts.get(EPOCH),
        sequence=read[SEQUENCE],
        partition=texts.get("partitionkey"),
        dead_letter_reason=texts.get("deadletterreason"),
        recorded_at_ms=read["recordedtime"],
        said_at_ms=_time(texts.get("time") or "") if "time" in more else None,
        expires_at_ms=ends_ms if own_end_ms is not None and is_time(ends_ms) else own_end_ms,
        hops=read[ROUTER_HOPS],
        asks_best_effort=bool(read[DELIVERY_GUARANTEE]),
        names_sender=SENDER_DEVICE in texts,
        data_digest=None if raw is None else _hash(data),
        digest=_digest(stated, raw),
        is_redacted=stated is not None,
        routes=taken,
        unread=unread,
        unknown_members=record.unknown_members,
        within=_is_within(record, accepted_at_ms, window),
        followed=texts.get(FOLLOWED_CONTRACT) if FOLLOWED_CONTRACT in more else None,
    )
    fault = _fault(record, row, refusal, original, has_time=has_time)
    item = ("item", client_id, refusal, accepted_at_ms) if refusal is not None else None
    # With the rows of its event it would seem to be in the tap, where its number is not.
    own = (record.file, record.line, message_id) if fault else None
    key = number(item or own or _key(record, row.source, row.id, message_id))
    structs: list[Any] = [None] * 5
    if fault:
        structs[4] = _bad(TAP, record, fault, _text_of_row(row), row.source, row.id, None)
    elif refusal is None:
        structs[0] = row
    elif row.within:
        digest = hashlib.sha256(original.encode()).hexdigest()
        structs[3] = RefusedItem(place, digest, client_id, refusal, accepted_at_ms, record.file)
    return TappedRow((key, 0, *structs), event if row.type in REPORTS else None, due)


def nameless(rows: Iterable[Grouped]) -> Iterator[tuple[str, str]]:
    """Yield archive and object of each row of which the event is unknown: it accuses no hop.

    In the tap that is every row that cannot be judged: the number that its device gave it is not read.
    """
    for _, _, _, ledger, handover, _, bad in rows:
        archive, row = (bad.archive, bad) if bad else (LEDGER, ledger) if ledger else (HANDOVERS, handover)
        if row and (archive == TAP or None in (row.source, row.id)):
            yield archive, row.file


def _read(texts: Mapping[str, str | None]) -> tuple[dict[str, Any], str | None]:
    """Return values that the audit judges by, and the first that is there and cannot be read."""
    there = {name: texts.get(name) for name in _READERS}
    read = {name: text if text is None else _READERS[name](text) for name, text in there.items()}
    wrong = [f"unreadable_{name}" for name in _READERS if there[name] is not None and read[name] is None]
    return read, wrong[0] if wrong else None


def _time(text: str) -> int | None:
    return timestamp_ms(text) if is_timestamp(text) else None


def _number(most: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        try:
            return whole_number(text, most)
        except ValueError:
            return None

    return read


# The last: without its number an event is judged all the same.
_READERS: Final[dict[str, Callable[[str], int | None]]] = {
    "recordedtime": _time,
    "expirytime": _time,
    ROUTER_HOPS: _number(2**31 - 1),
    "severitynumber": severity,
    DELIVERY_GUARANTEE: lambda text: True if text == DeliveryGuarantee.BEST_EFFORT else None,
    SEQUENCE: _number(MAX_SEQUENCE),
}


def _digest(stated: str | None, event: bytes | None) -> str | None:
    """Return the digest that a row states, or else that of its event."""
    if stated is not None and _DIGEST.fullmatch(stated):
        return stated
    return None if event is None else short_digest(event)


def _hash(data: Sequence[str | None]) -> int:
    """Return a number of 64 bits that is equal for equal data."""
    return int.from_bytes(hashlib.sha256(repr(data).encode()).digest()[:8], "big", signed=True)


def _fault(
    record: JsonRow, row: TapRow, refusal: str | None, original: str | None, *, has_time: bool
) -> str | None:
    """Return why it is not known what a row of the tap is about, as `rows.tap_rows` does."""
    is_item, has_event = refusal is not None, row.is_too_large is not None
    if record.line is not None:
        return UNREADABLE
    if None in ((row.client_id, row.message_id, row.place) if is_item else (row.client_id,)):
        return MISSING_MEMBER
    if is_item and not has_time:
        return IMPOSSIBLE_TIME
    if has_event == is_item:
        return "neither_event_nor_refusal"
    if is_item:
        return "refusal_without_bytes" if original is None else None
    return None if row.source and row.id and row.type else "event_without_identity"


def _key(record: JsonRow, source: str | None, id: str | None, message_id: str | None) -> tuple[Any, ...]:
    """Return what is equal for the rows of one event; a row that names none has its own."""
    if record.line and source is None:
        source = _member(record.line, "source")
    if record.line and id is None:
        id = _member(record.line, "id")
    return (source, id) if None not in (source, id) else (record.file, record.line, message_id)


def _unreadable(archive: str, record: JsonRow, row: LedgerRow | HandoverRow) -> BadRow:
    return _bad(archive, record, UNREADABLE, None, row.source, row.id, row.sender)


def _bad(
    archive: str,
    record: JsonRow,
    reason: str,
    text: str | None,
    source: str | None,
    id: str | None,
    sender: str | None,
) -> BadRow:
    """Return a row that has a `reason`, with its line or else its `text`."""
    line = record.line
    names = {"sender": sender, "source": source, "id": id}
    named = (_member(line, name) if line and known is None else known for name, known in names.items())
    return BadRow(archive, record.date, record.file, reason, (line or text or "")[:MAX_TEXT], *named)


def _text_of_row(row: TapRow) -> str:
    members = row._asdict()
    kept = {name: members[name] for name in BAD_MEMBERS if members[name] is not None}
    return to_json(kept)


def _member(line: str, name: str) -> str | None:
    """Return a text member of a line of JSON that may be cut; None where it cannot be read."""
    found = re.search(MEMBER.replace("{}", name), line)
    try:
        return text_of(json.loads(found[1], strict=False)) if found else None
    except ValueError:
        return None


def _is_within(record: JsonRow, at_ms: int | None, window: Window) -> bool:
    """Return whether a row belongs to the window by itself: by a time, or by its folder (`rows`)."""
    if window.first is None:
        return True
    if record.line is not None:
        at_ms = None
    first_ms, last_ms = window.span_ms
    is_looked_for = at_ms is not None and first_ms - LATE_DAYS * DAY_MS <= at_ms <= last_ms + DAY_MS
    is_of_folder = window.holds(record.date) and not is_looked_for
    return is_of_folder or (at_ms is not None and first_ms <= at_ms <= last_ms)


def _written_ms(record: JsonRow, archived_at_ms: int | None) -> int:
    """Return when a row was written by its own word, Unix milliseconds; without a time, its folder's day."""
    if is_time(archived_at_ms):
        return archived_at_ms
    return timestamp_ms(f"{record.date}T00:00:00Z")


class SentRow(NamedTuple):
    """The events of a client in an epoch and an hour; with the last time of acceptance, Unix milliseconds.

    `is_vouched` is whether a report of the device itself came with it, or an erasure took that away.
    """

    hour: HourRow
    last_ms: int
    is_vouched: bool


def device_hours(tap: Iterable[TappedRow], contracts: Sequence[Contract]) -> list[SentRow]:
    """Return what each client sent in an epoch and an hour, as `rows.device_hours` does."""
    is_any, services, types = best_effort_names(contracts)

    def is_best_effort(row: TapRow) -> bool:
        return is_any or row.asks_best_effort or row.service in services or row.type in types

    sent = defaultdict[tuple[str, str | None, int, bool], list[tuple[TapRow, str | None, str]]](list)
    for each in tap:
        row: TapRow | None = each.grouped[2]
        if row is not None and row.client_id not in (PLANE_CLIENT, *CANARY_CLIENTS):
            epoch = row.epoch if row.sequence is not None else None
            sent[row.client_id, epoch, row.accepted_at_ms // HOUR_MS, row.within].append((row, *each[1:]))
    return [_device_hour(key, those, is_best_effort) for key, those in sent.items()]


def _device_hour(
    key: tuple[str, str | None, int, bool],
    sent: Sequence[tuple[TapRow, str | None, str]],
    is_best_effort: Callable[[TapRow], bool],
) -> SentRow:
    client_id, epoch, _, within = key
    events, others, unread, quickest = [], set[int](), set[tuple[str | None, int, int]](), []
    best_effort = 0
    for row, *_ in sent:
        by_key = key_digest((row.service or "", row.source, row.id))[8:]
        digests = _signed(by_key), _signed(bytes.fromhex(row.digest or "00"))
        if epoch is not None:
            events.append((row.sequence or 0, *digests))
        elif within and is_best_effort(row):
            best_effort += 1
        elif within:
            others.add(digests[0])
        if (row.epoch is None) != (row.sequence is None):
            unread.add((row.epoch, *digests))
        if within and row.recorded_at_ms is not None:
            quickest.append((row.accepted_at_ms - row.recorded_at_ms, row.accepted_at_ms, row.file))
    reports = [
        (row.accepted_at_ms, row.file, row.type, row.source, row.id, row.epoch, row.sequence, report)
        for row, report, _ in sent
        if report is not None
    ]
    due = [
        (row.sequence or 0, lines, *(getattr(row, name) for name in Due._fields[3:-1]))
        for row, _, lines in sent
        if epoch and lines and not is_best_effort(row)
    ]
    own = forwarder_source(client_id)
    hour = HourRow(
        *key,
        pack_events(events),
        pack_events((each, 0, 0) for each in others),
        best_effort,
        [*unread],
        min((row.accepted_at_ms, row.file) for row, *_ in sent),
        min(quickest, default=None),
        len(quickest),
        reports,
        due,
    )
    last_ms = max(row.accepted_at_ms for row, *_ in sent)
    is_vouched = client_id.startswith(ERASED) or any(each[3] == own for each in reports)
    return SentRow(hour, last_ms, is_vouched)


def _signed(word: bytes) -> int:
    return int.from_bytes(word, "big", signed=True)
