"""Rows that no reader can use, and items that are no events: beside right rows, none of which is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from eventplane.dead_letter import ROUTER_SOURCE
from eventplane.envelope import Sender
from eventplane.ingest import IngestFrame
from eventplane.ledger import LEDGER, TAP, LedgerRecord, TapRecord, tap_records, to_line
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.findings import Hop, Kind
from lab.archive_generator.records import Case, decided, letters
from lab.archive_generator.truth import Truth

WAYS: Final = ("cut", "text_for_number", "missing_member", "impossible_time", "no_identity")
"""How a row is malformed."""


def malformed(case: Case, way: str, number: int) -> tuple[str, int, str, str]:
    """A row after the pattern of one of `case`: its folder, time of writing, line, and what marks it.

    Rows of tap and ledger take turns by `number`; a ledger row keeps its names.
    """
    mark = f"malformed-{number:06d}"
    row = case.ledger[0] if number % 2 and way != "no_identity" else case.tap[0]
    folder, at_ms = (
        (LEDGER, row.decided_at_ms) if isinstance(row, LedgerRecord) else (TAP, row.archived_at_ms)
    )
    return folder, at_ms, _line(row, way, mark), mark


def _line(row: TapRecord | LedgerRecord, way: str, mark: str) -> str:
    # The mark is in a member that stands before the cut and is never the one that is wrong.
    line = to_line(replace(row, message_id=mark))
    if way == "cut":
        return line[: line.index(mark) + len(mark) + 20]
    members = json.loads(line)
    time = "entered_at_ms" if isinstance(row, LedgerRecord) else "accepted_at_ms"
    if way == "text_for_number":
        members[time] = "yesterday"
    elif way == "missing_member":
        del members[time]
    elif way == "impossible_time":
        members[time] = -1
    else:
        members["event"] = '{"specversion":"1.0"}'
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


def refused_item(case: Case, recorded: bool) -> tuple[list[TapRecord], list[LedgerRecord], Truth]:
    """An item of the device that is no event, beside the event of `case`, with the router's record of it.

    Not `recorded`, it has vanished: lost at the router. It has no names; its time of acceptance tells it.
    """
    passage = case.passage
    item = f"{passage.index}-refused"
    message = f"{passage.tap_message}-{item}"
    # A millisecond of its own, though one frame has several of them: the time identifies it.
    at_ms = passage.accepted_at_ms + 1 + passage.index
    payload = b'{"specversion":"1.0","id":"no type"}'
    frame = IngestFrame(payload, case.tap[0].topic, passage.client_id, "", at_ms)
    tap = tap_records(frame, message, passage.archived_at_ms + 1)
    reason = tap[0].refusal
    dead = replace(
        decided(case),
        entered_at_ms=at_ms,
        source="",
        id="",
        type="",
        route=None,
        destination=None,
        outcome=Outcome.DEAD_LETTERED,
        reason=reason,
        message_id=f"{passage.router_message}-{item}",
        sender=str(Sender(passage.client_id)),
        digest=None,
    )
    ends = [
        replace(each, message_id=dead.message_id)
        for each in letters(case, ROUTER_SOURCE, f"{dead.message_id}.0")
    ]
    truth = Truth(
        kind=Kind.DEAD_LETTERED if recorded else Kind.LOST,
        hop=Hop.ROUTER,
        device=passage.client_id,
        at_ms=at_ms,
        detail=reason,
    )
    return tap, [dead, *ends] if recorded else [], truth
