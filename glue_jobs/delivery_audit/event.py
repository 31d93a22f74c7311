"""The rows of a group: which can be judged, and what those of one event make of it. No Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.ledger import HANDOVERS, LEDGER, TAP, Basis
from eventplane.names import PLANE, SEQUENCE
from eventplane.reader_receipts import SETTLED_BEFORE
from eventplane.reasons import REDRIVE, REPLAY, Outcome
from glue_jobs.delivery_audit.event_group import (
    NO_ROUTE,
    UNWANTED,
    BadRow,
    EventGroup,
    HandoverRow,
    LedgerRow,
    TapRow,
)
from glue_jobs.delivery_audit.findings import Kind
from glue_jobs.delivery_audit.rules import LAST_MS, AuditRules, Window, date_of, is_time

LONGEST_DECISION_MS: Final = 180_000
"""Longest from a message's first receive to a decision at that receive, milliseconds. For so long the
routers' queues hide a message (`stacks.function_size`); then it is received a second time."""

CLOCK_SLACK_MS: Final = 5_000
"""How far a router's clock may be behind those of IoT Core and the queue, milliseconds. Ours: AWS keeps its
clocks within far less."""

UNREADABLE: Final = "unreadable_line"
"""The line is not JSON, or a member has another type than its record's."""

MISSING_MEMBER: Final = "missing_member"
IMPOSSIBLE_TIME: Final = "impossible_time"
"""Why a row is not judged: it lacks what every record has, or has no time that can be: none, one before 1970,
behind 9999, or of a message that was received before it was accepted."""

UNNUMBERED: Final = f"unreadable_{SEQUENCE}"
"""What cannot be read of an event in the tap, where that is its number. It is judged, but for its order."""

MAX_TEXT: Final = 4_000
"""Most characters of a row that are kept in quarantine. Ours: enough to see what it is."""

UNKNOWN_CONTRACT: Final = "unknown_contract"
_UNKNOWN_MEMBER: Final = "unknown_member"
_UNKNOWN_OUTCOME: Final = "unknown_outcome"
_UNKNOWN_BASIS: Final = "unknown_basis"
_UNREAD: Final = "unreadable_"
_UNBELIEVABLE: Final = "impossible_end"
_NEWER: Final = (_UNKNOWN_MEMBER, _UNKNOWN_OUTCOME, _UNKNOWN_BASIS, UNKNOWN_CONTRACT)
"""Why a row is not judged that a newer version may have written."""

_HTTP_STATUSES: Final = range(100, 600)
"""The status codes that HTTP has (RFC 9110, section 15)."""

_TAKEN: Final = range(200, 300)
"""Those by which an endpoint takes an event."""

_OUTCOMES: Final = frozenset(map(str, Outcome))
_BASES: Final = frozenset({None, *map(str, Basis)})
_HANDOVER_ENDS: Final = frozenset(
    {Outcome.DELIVERED, Outcome.DEAD_LETTERED, Outcome.EXPIRED, Outcome.DROPPED}
)
_Row = TypeVar("_Row", LedgerRow, HandoverRow)

UNBACKED: Final = "(unbacked)"
"""Stands for the outcome of a decision that says `dead_lettered` and has nothing to show for it."""


class LedgerDecision(NamedTuple):
    """A row of the ledger with the `route` that it took, and the `outcome` that is believed."""

    route: str
    outcome: str
    row: LedgerRow


class Event:
    """The archive's rows of one event, each once.

    Its rows are those of the window: the `copies` that were accepted in it, and the ledger's rows of their
    frames, wherever the times of these lie. `others` are copies of the days around. `contested` are rows of
    the ledger whose frame has another time in the tap; the event `is_displaced` where the tap has it on
    another day and only these name this one, `is_elsewhere` where nothing does. `unclear` are rows about it
    that were not judged. `copies` in the tap are in the order of acceptance, `decisions` in that of time.
    `expected` are the routes of the contracts in force; of these `forwarded` had to reach an inbox,
    `unwanted` had not. `versions` are the contracts by which it is judged, of each frame that of its last
    decision; `early` are the decisions that a router made before it saw the contract in force.
    """

    def __init__(self, sender: str) -> None:
        self.sender = sender
        self.copies: list[TapRow] = []
        self.others: list[TapRow] = []
        self.contested: frozenset[LedgerRow] = frozenset()
        self.ledger: list[LedgerRow] = []
        self.handovers: list[HandoverRow] = []
        self.unclear: list[Unclear] = []
        self.first: TapRow | None = None
        self.decisions: list[LedgerDecision] = []
        self.versions: list[str] = []
        self.early: list[LedgerRow] = []
        self.expected: Sequence[str] = ()
        self.forwarded: Collection[str] = ()
        self.unwanted: Collection[str] = ()
        self.is_elsewhere = self.is_displaced = False
        self.window = Window()
        self.is_routed = False
        self.was_replayed = False
        self.is_dead_lettered = False
        self.given_up: Sequence[LedgerRow] = ()

    def settle(self, rules: AuditRules, dead_letters: Collection[str]) -> None:
        """Work out the rest from the rows; `dead_letters` are ids of dead letters that somebody received."""
        self._cut(rules)
        self.first = self.copies[0] if self.copies else None
        if len(self.ledger) > 1:
            self.ledger.sort(key=_ledger_order)
        if len(self.handovers) > 1:
            self.handovers.sort(key=_handover_order)
        for row in () if self.is_displaced else self.ledger:
            self._take(row, rules, dead_letters)
        in_force = _last_versions([row for row in self.ledger if row.is_by_contract_in_force])
        first = self.first
        # A replay or a redrive decides for some routes, by the contract of its own time.
        known = in_force or _versions(self.early) or (_versions(self.ledger) if first is None else [])
        self.versions = known or [rules.in_force_at(first and first.accepted_at_ms, first and first.followed)]
        if first is not None:
            self._expect(first, rules)

    @property
    def payloads_around(self) -> int:
        """The number of payloads of its copies that were accepted in the window or on a day around it."""
        return len({each.data_digest for each in (*self.copies, *self.others)} - {None})

    def _cut(self, rules: AuditRules) -> None:
        """Keep the rows of the window, once tap and ledger are joined by their frames.

        A frame has one time of acceptance, which the IoT rule gives to both queues. What the ledger has at
        another time belongs to the first copy, and to its own day; without a copy to its own day alone.
        """
        self.window = rules.window
        within = {copy.accepted_at_ms: copy.within for copy in self.copies}
        is_first_within = any(copy.within for copy in self.copies[:1])
        kept = [row for row in self.ledger if within.get(row.entered_at_ms, row.within or is_first_within)]
        contested = [
            row for row in kept if within and row.entered_at_ms not in within and rules.is_of_frame(row)
        ]
        self.contested = frozenset(contested)
        self.others = [copy for copy in self.copies if not copy.within]
        self.copies = [copy for copy in self.copies if copy.within]
        self.is_displaced = bool(contested and not self.copies)
        self.is_elsewhere = not self.copies and not kept and bool(self.others or self.ledger)
        self.ledger = contested if self.is_displaced else kept

    def _take(self, row: LedgerRow, rules: AuditRules, dead_letters: Collection[str]) -> None:
        outcome = row.outcome
        if outcome == Outcome.DEAD_LETTERED:
            self.is_dead_lettered = True
            if not self._is_backed(row, rules, dead_letters):
                outcome = UNBACKED
        route = rules.by_version[row.contract_version].route_taken(row)
        self.decisions.append(LedgerDecision(route, outcome, row))
        if row.reason == REPLAY:
            self.was_replayed = True
        if row.basis == Basis.BUNDLED:
            self.early.append(row)

    def _is_backed(self, row: LedgerRow, rules: AuditRules, dead_letters: Collection[str]) -> bool:
        """Return whether the event could have been refused, and its dead letter was delivered."""
        return letter_id(row.sender or "", row.source, row.id) in dead_letters and rules.is_refusable(row)

    def _expect(self, first: TapRow, rules: AuditRules) -> None:
        taken, by_version = first.routes, rules.by_version
        others = [
            each
            for each in self.decisions
            if not each.row.is_by_contract_in_force or each.row.contract_version not in self.versions
        ]
        if len(self.versions) == 1 and not others:
            forwarded, unwanted = _parted(taken[by_version[self.versions[0]].number])
        else:
            # Copies of an event may have met routers of two versions: then the routes of both are expected.
            due = dict.fromkeys(_names(taken, rules, self.versions))
            # What went out before the contract in force was known, by one that was in force at an earlier
            # attempt, or again under a later one, may go where that one does not lead.
            went = {each.route for each in others}
            versions = _versions(each.row for each in others)
            due |= dict.fromkeys(each for each in _names(taken, rules, versions) if each in went)
            # What an operator put back was there before, by whichever contract: the router that put it there
            # may have ended before it said so.
            put_back = {each.route for each in others if each.row.reason == REDRIVE}
            due |= dict.fromkeys(each for each in _names(taken, rules, by_version) if each in put_back)
            forwarded, unwanted = _parted(" ".join(due))
        self.forwarded, self.unwanted = forwarded, unwanted
        expected = forwarded if not unwanted else tuple(dict.fromkeys((*forwarded, *unwanted)))
        if NO_ROUTE in expected:
            owed = tuple(each for each in expected if each != NO_ROUTE)
            self.is_routed = bool(owed)
            outcomes = {each.outcome for each in self.decisions}
            # What was delivered though no route takes it has strayed. It has not vanished as well.
            strayed = Outcome.DELIVERED in outcomes and Outcome.UNROUTED not in outcomes
            self.expected = owed if strayed else expected
        else:
            self.is_routed = bool(expected)
            self.expected = expected

    @property
    def date(self) -> str:
        """The day of the window to which the event belongs, by acceptance or entry; `YYYY-MM-DD`."""
        if self.first is not None:
            at_ms = self.first.accepted_at_ms
        else:
            at_ms = min((row.entered_at_ms for row in self.ledger or self.handovers), default=0)
        return self.window.nearest(date_of(at_ms))

    @property
    def client_id(self) -> str | None:
        """The client that brought it, as far as tap and ledger know."""
        return self.first.client_id if self.first else self.ledger[0].client_id if self.ledger else None

    @property
    def type(self) -> str | None:
        """Its type, as far as tap and ledger know."""
        return self.first.type if self.first else self.ledger[0].type if self.ledger else None

    @property
    def payloads(self) -> int:
        """The number of payloads of the copies, as far as that is known; at least 1."""
        if len(self.copies) < 2:
            return 1
        return max(len({each.data_digest for each in self.copies} - {None}), 1)

    @property
    def other_digests(self) -> list[str]:
        """The ledger's digests of the event that none of the tap's copies in the same frame has.

        A frame has one time of acceptance. Rows of older versions have no digest.
        """
        frames: dict[int, set[str | None]] = {}
        for copy in self.copies:
            frames.setdefault(copy.accepted_at_ms, set()).add(copy.digest)
        known = ((row.digest, frames.get(row.entered_at_ms, ())) for row in self.ledger)
        return sorted({digest for digest, others in known if digest and others and digest not in others})

    @property
    def was_put_back(self) -> bool:
        """True if an operator alone put it into the channel, where the tap does not see it."""
        return bool(self.ledger) and all(row.put_back_by is not None for row in self.ledger)

    def is_by_other(self, row: LedgerRow, rules: AuditRules) -> bool:
        """Return whether a row was decided by a contract that was in force for other devices."""
        if self.first is None and rules.is_of_frame(row):
            return False
        copies = {copy.accepted_at_ms: copy.followed for copy in (*self.others, *self.copies)}
        named = copies.get(row.entered_at_ms, self.first and self.first.followed)
        return rules.is_of_others(row, named)

    def from_device(self, rules: AuditRules) -> bool:
        """Return whether the ledger has it from a device; dead letters of the cloud's router are not."""
        if self.was_put_back or not any(row.entered_by in rules.uplinks for row in self.ledger):
            return False
        return self.sender != PLANE or self.type != DEAD_LETTER_TYPE

    def was_best_effort(self, row: LedgerRow, rules: AuditRules) -> bool:
        """Return whether the contract, or the event in the tap, has the row's delivery at best effort."""
        asks = self.first is not None and self.first.asks_best_effort
        return rules.by_version[row.contract_version].is_best_effort(row, asks=asks)


class DecidedBetween(NamedTuple):
    """The earliest and the latest time of a decision, Unix milliseconds.

    They are one where nothing contradicts the router's clock, which is `skew_ms` ahead (negative: behind).
    """

    earliest_ms: int
    latest_ms: int
    skew_ms: int = 0


def decided_between(row: LedgerRow, *, is_contested: bool = False) -> DecidedBetween:
    """Return when a row was decided: by the router's clock, unless the other clocks say that it is wrong.

    Then by the queue's: for a decision at the first receive that bounds both sides. The time of entry is no
    evidence where it `is_contested`.
    """
    decided_ms = row.decided_at_ms
    entered_ms = 0 if is_contested else row.entered_at_ms
    earliest_ms, latest_ms = max(entered_ms, row.received_at_ms or 0), LAST_MS
    # The queue reports the first receive alone, so a later one is not bounded by it.
    if row.attempt == 1 and row.received_at_ms is not None and row.reason != REPLAY:
        latest_ms = max(row.received_at_ms + LONGEST_DECISION_MS, earliest_ms)
    if decided_ms > latest_ms:
        return DecidedBetween(earliest_ms, latest_ms, decided_ms - latest_ms)
    if decided_ms < earliest_ms - CLOCK_SLACK_MS:
        return DecidedBetween(earliest_ms, latest_ms, decided_ms - earliest_ms)
    return DecidedBetween(decided_ms, decided_ms)


def _versions(rows: Iterable[LedgerRow]) -> list[str]:
    return list(dict.fromkeys(row.contract_version for row in rows))


def _last_versions(rows: Sequence[LedgerRow]) -> list[str]:
    """Return the contracts by which each frame was decided last.

    What comes again is decided anew: a route that is gone by then owes nothing more.
    """
    if len(versions := _versions(rows)) < 2:
        return versions
    decided = [(row, decided_between(row).earliest_ms) for row in rows]
    last_ms: dict[int, int] = {}
    for row, at_ms in decided:
        last_ms[row.entered_at_ms] = max(at_ms, last_ms.get(row.entered_at_ms, 0))
    return _versions(row for row, at_ms in decided if at_ms == last_ms[row.entered_at_ms])


def _names(taken: Sequence[str], rules: AuditRules, versions: Iterable[str]) -> Iterable[str]:
    return (name for each in versions for name in taken[rules.by_version[each].number].split(" "))


@lru_cache(maxsize=4_096)
def _parted(names: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the routes to which an event was to be forwarded, and those to which it was not."""
    if UNWANTED not in names:
        return tuple(names.split(" ")), ()
    each = names.split(" ")
    return (
        tuple(name for name in each if not name.startswith(UNWANTED)),
        tuple(name.removeprefix(UNWANTED) for name in each if name.startswith(UNWANTED)),
    )


def _ledger_order(row: LedgerRow) -> tuple[object, ...]:
    return (row.decided_at_ms, row.entered_at_ms, *("" if each is None else str(each) for each in row[2:]))


def _handover_order(row: HandoverRow) -> tuple[object, ...]:
    # What was delivered is delivered, also where a copy was not: it comes first.
    failed = 2 if row.reason == SETTLED_BEFORE else int(row.outcome != Outcome.DELIVERED)
    return (failed, row.decided_at_ms, *("" if each is None else str(each) for each in row[1:]))


class Unclear(NamedTuple):
    """A row that was not judged, by what can be read of it: it neither proves nor accuses.

    `route` is that of the ledger, or the inbox of the handovers; None: the row may speak of any. `kind` is
    what is found: `not_understood` where a newer version may have written it, or where it names an event and
    no more can be read of it; `contradiction` where what it says cannot be; None: it is quarantined only.
    """

    row: BadRow
    route: str | None
    kind: Kind | None
    within: bool


def sorted_out(
    group: EventGroup, rules: AuditRules
) -> tuple[list[TapRow], list[LedgerRow], list[HandoverRow], list[Unclear]]:
    """Return the rows that can be judged, each once, and those that cannot.

    A row of the tap counts by its place in its message, one of ledger or handovers by all that it says.
    """
    unclear = [_unclear_line(each, rules) for each in group.bad]
    copies, ledger, handovers = list[TapRow](), list[LedgerRow](), list[HandoverRow]()
    for copy in _each_place_once(group.tap):
        if fault := tap_fault(copy):
            unclear.append(_unclear(TAP, copy, fault, None))
        else:
            copies.append(copy)
    for row in _each_once(group.ledger):
        fault = _ledger_fault(row, rules.by_version)
        if fault is None:
            ledger.append(row)
        else:
            # Which routes a contract has that nobody knows, nobody knows.
            route = None if fault == UNKNOWN_CONTRACT else row.route
            unclear.append(_unclear(LEDGER, row, fault, route))
    for end in _each_once(group.handovers):
        if fault := _handover_fault(end, rules.readers):
            unclear.append(_unclear(HANDOVERS, end, fault, end.channel))
        elif end.id:
            handovers.append(end)
    return copies, ledger, handovers, unclear


def _each_place_once(rows: Sequence[TapRow]) -> Sequence[TapRow]:
    """Return the copies in the order of acceptance, each place in a message once."""
    if len(rows) < 2:
        return rows
    places: dict[tuple[object, ...], TapRow] = {}
    for row in sorted(rows, key=tap_order):
        places.setdefault((row.message_id, row.place, row.client_id, row.service, row.unread), row)
    return list(places.values())


def tap_order(row: TapRow) -> tuple[object, ...]:
    """Return the key that sorts copies by acceptance, those that are not understood behind the others."""
    rest = ("" if each is None else str(each) for each in row[3:])
    return (tap_fault(row) is not None, row.accepted_at_ms, row.message_id or "", row.place or 0, *rest)


def _each_once(rows: Sequence[_Row]) -> Sequence[_Row]:
    """Return the rows without those that lie in another object as well: archives are written at least once.

    Equal rows of one object are copies of an event that came in one frame; they stay.
    """
    if len(rows) < 2 or len({row[:-3] for row in rows}) == len(rows):
        return rows
    kept: dict[tuple[object, ...], tuple[int, str]] = {}
    for (said, file), count in Counter((row[:-3], row.file) for row in rows).items():
        # The object that has it most often; of several the first by name.
        kept[said] = min(kept.get(said, (0, "")), (-count, file))
    return [row for row in rows if kept[row[:-3]][1] == row.file]


def tap_fault(row: TapRow) -> str | None:
    """Return why an event of the tap is not judged; None where it is."""
    if row.unknown_members:
        return _UNKNOWN_MEMBER
    return None if row.unread == UNNUMBERED else row.unread


def _ledger_fault(row: LedgerRow, versions: Collection[str]) -> str | None:
    if row.unknown_members:
        return _UNKNOWN_MEMBER
    if None in row[2:6] or row.outcome is None:
        return MISSING_MEMBER
    if not (is_time(row.decided_at_ms) and is_time(row.entered_at_ms)):
        return IMPOSSIBLE_TIME
    received_ms = row.decided_at_ms if row.received_at_ms is None else row.received_at_ms
    if received_ms < row.entered_at_ms - CLOCK_SLACK_MS <= row.decided_at_ms:
        return IMPOSSIBLE_TIME
    if row.outcome not in _OUTCOMES:
        return _UNKNOWN_OUTCOME
    if row.basis not in _BASES:
        return _UNKNOWN_BASIS
    if row.outcome == "delivered" and (row.route is None or row.destination is None):
        return "delivered_nowhere"
    if row.attempt is not None and row.attempt < 1:
        return _UNBELIEVABLE
    return None if row.contract_version in versions else UNKNOWN_CONTRACT


def _handover_fault(row: HandoverRow, readers: Collection[str]) -> str | None:
    if row.unknown_members:
        return _UNKNOWN_MEMBER
    if None in (row.channel, row.source, row.id, row.outcome):
        return MISSING_MEMBER
    if not (is_time(row.decided_at_ms) and is_time(row.entered_at_ms)):
        return IMPOSSIBLE_TIME
    if row.outcome not in _HANDOVER_ENDS:
        return _UNKNOWN_OUTCOME
    # A program that reads a queue answers by no HTTP status.
    if (row.channel in readers and row.status is None and (row.attempt or 0) > 0) or _is_possible_end(row):
        return None
    return _UNBELIEVABLE


def _is_possible_end(row: HandoverRow) -> bool:
    """Return whether the endpoint's answer can have led to the outcome that the row has."""
    is_taken = row.status in _TAKEN
    is_answer = row.status is None or row.status in _HTTP_STATUSES
    return is_answer and is_taken == (row.outcome == Outcome.DELIVERED) and (row.attempt or 0) > 0


def _unclear(archive: str, row: TapRow | LedgerRow | HandoverRow, reason: str, route: str | None) -> Unclear:
    # A hash says nothing to people.
    hidden = "file", "data_digest", "said_at_ms", "unknown_members", "within"
    members = {
        name: value for name, value in row._asdict().items() if value is not None and name not in hidden
    }
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))[:MAX_TEXT]
    date = next((part[5:] for part in row.file.split("/") if part.startswith("date=")), "")
    sender = None if isinstance(row, TapRow) else row.sender
    bad = BadRow(archive, date, row.file, reason, text, sender, row.source, row.id)
    return Unclear(bad, route, _kind(reason), row.within)


def _kind(reason: str) -> Kind | None:
    if reason in (IMPOSSIBLE_TIME, _UNBELIEVABLE):
        return Kind.CONTRADICTION
    return Kind.NOT_UNDERSTOOD if reason in _NEWER or reason.startswith(_UNREAD) else None


def _unclear_line(row: BadRow, rules: AuditRules) -> Unclear:
    """Return what the reader found to be bad, with what its text says."""
    within = rules.window.holds(row.date)
    try:
        members = json.loads(row.text or "")
    except (ValueError, RecursionError):
        # A line that was cut: nobody knows more than whom it is about, if that.
        return Unclear(row, None, None if row.id is None else Kind.NOT_UNDERSTOOD, within)
    if not isinstance(members, dict):
        return Unclear(row, None, None, within)
    route = members.get("channel" if row.archive == HANDOVERS else "route")
    version = members.get("contract_version")
    is_known = row.archive != LEDGER or (isinstance(version, str) and version in rules.by_version)
    # Valid JSON whose members have other types is what another version writes; in ledger and handovers, what
    # names no event is a record of another folder.
    is_other = row.archive != TAP and row.id is None
    kind = Kind.NOT_UNDERSTOOD if row.reason == UNREADABLE and not is_other else None
    return Unclear(row, route if isinstance(route, str) and is_known else None, kind, within)
