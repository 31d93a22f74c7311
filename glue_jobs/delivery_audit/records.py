"""Which rows of a group can be judged: each once, good ones apart from those that nobody understands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, TypeVar

from eventplane.delivery import Outcome
from eventplane.handover import HANDOVERS
from eventplane.ledger import LEDGER, TAP, Basis
from glue_jobs.delivery_audit.event_group import BadRow, HandoverRow, LedgerRow, TapRow
from glue_jobs.delivery_audit.window import LAST_MS

UNREADABLE: Final = "unreadable_line"
"""The line is no JSON, or a member has another type than its record's."""

MISSING_MEMBER: Final = "missing_member"
IMPOSSIBLE_TIME: Final = "impossible_time"
DELIVERED_NOWHERE: Final = "delivered_nowhere"
UNKNOWN_MEMBER: Final = "unknown_member"
UNKNOWN_OUTCOME: Final = "unknown_outcome"
UNKNOWN_BASIS: Final = "unknown_basis"
UNKNOWN_CONTRACT: Final = "unknown_contract"
"""Why a row is not judged. The unknown ones are what a newer version may write."""

_NEWER: Final = frozenset({UNKNOWN_MEMBER, UNKNOWN_OUTCOME, UNKNOWN_BASIS, UNKNOWN_CONTRACT})

HANDOVER_ENDS: Final = frozenset({Outcome.DELIVERED, Outcome.DEAD_LETTERED, Outcome.EXPIRED, Outcome.DROPPED})
"""What can become of an event at an endpoint."""

MAX_TEXT: Final = 4_000
"""Most characters of a row that are kept in quarantine. Ours: enough to see what it is."""

_OUTCOMES: Final = frozenset(map(str, Outcome))
_BASES: Final = frozenset({None, *map(str, Basis)})

_Row = TypeVar("_Row", LedgerRow, HandoverRow)


class Unclear(NamedTuple):
    """A row that was not judged, by what can be read of it: it neither proves nor accuses.

    `route` is that of the ledger, or the inbox of the handovers; None: the row may speak of any.
    `is_understood` is false where a newer version may have written it, or where it names an event and no more
    can be read of it.
    """

    row: BadRow
    route: str | None
    is_understood: bool


def each_place_once(rows: Sequence[TapRow]) -> list[TapRow]:
    """Return the copies in the order of their acceptance.

    The same place in the same message is one copy, which the tap's queue or two objects have twice.
    """
    if len(rows) < 2:
        return list(rows)
    places: dict[tuple[object, ...], TapRow] = {}
    for row in sorted(rows, key=_tap_order):
        places.setdefault((row.message_id, row.place, row.client_id, row.service), row)
    return list(places.values())


def _tap_order(row: TapRow) -> tuple[object, ...]:
    # One that is not understood does not stand in the way of one that is.
    return (row.unknown_members, *row[:6], *("" if each is None else str(each) for each in row[6:]))


def each_once(rows: Sequence[_Row]) -> Sequence[_Row]:
    """Return the rows without those that lie in another object as well: archives are written at least once.

    Equal rows of one object are copies of an event that came in one frame; they stay.
    """
    if len(rows) < 2 or len({row[:-2] for row in rows}) == len(rows):
        return rows
    in_files = Counter((row[:-2], row.file) for row in rows)
    kept: dict[tuple[object, ...], tuple[int, str]] = {}
    for (said, file), count in in_files.items():
        most = kept.get(said)
        # The object that has it most often; of several the first by name.
        if most is None or (-count, file) < (-most[0], most[1]):
            kept[said] = count, file
    return [row for row in rows if kept[row[:-2]][1] == row.file]


def ledger_fault(row: LedgerRow, versions: Collection[str]) -> str | None:
    """Return why a ledger row cannot be judged by the contracts of these `versions`; None if it can."""
    if None in row[:6] or row.outcome is None:
        return MISSING_MEMBER
    if not (0 <= row.decided_at_ms <= LAST_MS and 0 <= row.entered_at_ms <= LAST_MS):
        return IMPOSSIBLE_TIME
    if row.unknown_members:
        return UNKNOWN_MEMBER
    if row.outcome not in _OUTCOMES:
        return UNKNOWN_OUTCOME
    if row.basis not in _BASES:
        return UNKNOWN_BASIS
    if row.outcome == "delivered" and (row.route is None or row.destination is None):
        return DELIVERED_NOWHERE
    return None if row.contract_version in versions else UNKNOWN_CONTRACT


def handover_fault(row: HandoverRow) -> str | None:
    """Return why a row of the handovers cannot be judged; None if it can."""
    needed = row.decided_at_ms, row.entered_at_ms, row.channel, row.source, row.id, row.outcome
    if None in needed:
        return MISSING_MEMBER
    if not (0 <= row.decided_at_ms <= LAST_MS and 0 <= row.entered_at_ms <= LAST_MS):
        return IMPOSSIBLE_TIME
    if row.unknown_members:
        return UNKNOWN_MEMBER
    return None if row.outcome in HANDOVER_ENDS else UNKNOWN_OUTCOME


def unclear_ledger(row: LedgerRow, reason: str) -> Unclear:
    """Return a ledger row as one that was not judged."""
    # Which routes a contract has that nobody knows, nobody knows.
    route = None if reason == UNKNOWN_CONTRACT else row.route
    return Unclear(_bad(LEDGER, row, reason), route, reason not in _NEWER)


def unclear_handover(row: HandoverRow, reason: str) -> Unclear:
    """Return a row of the handovers as one that was not judged."""
    return Unclear(_bad(HANDOVERS, row, reason), row.channel, reason not in _NEWER)


def unclear_tap(row: TapRow) -> Unclear:
    """Return a row of the tap that has unknown members as one that was not judged."""
    return Unclear(_bad(TAP, row, UNKNOWN_MEMBER), None, is_understood=False)


def unclear_line(row: BadRow, versions: Collection[str]) -> Unclear:
    """Return what the reader found to be bad, with what its text says."""
    try:
        members = json.loads(row.text or "")
    except ValueError:
        # A line that was cut: nobody knows more than whom it is about, if that.
        return Unclear(row, None, row.id is None)
    if not isinstance(members, dict):
        return Unclear(row, None, is_understood=True)
    route = members.get("channel" if row.archive == HANDOVERS else "route")
    if not isinstance(route, str) or (
        row.archive == LEDGER and members.get("contract_version") not in versions
    ):
        route = None
    # Valid JSON whose members have other types is what another version writes.
    return Unclear(row, route, row.reason != UNREADABLE)


def _bad(archive: str, row: TapRow | LedgerRow | HandoverRow, reason: str) -> BadRow:
    members = {name: value for name, value in zip(row._fields, row, strict=True) if value is not None}
    for name in ("file", "unknown_members"):
        members.pop(name, None)
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))[:MAX_TEXT]
    sender = None if isinstance(row, TapRow) else row.sender
    return BadRow(archive, _folder_date(row.file), row.file, reason, text, sender, row.source, row.id)


def _folder_date(file: str) -> str:
    """The date of the folder in which an object lies; '' where its name has none."""
    return next((part[5:] for part in file.split("/") if part.startswith("date=")), "")
