"""Items that the cloud refused, against the router's own record of them.

Counts are compared, not items: what is no event has no source and id, and the tap's queue gave its message
another id than the router's queue did. The device, the reason and the time of acceptance both have. Neither
queue delivers just once, so the tap's copies are told by place and bytes, the router's by its attempts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from eventplane.contract import Place
from eventplane.delivery import Outcome
from eventplane.ledger import LEDGER, TAP
from glue_jobs.delivery_audit.contract_rules import AuditRules
from glue_jobs.delivery_audit.event_group import (
    LETTERS,
    LETTERS_MISSING,
    LETTERS_PENDING,
    LETTERS_UNRECORDED,
    ROWS,
    UNRECORDED_IN_HOUR,
    HoleCount,
    Judgement,
    LedgerRow,
    LetterCount,
    RefusedItem,
    RowCount,
)
from glue_jobs.delivery_audit.findings import Finding, Kind
from glue_jobs.delivery_audit.hops import Hop
from glue_jobs.delivery_audit.window import date_of


def judge_items(
    items: Sequence[RefusedItem], rows: Collection[LedgerRow], rules: AuditRules, into: Judgement
) -> None:
    """Judge the refused items of one client, reason and time, with the ledger's `rows` about such items."""
    places = {(each.place, each.digest) for each in items}
    recorded = _recorded(rows)
    missing = max(len(places) - recorded, 0)
    reason = items[0].reason if items else min((row.reason or "" for row in rows), default="")
    letter = str(Place.CLOUD), reason or None
    counts = into.counts
    counts[RowCount(ROWS, TAP)] += len(places)
    counts[LetterCount(LETTERS, *letter)] += recorded
    if not items:
        return
    accepted_at_ms = items[0].accepted_at_ms
    known: dict[str, Any] = {
        "date": date_of(accepted_at_ms),
        "hop": str(Hop.ROUTER),
        "device": items[0].client_id,
        "archive_file": min(each.file for each in items),
        "at_ms": accepted_at_ms,
    }
    dead = Finding(kind=str(Kind.DEAD_LETTERED), detail=reason, **known)
    into.findings += [dead] * (len(places) - missing)
    if not missing:
        return
    counts[LetterCount(LETTERS_MISSING, *letter)] += missing
    if rules.is_open(accepted_at_ms):
        counts[LetterCount(LETTERS_PENDING, *letter)] += missing
    elif (hole := rules.hole(LEDGER, accepted_at_ms)) is not None:
        counts[LetterCount(LETTERS_UNRECORDED, *letter)] += missing
        counts[HoleCount(UNRECORDED_IN_HOUR, LEDGER, hole)] += missing
    else:
        lost = Finding(kind=str(Kind.LOST), detail=f"no record of an item refused as {reason}", **known)
        into.findings += [lost] * missing


def _recorded(rows: Collection[LedgerRow]) -> int:
    """How many dead letters of items there are.

    A message that came again was recorded again, all its items in each attempt: the largest attempt counts.
    """
    attempts: defaultdict[str | None, Counter[int | None]] = defaultdict(Counter)
    for row in rows:
        if row.outcome == Outcome.DEAD_LETTERED:
            attempts[row.message_id][row.attempt] += 1
    return sum(max(each.values()) for each in attempts.values())
