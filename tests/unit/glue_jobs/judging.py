"""A small archive judged without Spark: its rows in groups, and what their judgement comes to."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from eventplane.contract import Contract, Place
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import short_digest
from eventplane.envelope import ROUTER_HOPS, parse_event
from eventplane.guarantee import asks_best_effort
from eventplane.interest import is_wanted
from eventplane.ledger import LedgerRecord, TapRecord
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.names import EPOCH, SEQUENCE
from eventplane.reasons import Outcome
from eventplane.router import Router
from eventplane.sender import PLANE, PLANE_CLIENT, SENDER_DEVICE, SENDER_SERVICE
from eventplane.values import timestamp_ms
from glue_jobs.common.hours import Hour
from glue_jobs.delivery_audit import judging
from glue_jobs.delivery_audit.contracts import ContractHistory, Use, stale_uses
from glue_jobs.delivery_audit.event_group import (
    NO_ROUTE,
    UNWANTED,
    BadRow,
    EventGroup,
    HandoverRow,
    Judgement,
    LedgerRow,
    RefusedItem,
    RowCount,
    TapRow,
    Verdict,
)
from glue_jobs.delivery_audit.figures import Figures
from glue_jobs.delivery_audit.findings import BROKEN_KINDS, Finding
from glue_jobs.delivery_audit.judge import judge
from glue_jobs.delivery_audit.judging import usages
from glue_jobs.delivery_audit.rules import LAST_MS, LATENESS_S, MissingRows, Rules, Watermark, Window
from tests.spark.small_archive import SmallArchive

FILES = {name: f"{name}/date=2026-03-01/hour=12/rows.json.gz" for name in ("tap", "ledger", "handovers")}
_FAULTS = (
    *("lost", "misrouted", "unexplained", "expired", "dropped", "unrecorded", "not_understood", "pending"),
    "duplicated",
)
AS_OF = "2026-04-01T00:00:00Z"


class Judged:
    """What a judgement comes to, by the figures of the report."""

    def __init__(self, judgement: Judgement) -> None:
        self.judgement = judgement
        self._figures = Figures(judging.Judged(judgement))

    def route(self, name: str) -> Counter[str]:
        """The counts of one route."""
        return _total(row for row in self._figures.routes if row["route"] == name)

    @property
    def totals(self) -> Counter[str]:
        """The sums of all that is counted by route."""
        return _total(self._figures.routes) + Counter(to_replay=self._figures.to_replay)

    @property
    def routes(self) -> set[str]:
        """The routes on which something was judged."""
        return {row["route"] for row in self._figures.routes}

    def consumed(self) -> dict[tuple[str, str], int]:
        """The counts of the last hop by inbox and verdict."""
        verdicts = set(map(str, Verdict))
        return {
            (row["channel"], name): row[name]
            for row in self._figures.consumers
            for name in verdicts & row.keys()
            if row[name]
        }

    def letters(self) -> dict[tuple[str, str | None], tuple[int, int]]:
        """Dead letters by place and reason: how many there are, and how many are missing."""
        return {
            (row["place"], row["reason"]): (row["count"], row["missing"])
            for row in self._figures.dead_letters
        }

    def inboxes(self) -> dict[str, tuple[int, ...]]:
        """Events, messages, and events that may expire, by inbox."""
        return {name: tuple(counts.values()) for name, counts in self._figures.by_destination.items()}

    def rows(self) -> dict[tuple[str, str | None], int]:
        """Rows by archive, and why they are in quarantine."""
        counts = self.judgement.counts.items()
        return {(key.archive, key.reason): count for key, count in counts if isinstance(key, RowCount)}

    def faults(self) -> dict[str, int]:
        """The figures that should be zero, where they are not."""
        last, letters = _total(self._figures.consumers), _total(self._figures.dead_letters)
        totals = self.totals
        found = {name: totals[name] for name in _FAULTS} | {
            "lost": totals["lost"] + last["lost"] + self._figures.items["lost"],
            "dead_lettered": letters["count"] + last["dead_lettered"],
            "quarantined": _total(self._figures.quarantine)["rows"],
        }
        return {name: count for name, count in found.items() if count}

    @property
    def findings(self) -> list[Finding]:
        """The findings, those that break a promise first."""
        return sorted(self.judgement.findings, key=lambda each: each.kind not in BROKEN_KINDS)

    def kinds(self) -> list[tuple[str, str | None, str | None]]:
        """What was found: kind, device and route."""
        found = ((each.kind, each.device, each.route) for each in self.judgement.findings)
        return sorted(found, key=lambda each: tuple(member or "" for member in each))

    def found(self) -> set[tuple[str, str, str | None]]:
        """What was found: kind, hop and id."""
        return {(each.kind, each.hop, each.id) for each in self.judgement.findings}


def _total(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """The sums of all counts of some rows."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update({name: value for name, value in row.items() if isinstance(value, int)})
    return found


def judged(
    archive: SmallArchive,
    *,
    twice: bool = False,
    tap: Mapping[str, Any] = MappingProxyType({}),
    ledger: Mapping[str, Any] = MappingProxyType({}),
    **others: Any,
) -> Judged:
    """Judge all rows of an archive, each in two objects if `twice`; `others` are parameters of `rules_of`.

    The rows of `tap` and `ledger` have these other members.
    """
    rules = rules_of(archive, **others)
    made = Judgement()
    for group in groups_of(archive, rules.history.contracts):
        changed = {
            "tap": [row._replace(**tap) for row in group.tap],
            "ledger": [row._replace(**ledger) for row in group.ledger],
        }
        cut = by_own_time(group._replace(**changed), rules.window)
        if judging.is_within(cut, rules.window):
            judge(in_two_objects(cut) if twice else cut, rules, made)
    return Judged(made)


def by_own_time(group: EventGroup, window: Window) -> EventGroup:
    """The group whose rows of other days are marked, by the time of each."""
    first_ms, last_ms = window.span_ms
    tap = [row._replace(within=first_ms <= row.accepted_at_ms <= last_ms) for row in group.tap]
    ledger = [row._replace(within=first_ms <= (row.entered_at_ms or 0) <= last_ms) for row in group.ledger]
    return group if window.day is None else group._replace(tap=tap, ledger=ledger)


def in_two_objects(group: EventGroup) -> EventGroup:
    """The group whose rows lie in another object as well."""
    names = ("tap", "ledger", "handovers", "items")
    again = {
        name: [row._replace(file=row.file.replace("rows", "rows2")) for row in getattr(group, name)]
        for name in names
    }
    return group._replace(**{name: [*getattr(group, name), *again[name]] for name in names})


def rules_of(
    archive: SmallArchive,
    as_of: str = AS_OF,
    lateness_s: int = LATENESS_S,
    window: Window | None = None,
    damaged: Mapping[str, frozenset[Hour]] | None = None,
    missing: Mapping[str, Sequence[MissingRows]] | None = None,
) -> Rules:
    """The rules by which an archive is judged."""
    watermark = Watermark(timestamp_ms(as_of), lateness_s)
    return Rules(history_of(archive), watermark, window or Window(), damaged or {}, missing=missing or {})


def history_of(archive: SmallArchive) -> ContractHistory:
    """The contracts of an archive in the order of their first use."""
    contracts = {each.version: each for each in archive.contracts}
    used = usages(map(ledger_row, archive.ledger))
    first_ms = {
        version: min(each.first_ms for each in used if each.version == version and each.is_in_force)
        for version in {each.version for each in used if each.is_in_force}
    }
    named = {each.version for each in used}
    versions = sorted(named & contracts.keys(), key=lambda each: first_ms.get(each, LAST_MS))
    uses = [Use(contracts[each], first_ms.get(each)) for each in versions or [*contracts][-1:]]
    return ContractHistory(tuple(uses), stale_uses(used))


def groups_of(archive: SmallArchive, contracts: Iterable[Contract]) -> list[EventGroup]:
    """The rows of an archive as groups, by source and id, or as items, or each by itself."""
    rows: defaultdict[tuple[Any, ...], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    contracts = list(contracts)
    for record in archive.tap:
        if record.refusal is not None:
            rows[record.client_id, record.refusal, record.accepted_at_ms]["items"].append(item_of(record))
        else:
            row = tap_row(record, contracts)
            rows[row.source, row.id]["tap"].append(row)
    for record in archive.ledger:
        ledger = ledger_row(record)
        key = (record.source, record.id)
        if not record.id:
            key = (record.client_id, record.reason, record.entered_at_ms)  # type: ignore[assignment]
        rows[key]["ledger"].append(ledger)
    for handover in archive.handovers:
        end = HandoverRow(*astuple(handover), FILES["handovers"])
        rows[end.source, end.id]["handovers"].append(end)
    letters = frozenset(
        row.id
        for row in archive.ledger
        if row.type == DEAD_LETTER_TYPE and row.sender == PLANE and row.outcome == Outcome.DELIVERED
    )
    for number, (kind, line) in enumerate(archive.bad_lines):
        source, id, sender = (_member(line, name) for name in ("source", "id", "sender"))
        bad = BadRow(kind, "2026-03-01", FILES[kind], "unreadable_line", line, sender, source, id)
        rows[("bad", number) if source is None or id is None else (source, id)]["bad"].append(bad)
    return [EventGroup(**each, dead_letters=letters) for each in rows.values()]


def _member(line: str, name: str) -> str | None:
    """A member's text, also of a line that was cut behind it."""
    found = re.search(rf'"{name}":\s*("(?:[^"\\]|\\.)*")', line)
    return json.loads(found[1]) if found else None


def ledger_row(record: LedgerRecord) -> LedgerRow:
    return LedgerRow(*(getattr(record, each.name) for each in fields(record)), FILES["ledger"])


def item_of(record: TapRecord) -> RefusedItem:
    digest = hashlib.sha256((record.original_base64 or "").encode()).hexdigest()
    return RefusedItem(
        record.index,
        digest,
        record.client_id,
        record.refusal or "",
        record.accepted_at_ms,
        FILES["tap"],
    )


def tap_row(record: TapRecord, contracts: Iterable[Contract]) -> TapRow:
    """The row of an event in the tap; its routes by the core's own router."""
    event = parse_event(record.event or "")
    named = event.attributes
    is_plane = record.client_id == PLANE_CLIENT
    routed = event.without((SENDER_DEVICE,)) if SENDER_DEVICE in named else event
    routed = routed.stamped(**({SENDER_SERVICE: PLANE} if is_plane else {SENDER_DEVICE: record.client_id}))
    routes = []
    for contract in contracts:
        over = contract.device.outbox
        names = [
            each.name
            if is_wanted(each.interest, routed, contract.priority(routed, over))
            else UNWANTED + each.name
            for each in Router(contract, Place.CLOUD).route(routed)
        ]
        routes.append(" ".join(names) or NO_ROUTE)
    sequence = named.get(SEQUENCE)
    return TapRow(
        accepted_at_ms=record.accepted_at_ms,
        message_id=record.message_id,
        place=record.index,
        archived_at_ms=record.archived_at_ms,
        file=FILES["tap"],
        client_id=record.client_id,
        service=str(named[SENDER_SERVICE]) if SENDER_SERVICE in named else None,
        source=event.source,
        id=event.id,
        type=event.type,
        epoch=str(named[EPOCH]) if EPOCH in named else None,
        sequence=int(str(sequence)) if sequence is not None else None,
        partition=str(named["partitionkey"]) if "partitionkey" in named else None,
        dead_letter_reason=str(named["deadletterreason"]) if "deadletterreason" in named else None,
        recorded_at_ms=_ms(named.get("recordedtime")),
        expires_at_ms=_ms(named.get("expirytime")),
        hops=int(named[ROUTER_HOPS]) if ROUTER_HOPS in named else None,
        asks_best_effort=asks_best_effort(event),
        names_sender=SENDER_DEVICE in named,
        is_too_large=len((record.event or "").encode()) > MAX_SENT_EVENT_BYTES,
        data_digest=hash(str(event.data())),
        digest=short_digest(event.json.encode()),
        routes=tuple(routes),
    )


def nothing_is_accused(report: Judged) -> bool:
    """Whether no hop is said to have failed, and nothing is to be sent again."""
    return not any(each.kind in BROKEN_KINDS for each in report.findings) and not report.judgement.replay


def at_noon(folder: str) -> dict[str, frozenset[Hour]]:
    """Say that the records of the hour from noon may be missing in a folder."""
    return {folder: frozenset({hour("2026-03-01T12")})}


def hour(text: str) -> Hour:
    """The hour that begins at a time like `2026-03-01T12`."""
    return Hour(datetime.fromisoformat(text).replace(tzinfo=UTC))


def _ms(timestamp: object) -> int | None:
    return None if timestamp is None else timestamp_ms(str(timestamp))
