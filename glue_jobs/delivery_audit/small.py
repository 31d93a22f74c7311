"""The audit of a small archive without Spark: the decisions of `audit`, on rows that Python has read.

For simulated histories and tests, a thousand of which are judged in a minute. It takes raw lines only, and
trusts that they are few: all rows are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eventplane.contract import Contract
from glue_jobs.common.archive import Part
from glue_jobs.common.lines import LineArchive
from glue_jobs.delivery_audit import plain_rows
from glue_jobs.delivery_audit.audit import Audit, InProcess, Request, Run
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.event_group import BadRow
from glue_jobs.delivery_audit.publication import file_audit, send_verdicts
from glue_jobs.delivery_audit.rules import Window


def audit_small(request: Request) -> Audit:
    """Audit what the request asks for, whose `work` and `screens` do not matter.

    Raises `CompactedHourError`, and what `audit.audited` raises.
    """
    return Run(LineArchive(request.objects), request, lambda _: InPython(request.progress)).audit()


def file_small(request: Request) -> dict[str, Any]:
    """Audit what the request asks for, file the report without tables, and return it; see `audit_small`."""
    document = file_audit(request.output, audit_small(request), lambda _: None)
    send_verdicts(request.output, str(request.window), None)
    return document


class InPython(InProcess):
    """The events of a small archive, read and judged in this process."""

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
