"""The audit of a small archive without Spark: the decisions of `audit`, on rows that Python has read.

For archives of up to some 200,000 events. All rows are held in memory.
"""

from __future__ import annotations

import gc
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from eventplane.archive_layout import Column
from eventplane.contract import Contract
from eventplane.reasons import REPLAY
from glue_jobs.common.archive import Part
from glue_jobs.common.lines import PlainArchive, to_json
from glue_jobs.common.objects import Objects
from glue_jobs.common.parquet import file_of, open_session
from glue_jobs.delivery_audit import plain_rows
from glue_jobs.delivery_audit.audit import PYTHON, Audit, InProcess, Request, Run
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.event_group import BadRow
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.publication import day_of, file_audit, send_verdicts, tables
from glue_jobs.delivery_audit.rules import Window


def audit_small(request: Request) -> Audit:
    """Audit what the request asks for, whose `work` and `screens` do not matter.

    Raises `LargeArchiveError`, and what `audit.audited` raises.
    """
    return Run(PlainArchive(request.objects), request, lambda _: InPython(request.progress)).audit()


def file_small(request: Request, outbox: str | None = None) -> dict[str, Any]:
    """Audit what the request asks for, file report and tables, send the verdict, and return the report.

    Raises what `audit_small` raises, and `OutboxError`.
    """
    # Of millions of rows none is in a cycle: to look for some takes a tenth of the time.
    gc.disable()
    try:
        audit = audit_small(request)
    finally:
        gc.enable()
    document = file_audit(request.output, audit, partial(write_tables, request.output, audit))
    send_verdicts(request.output, str(request.window), outbox)
    return document


def write_tables(output: Objects, audit: Audit, changes: Iterable[Finding]) -> None:
    """Write all tables beneath `output`, as `publication.write_tables` does with Spark."""
    day = day_of(audit)
    with open_session() as session:
        for name, table in tables(audit, changes).items():
            by_date = defaultdict[str, list[tuple[Any, ...]]](list)
            for date, *row in table.rows:
                by_date[date].append(tuple(row))
            for folder in [name] if day is None else [f"{name}/date={each}" for each in {day, *by_date}]:
                output.clear(folder)
            columns = table.columns[1:]
            for date, rows in by_date.items():
                place = f"{name}/date={date}/part-0"
                if name == REPLAY:
                    output.write(f"{place}.json.gz", _lines_of(columns, rows))
                else:
                    output.write(f"{place}.parquet", file_of(session, columns, rows))


def _lines_of(columns: Sequence[Column], rows: Iterable[tuple[Any, ...]]) -> bytes:
    """Return the rows as lines of JSON, without members that are null, as Spark writes them."""
    names = [each.name for each in columns]
    members = (
        {name: each for name, each in zip(names, row, strict=True) if each is not None} for row in rows
    )
    return gzip.compress("".join(f"{to_json(each)}\n" for each in members).encode(), mtime=0)


class InPython(InProcess):
    """The events of a small archive, read and judged in this process."""

    engine = PYTHON

    def __init__(self, progress: Callable[[str], None]) -> None:
        super().__init__(progress)
        self._numbers: dict[Any, int] = {}

    def ledger(self, part: Part, window: Window) -> Any:
        return plain_rows.ledger_rows(part.rows, window, self._number)

    def handovers(self, part: Part, window: Window) -> Any:
        return plain_rows.handover_rows(part.rows, window, self._number)

    def tap(self, read: Callable[..., Part], window: Window, history: ContractHistory) -> Any:
        return plain_rows.tap_rows(read().rows, window, plain_rows.expected_routes(history), self._number)

    def device_hours(self, tap: Any, contracts: Sequence[Contract]) -> Any:
        return plain_rows.device_hours(tap, contracts)

    def nameless(self, tap: Any, handovers: Any) -> list[BadRow]:
        return super().nameless([each.grouped for each in tap], handovers)

    def _take(self, table: Any, *_: Any) -> None:
        self._rows += table

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
