"""The rules of an audit: its window, its watermark, and what the contracts let routers and webhooks do."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeGuard

from eventplane.contract import Contract, DeliveryGuarantee, Place, SchemaCheck
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import DEVICE_REPORTS
from eventplane.envelope import parse_sender
from eventplane.expiry import channel_expiry_ms
from eventplane.guarantee import guarantee_of_type
from eventplane.reader_receipts import is_asked, recorded_percent
from eventplane.reasons import Outcome, Reason
from eventplane.sending import SendingRights
from glue_jobs.common.hours import Days, Hour, hour_of
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.event_group import EVERY_ROUTE, HOUR_MS, NO_ROUTE, HoleCount, LedgerRow

LATE_DAYS = 14
"""How many days after its acceptance an event can still be written to the archive, days. The longest that an
SQS queue keeps a message (Amazon SQS quotas): until then a router's or archive's backlog may still come."""

DAY_MS = 86_400_000

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, Unix milliseconds: later times are nonsense, and overflow further on."""

LATENESS_S = 3_600
"""How long after its acceptance an event's record may take to the archive before it is missed, seconds. Ours:
four of the longest waits (15 min) between two attempts of a router."""

_BY_EVENT: Final = frozenset({Reason.HOP_LIMIT, Reason.RESERVED_ATTRIBUTE, Reason.TOO_LARGE})
"""Reasons of refusals of which the tap knows whether they hold."""

RECORD_MS: Final = 5 * 60 * 1_000
"""How long after its beginning something is usually recorded at the latest, milliseconds: in which hours of a
folder a record is looked for. Ours."""

_SPOKEN_FOR: Final = DEVICE_REPORTS | {DEAD_LETTER_TYPE}


@dataclass(frozen=True, slots=True)
class Window:
    """UTC days, from the `first` to the `last` (by default that one alone), or (None) everything."""

    first: date | None = None
    last: date | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "last", self.last or self.first)

    def __str__(self) -> str:
        return "..".join(map(str, dict.fromkeys((self.first, self.last)))) if self.first else "all"

    @property
    def day(self) -> date | None:
        """The day, None of several."""
        return self.first if self.first == self.last else None

    @property
    def days(self) -> list[str]:
        """The days, `YYYY-MM-DD`; none of everything."""
        if self.first is None or self.last is None:
            return []
        return [str(self.first + timedelta(days=at)) for at in range((self.last - self.first).days + 1)]

    def holds(self, day: str | None) -> bool:
        """Return whether a day is within."""
        return self.first is None or (day is not None and str(self.first) <= day <= str(self.last))

    def nearest(self, day: str) -> str:
        """Return the day within that something of `day` counts for."""
        return day if self.first is None else min(max(day, str(self.first)), str(self.last))

    @property
    def folders(self) -> Days:
        """The archive's days that can hold the window's rows.

        The day before is among them: a clock that is behind at midnight writes there, and a device's first
        statement of a day speaks of it.
        """
        if self.first is None or self.last is None:
            return Days()
        return Days(self.first - timedelta(days=1), self.last + timedelta(days=LATE_DAYS))

    @property
    def span_ms(self) -> tuple[int, int]:
        """The first and the last time of the window, Unix milliseconds."""
        if self.first is None:
            return 0, LAST_MS
        first = datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC)
        first_ms = int(first.timestamp()) * 1_000
        return first_ms, first_ms + len(self.days) * DAY_MS - 1


def is_time(at_ms: int | None) -> TypeGuard[int]:
    """Return whether this is a possible time, Unix milliseconds."""
    return at_ms is not None and 0 <= at_ms <= LAST_MS


def date_of(milliseconds: int) -> str:
    """Return the UTC day of a Unix time, `YYYY-MM-DD`."""
    return _date(milliseconds // DAY_MS)


@lru_cache(maxsize=1_024)
def _date(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


@dataclass(frozen=True, slots=True)
class Watermark:
    """An audit of the archive as it was `as_of_ms` (Unix milliseconds), which waits for `lateness_s`.

    It follows the clock of whoever audits, not the newest row: a router that has stopped writes no row that
    would ever close the window in which it stopped.
    """

    as_of_ms: int
    lateness_s: int = LATENESS_S

    @property
    def ms(self) -> int:
        """The watermark, Unix milliseconds."""
        return self.as_of_ms - 1_000 * self.lateness_s

    def is_late(self, since_ms: Any, written_ms: Any) -> Any:
        """Return whether a record came so late that an audit may have missed it.

        Of numbers or of Spark's columns, Unix milliseconds. Without a lateness nothing is late, nor is a
        record that does not say when it was written.
        """
        if not self.lateness_s or written_ms is None:
            return False
        return written_ms - since_ms > 1_000 * self.lateness_s

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return {"as_of_ms": self.as_of_ms, "lateness_s": self.lateness_s, "watermark_ms": self.ms}


class MissingRows(NamedTuple):
    """At most `rows` that objects held which are gone, of the seconds `first_s` to `last_s` (from 1970).

    The first of the objects lay in the folder of the `hour` counted from 1970.
    """

    first_s: int
    last_s: int
    rows: int
    hour: int


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules for a group: contracts, times, and where the archive is known to have holes.

    `damaged` names by folder (`ledger`, `handovers`) the hours of which an object is missing or unreadable,
    or has lines that cannot be read and name no event. In hours of the tap that are `erased` an erasure
    changed an object, and may have redacted events. `missing` are by folder the rows of objects that are gone
    and listed, in order, without a second in common. Where `is_listed` each delivery has a row.
    """

    history: ContractHistory
    watermark: Watermark
    window: Window
    damaged: Mapping[str, frozenset[Hour]] = field(default_factory=dict)
    erased: frozenset[Hour] = frozenset()
    missing: Mapping[str, Sequence[MissingRows]] = field(default_factory=dict)
    is_listed: bool = False

    def within_rows(self, counts: Mapping[Any, int]) -> Rules | None:
        """Return rules by which gone objects explain no more than they held; None where these do not.

        `counts` are those that were judged by these. Which events lay in an object is not known: the
        earliest are taken, a second at a time.
        """
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for key, count in counts.items():
            if isinstance(key, HoleCount) and key.second is not None:
                found[key.archive].append((key.second, count))
        in_order = {folder: sorted(found[folder]) for folder in self.missing}
        missing = {
            folder: [_cut(each, in_order[folder]) for each in spans] for folder, spans in self.missing.items()
        }
        is_kept = all(missing[folder] == [*spans] for folder, spans in self.missing.items())
        return None if is_kept else replace(self, missing=missing)


def _cut(missing: MissingRows, counts: Sequence[tuple[int, int]]) -> MissingRows:
    """Let it end before the second in which more is counted than there were rows; `counts` are in order."""
    start = bisect_left(counts, missing.first_s, key=itemgetter(0))
    end = bisect_right(counts, missing.last_s, key=itemgetter(0))
    left = missing.rows
    for second, count in counts[start:end]:
        left -= count
        if left < 0:
            return missing._replace(last_s=second - 1)
    return missing


class ContractRules:
    """The rules of one contract version; `number` is its place in the history, and in `TapRow.routes`."""

    def __init__(self, contract: Contract, number: int) -> None:
        self.version = contract.version
        self.number = number
        self.destinations = {route.name: route.destination for route in contract.routes}
        self._contract = contract
        self._rights = SendingRights(contract)
        self._routes = {route.name: route for route in contract.routes_at(Place.CLOUD)}
        self._worth_ms = {
            name: channel_expiry_ms(contract.device.outbox, contract.channel(route.destination))
            for name, route in self._routes.items()
        }
        self._recorded_percent = {
            each.inbox.address: recorded_percent(each.inbox) for each in contract.participants.values()
        }
        self._may_send: dict[tuple[bool, str, str], bool] = {}
        self._best_effort: dict[tuple[str, str | None, bool], bool] = {}

    def route_taken(self, row: LedgerRow) -> str:
        """Return the row's route; one of another name where it led elsewhere than the contract says.

        Such a delivery is one on a route that no contract gives, and the route it claims is still owed.
        Without a route it is `NO_ROUTE` or `EVERY_ROUTE`.
        """
        route = row.route
        if route is None:
            return NO_ROUTE if row.outcome == Outcome.UNROUTED else EVERY_ROUTE
        if row.outcome == Outcome.DELIVERED:
            declared = self.destinations.get(route)
            if declared is not None and declared != row.destination:
                return f"{route} -> {row.destination}"
        return route

    def worth_ms(self, route: str) -> int | None:
        """Return how long an event on `route` is worth delivering, milliseconds; None for ever."""
        return self._worth_ms.get(route)

    def records_end(self, inbox: str, source: str, id: str) -> bool:
        """Return whether the end of the event with these names in `inbox` is recorded."""
        return is_asked(source, id, self._recorded_percent.get(inbox, 0))

    def may_send(self, row: LedgerRow) -> bool:
        """Return whether the row's sender may send such an event; true where it names no sender or type."""
        if row.sender is None or row.type is None:
            return True
        sender = parse_sender(row.sender)
        if row.type in _SPOKEN_FOR:
            return self._rights.may_have_sent(sender, row.type, row.source)
        key = bool(sender.device), sender.service, row.type
        known = self._may_send.get(key)
        if known is None:
            known = self._may_send[key] = self._rights.may_send(sender, row.type)
        return known

    def is_best_effort(self, row: LedgerRow, *, asks: bool) -> bool:
        """Return whether the row's delivery is at best effort; `asks` is whether the event asks for it."""
        if row.route is None:
            return False
        key = row.route, row.type, asks
        known = self._best_effort.get(key)
        if known is None:
            route = self._routes.get(row.route)
            known = self._best_effort[key] = route is not None and (
                guarantee_of_type(self._contract, row.type or "", asks, self._contract.device.outbox, route)
                is DeliveryGuarantee.BEST_EFFORT
            )
        return known

    def has_check(self, type: str | None, *checks: SchemaCheck) -> bool:
        """Return whether the payloads of a type are checked by one of `checks`."""
        declared = self._contract.event_types.get(type or "")
        return declared is not None and declared.schema_check in checks


class AuditRules:
    """All that a judgement goes by: contracts, watermark, and the holes that the archive is known to have."""

    def __init__(self, rules: Rules) -> None:
        history = rules.history
        contracts = history.contracts
        self.by_version = {each.version: ContractRules(each, at) for at, each in enumerate(contracts)}
        self.uplinks = frozenset(history.uplinks)
        # By the newest contract that has the route.
        self.destinations = {route.name: route.destination for each in contracts for route in each.routes}
        self.readers = history.readers
        self.patience_ms = history.patience_ms
        self._webhook_worth_ms: dict[str, int] = {}
        for each in history.inboxes:
            if each.webhook and (worth_ms := channel_expiry_ms(each)) is not None:
                # By the strictest contract: functions of several may run side by side.
                known = self._webhook_worth_ms.get(each.address, worth_ms)
                self._webhook_worth_ms[each.address] = min(known, worth_ms)
        self.window = rules.window
        self.watermark = rules.watermark
        self.is_listed = rules.is_listed
        self._damaged = {
            folder: frozenset(each.number for each in hours)
            for folder, hours in rules.damaged.items()
            if hours
        }
        self._erased = rules.erased
        # A span that was cut to nothing holds no second.
        self._missing = {
            folder: [each for each in spans if each.first_s <= each.last_s]
            for folder, spans in rules.missing.items()
        }
        self.down = frozenset(each.device.inbox.address for each in contracts)
        self._history = history
        self.candidacies = history.candidacies
        later = [use for use in history.uses[1:] if use.first_used_ms is not None]
        self._from_ms = [use.first_used_ms for use in later if use.first_used_ms is not None]
        self._in_force = [use.contract.version for use in (history.uses[0], *later)]

    def in_force_at(self, at_ms: int | None, followed: str | None = None) -> str:
        """Return the version in force at a Unix time; before the first use, and at no time, it is the first.

        For a device that `followed` a candidate then, it is that. The best guess for an event that no ledger
        row speaks of. What a ledger row names goes before it: during a deployment, routers of both versions
        run side by side.
        """
        for each in self.candidacies:
            is_candidate = each.candidate == followed and each.from_ms <= (at_ms or 0) <= each.to_ms
            for version in self.by_version if is_candidate else ():
                if version in each.versions:
                    return version
        return self._in_force[0 if at_ms is None else bisect_right(self._from_ms, at_ms)]

    def is_of_frame(self, row: LedgerRow) -> bool:
        """Return whether the row is of a frame that IoT Core accepted, so that it has the tap's time."""
        return row.entered_by in self.uplinks and row.put_back_by is None

    def is_open(self, since_ms: int | None) -> bool:
        """Return whether a record about what began at `since_ms` may still come."""
        return since_ms is not None and since_ms > self.watermark.ms

    def may_be_redacted(self, file: str) -> bool:
        """Return whether an erasure changed an object of the hour in whose folder `file` lies."""
        return hour_of(file) in self._erased

    def hole(self, folder: str, since_ms: int, wait_ms: int = 0) -> HoleCount | None:
        """Return the hole of a folder in which a record of what began at `since_ms` may have been.

        None if everything that may have it is there. `wait_ms` is how much later than `RECORD_MS` it may have
        been written.
        """
        first, last = since_ms // 1_000, (since_ms + min(wait_ms, RECORD_MS)) // 1_000
        missing = self._missing.get(folder, ())
        at = bisect_left(missing, first, key=lambda each: each.last_s)
        if at < len(missing) and missing[at].first_s <= last:
            return HoleCount(folder, missing[at].hour, max(first, missing[at].first_s))
        damaged = self._damaged.get(folder, frozenset())
        hours = range(since_ms // HOUR_MS, (since_ms + RECORD_MS + wait_ms) // HOUR_MS + 1) if damaged else ()
        hour = next((hour for hour in hours if hour in damaged), None)
        return None if hour is None else HoleCount(folder, hour)

    def webhook_worth_ms(self, inbox: str) -> int | None:
        """Return how long an event in a webhook's inbox is worth handing over, ms; None for ever."""
        return self._webhook_worth_ms.get(inbox)

    def is_device_to_devices(self, row: LedgerRow) -> bool:
        """Return whether the row's route leads from a device down to devices, which no contract can allow."""
        return row.destination in self.down and "/" in (row.sender or "")

    def is_forbidden(self, row: LedgerRow) -> bool:
        """Return whether the contract forbids the row's delivery: by its sender, or down from a device."""
        if row.outcome != Outcome.DELIVERED:
            return False
        return not self.by_version[row.contract_version].may_send(row) or self.is_device_to_devices(row)

    def is_stale(self, row: LedgerRow) -> bool:
        """Return whether the row was decided by a contract whose successor had long been in force."""
        return row.is_by_contract_in_force and self._history.is_stale(row.contract_version, row.decided_at_ms)

    def is_of_others(self, row: LedgerRow, followed: str | None) -> bool:
        """Return whether a row was decided by a contract that was not in force for the event's device.

        It is the candidate for those that `followed` it, and the contract beside it for all others.
        """
        if not (self.candidacies and row.is_by_contract_in_force) or row.put_back_by is not None:
            return False
        return any(
            row.contract_version in (each.beside if each.candidate == followed else each.versions)
            for each in self.candidacies
            if each.is_certain(row.decided_at_ms)
        )

    def is_refusable(self, row: LedgerRow) -> bool:
        """Return whether the row's contract allows the refusal that the row speaks of.

        Of an event: the payloads of its type are checked, or it went round in circles, or its sender may not
        send it, or makes it too large by its name, or the event names a sender itself; nothing else allows
        it. On one route: any reason, but `sender_not_allowed` only where a device sends to devices.
        """
        reason = row.reason
        if row.route is not None:
            return reason != Reason.SENDER_NOT_ALLOWED or self.is_device_to_devices(row)
        rules = self.by_version[row.contract_version]
        if reason == Reason.PAYLOAD_INVALID:
            return rules.has_check(row.type, SchemaCheck.KNOWN, SchemaCheck.STRICT)
        if reason == Reason.UNKNOWN_DATASCHEMA:
            return rules.has_check(row.type, SchemaCheck.STRICT)
        if reason == Reason.SENDER_NOT_ALLOWED:
            # What a dead letter of a service is about is not in the ledger.
            return row.type == DEAD_LETTER_TYPE or not rules.may_send(row)
        return reason in _BY_EVENT
