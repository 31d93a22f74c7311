"""The audit of a small archive without Spark, on rows that Python has read.

For archives of up to some 200,000 events. All rows are held in memory.
"""

from __future__ import annotations

import gc
import gzip
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from eventplane.archive_layout import Column, Folder
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from eventplane.reasons import REPLAY
from glue_jobs.common.attestation import AttestationKey
from glue_jobs.common.hours import Days
from glue_jobs.common.lines import PlainArchive, to_json
from glue_jobs.common.listing import Listing
from glue_jobs.common.objects import Objects
from glue_jobs.common.parquet import file_of, open_session
from glue_jobs.delivery_audit import plain_rows
from glue_jobs.delivery_audit.audit import (
    FOUND,
    PYTHON,
    Audit,
    AuditRequest,
    Found,
    Read,
    audit,
)
from glue_jobs.delivery_audit.claims import HourRow, SenderEvents, judged_with, readers_of
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.device import DeviceRows
from glue_jobs.delivery_audit.devices import Counts, Fleet, Listed, judge_devices, summary
from glue_jobs.delivery_audit.event_group import HOUR_MS, NotInTap
from glue_jobs.delivery_audit.expect import expected_routes
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.judging import KINDS, Judged, Task, judge_rows, received_dead_letters
from glue_jobs.delivery_audit.number_ranges import EVENT_BYTES
from glue_jobs.delivery_audit.publication import (
    Table,
    file_audit,
    shaped,
    tables,
)
from glue_jobs.delivery_audit.rows import GROUPED
from glue_jobs.delivery_audit.rules import Rules


def audit_small(request: AuditRequest) -> Audit:
    """Audit what the request asks for, whose `work` does not matter.

    Raises `LargeArchiveError`, and what `audit.audit` raises.
    """
    return audit(PlainEngine(request), request)


def file_small(request: AuditRequest, outbox: str | None = None) -> dict[str, Any]:
    """Audit what the request asks for, file report and tables, send the verdict, and return the report.

    Raises what `audit_small` raises, and `OutboxError`.
    """
    # Of millions of rows none is in a cycle: to look for some takes a tenth of the time.
    gc.disable()
    try:
        made = audit_small(request)
    finally:
        gc.enable()
    return file_audit(request.output, made, partial(write_tables, request.output, made), outbox)


def write_tables(output: Objects, made: Audit, changes: Iterable[Finding]) -> None:
    """Write all tables beneath `output`, as `publication.write_tables` does with Spark."""
    days = made.window.days
    with open_session() as session:
        for name, table in tables(made, changes).items():
            by_date = defaultdict[str, list[tuple[Any, ...]]](list)
            for date, *row in rows_of(made, table):
                by_date[date].append(tuple(row))
            for folder in [f"{name}/date={each}" for each in {*days, *by_date}] if days else [name]:
                output.clear(folder)
            columns = table.columns[1:]
            for date, rows in by_date.items():
                place = f"{name}/date={date}/part-0"
                if name == REPLAY:
                    output.write(f"{place}.json.gz", _lines_of(columns, rows))
                else:
                    output.write(f"{place}.parquet", file_of(session, columns, rows))


def rows_of(made: Audit, table: Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table; of a small audit alone."""
    found = made.found[table.kind] if table.kind else ()
    return [*table.rows, *(shaped(made, table, each) for each in found)]


def _lines_of(columns: Sequence[Column], rows: Iterable[tuple[Any, ...]]) -> bytes:
    """Return the rows as lines of JSON, without members that are null, as Spark writes them."""
    names = [each.name for each in columns]
    members = (
        {name: each for name, each in zip(names, row, strict=True) if each is not None} for row in rows
    )
    return gzip.compress("".join(f"{to_json(each)}\n" for each in members).encode(), mtime=0)


class PlainEngine:
    """Reads the archive in this process, and holds all of it."""

    name = PYTHON

    def __init__(self, request: AuditRequest) -> None:
        self._request = request
        self._archive = PlainArchive(request.objects)
        self._numbers: dict[Any, int] = {}

    def listed(self, folder: Folder, days: Days, key: AttestationKey) -> Listing:
        """List what a folder holds of some days."""
        return self._archive.listed(folder, days, key)

    def read(self, listings: Mapping[str, Listing], history_of: Callable[..., Any]) -> Read:
        """Read all folders; `history_of` takes `Read.decisions`, and returns `Read.history` and `faults`."""
        parts = {each: self._archive.read(listings[each]) for each in (LEDGER, HANDOVERS, TAP)}
        window, number = self._request.window, self._number
        table = plain_rows.ledger_rows(parts[LEDGER].rows, window, number)
        decisions = [row for row in _structs(table, "ledger") if row]
        history, faults = history_of(decisions)
        routes = expected_routes(history)
        is_listed, is_rolled_out = self._request.is_listed, bool(history.candidacies)
        tap = plain_rows.tap_rows(
            parts[TAP].rows, window, routes, number, is_listed=is_listed, is_rolled_out=is_rolled_out
        )
        table += [each.grouped for each in tap]
        table += plain_rows.handover_rows(parts[HANDOVERS].rows, window, number)
        return Read(
            parts,
            decisions,
            history,
            faults,
            received_dead_letters(decisions),
            decisions,
            plain_rows.nameless(table),
            partial(self._screened, table),
            partial(self._devices, plain_rows.device_hours(tap, history.contracts)),
        )

    def _devices(self, sent: Sequence[plain_rows.SentRow], *known: Any) -> PlainDevices:
        return PlainDevices(sent, *known)

    def _screened(self, table: list[plain_rows.Grouped], task: Task) -> Callable[[Rules], Any]:
        """Judge all events: this takes as long as to find those with which nothing is wrong."""
        self._request.progress(f"judging {len(table):,} rows")
        table.sort(key=itemgetter(0, 1))

        def judged(rules: Rules) -> tuple[Judged, Found]:
            found: dict[str, list[Any]] = {kind: [] for kind in FOUND}
            judged = Judged()
            for each in judge_rows(replace(task, rules=rules), table):
                if isinstance(each, Judged):
                    judged = each
                else:
                    found[KINDS[each.__class__]].append(each)
            return judged, found

        return judged

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _structs(table: Iterable[plain_rows.Grouped], name: str) -> Iterator[Any]:
    """Return the structs of this name in rows with the columns `GROUPED`."""
    return map(itemgetter(GROUPED.index(name)), table)


class PlainDevices:
    """The devices of a small archive: `sent` has the rows of `plain_rows.device_hours`."""

    def __init__(
        self, sent: Sequence[plain_rows.SentRow], found: Found, counts: Counts, registry: Listed | None
    ) -> None:
        self._sent = sent
        self._found = found
        self._counts = counts
        self._listed = {thing: state for thing, *state in registry or ()}

    def senders(self) -> Iterator[SenderEvents]:
        """Return who sent in which epoch."""
        for hour, last_ms, is_vouched in self._sent:
            least_ms = hour.quickest[0] if hour.quickest else None
            numbers = len(hour.events) // EVENT_BYTES
            yield SenderEvents(
                hour.client_id, hour.epoch, is_vouched, hour.first[0], numbers, least_ms, last_ms
            )

    def hours_not_in_tap(self) -> Collection[int]:
        """Return the hours, counted from 1970, of what the ledger alone has."""
        return {row.entered_at_ms // HOUR_MS for row in self._found["not_in_tap"]}

    def gathered(self, owners: Mapping[str, tuple[str, ...]]) -> Iterator[DeviceRows]:
        """Bring together the rows that each device is judged by; `owners` are `Scope.owners`."""
        hours, strays = defaultdict[str, list[HourRow]](list), defaultdict[str, list[NotInTap]](list)
        readers = readers_of(owners)
        for hour, *_ in self._sent:
            epoch = hour.epoch or ""
            for owner in judged_with(hour.client_id, owners.get(epoch, ()), readers.get(epoch, ())):
                hours[owner].append(hour)
        for row in self._found["not_in_tap"]:
            strays[row.client_id or ""].append(row)
        for each in sorted({*hours, *strays, *self._listed}):
            known = self._counts.get(each, ()), *self._listed.get(each, ())
            yield DeviceRows(each, hours[each], strays[each], *known)

    def judged(self, scope: Scope, absent: Collection[int]) -> tuple[Fleet, Found]:
        """Judge each device, and return besides what was found of events and devices."""
        judgements = [*judge_devices(self.gathered(scope.owners), scope, absent)]
        findings = [each for judgement in judgements for each in judgement.findings]
        days = [day for judgement in judgements for day in judgement.days]
        rows = [row for judgement in judgements for row in judgement.deliveries]
        found = {
            **self._found,
            "finding": [*self._found["finding"], *findings],
            "day": days,
            "delivery": [*self._found["delivery"], *rows],
        }
        return summary(judgements), found
