"""`eventplane contract rehearse NEW`: judge a contract on a day of the archive, before it is in force.

Objects of the archive are read by as many processes as there are cores. In memory is what is read of one
object in each, and of the day the deliveries that were late.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from contract.loader import load_contract, payload_check
from contract.rehearsal import (
    PAYLOAD_REASONS,
    Change,
    Effect,
    Rehearsal,
    RehearsalTally,
    Sent,
    Tapped,
    carried,
)
from eventplane.contract import (
    Contract,
    ContractError,
    Transport,
    compile_contract,
    contract_document,
    load_compiled,
)
from eventplane.contract.subscription import subscribed_routes
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.ledger import LEDGER, TAP, Basis
from eventplane.names import PLANE, PLANE_CLIENT
from eventplane.reasons import REDRIVE, REPLAY, Outcome, Reason
from eventplane_aws.prices import PRICES
from operations import system, text
from operations.archive import Days, add_archive, archive_of, check_row
from operations.command import DONE, END_UNKNOWN, FAILED, count, day, present, say
from operations.command_line import WRONG_WORDS

LATE_MS: Final = 1_000
"""From when on a decision's delay is remembered, milliseconds: the shortest expiry of a channel."""

AFTERMATH: Final = timedelta(hours=1)
"""How long after a day its last records are looked for. Ours: hours are the archive's folders."""

REQUESTS: Final = 3
"""Most requests of SQS for a delivery: sent, received, deleted. Batches need fewer."""

_REQUEST_USD: Final[Mapping[str, float]] = {
    Transport.SQS: PRICES["sqs_request"],
    Transport.SQS_FIFO: PRICES["sqs_fifo_request"],
}

_HOUR_MS: Final = 3_600_000

_STEPS: Final = 10
"""Reports of progress for each folder."""

T = TypeVar("T")


class NothingToRehearseError(EventPlaneError):
    """The archive has no events of a day. `problem` says what it has, or what to do."""

    day: str
    problem: str
    message = "the archive has no events of {day} to rehearse on: {problem}"


class NotInArchiveError(EventPlaneError):
    """The archive lacks the contract `version`, or it cannot be read."""

    version: str
    message = "the archive has no readable contract {version}, in force that day; name its file by --old"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("new", type=Path, metavar="NEW", help="the new contract, YAML or compiled (.json)")
    yesterday = system.now().date() - timedelta(days=1)
    parser.add_argument(
        "--date", type=day, default=yesterday, metavar="DAY", help="the UTC day of events; default: yesterday"
    )
    parser.add_argument(
        "--old",
        type=Path,
        metavar="FILE",
        help="the contract to compare with; default: the one in force at the day's end, from the archive",
    )
    parser.add_argument(
        "--jobs", type=count, default=os.cpu_count() or 1, metavar="N", help="processes; default: one a core"
    )
    add_archive(parser)
    parser.set_defaults(failed=WRONG_WORDS)  # 1 is a result
    parser.epilog = (
        "Exit status: 0 no alarm loses a reader or is worth less, 1 one does, 2 wrong usage, contract or "
        "archive, 3 none does as far as is known: records are damaged or do not say."
    )


def run(options: argparse.Namespace) -> int:
    """Print what would change, and return whether an alarm loses a reader or is worth less."""
    old, tally, damaged = rehearsed(options, new := load_contract(options.new))
    document = _document(options.date, old, new, tally, damaged)
    present(options, document, _text(document, tally))
    if tally.harmful:
        return FAILED
    return END_UNKNOWN if damaged or tally.unknown_alarms else DONE


@dataclass(frozen=True, slots=True)
class _Late:
    """Events of devices in the ledger: when those were decided that were late, and those that were refused.

    An event is a number of 64 bits. `hours`, since 1970, are those of events of devices in ledger or tap.
    """

    decided_ms: dict[int, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    hours: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Part:
    """What was found in one object."""

    tally: RehearsalTally
    late: _Late
    damaged: Mapping[str, str]


class _Reader:
    """Reads objects of the archive, and rehearses the events in them; one in each process."""

    def __init__(
        self, options: argparse.Namespace, old: bytes, new: bytes, late: _Late | None = None
    ) -> None:
        self._days = _days(options)
        self._old = load_compiled(old, "old")
        self._rehearsal = Rehearsal(self._old, load_compiled(new, "new"), payload_check)
        self._span = range(_ms(options.date), _ms(options.date + timedelta(days=1)))
        self._late = late or _Late()

    def read(self, folder: str, name: str) -> _Part:
        """Rehearse the events of an object of ledger or tap."""
        late = self._read_ledger(name) if folder == LEDGER else self._read_tap(name)
        damaged = dict(self._days.damaged)
        self._days.damaged.clear()
        return _Part(self._rehearsal.tally(), late, damaged)

    def _read_ledger(self, name: str) -> _Late:
        found = _Late()
        uplink = self._old.device.outbox.address
        for row in self._days.rows_of(name, decision_row):
            if row["entered_at_ms"] in self._span and row["id"] and row["reason"] not in (REDRIVE, REPLAY):
                if row["entered_by"] != uplink or row["put_back_by"] or _is_own_letter(row):
                    self._take_sent(row)
                else:
                    _note(row, found)
                    found.hours.add(row["entered_at_ms"] // _HOUR_MS)
        return found

    def _read_tap(self, name: str) -> _Late:
        late, refused, hours = self._late.decided_ms, self._late.refused, set[int]()
        for each in self._days.rows_of(name, tapped_row):
            if each.accepted_at_ms in self._span:
                hours.add(each.accepted_at_ms // _HOUR_MS)
                if late or refused:
                    number = _number(*each.example, each.accepted_at_ms)
                    decided_ms = late.get(number, each.accepted_at_ms)
                    each = each._replace(decided_at_ms=decided_ms, is_refused=number in refused)
                self._rehearsal.take(each)
        return _Late(hours=hours)

    def _take_sent(self, row: Mapping[str, Any]) -> None:
        is_of_devices = row["entered_by"] == self._old.device.outbox.address
        if is_of_devices and _is_own_letter(row) and row["dead_letter_reason"] in _WITH_EVENT:
            return  # it is judged with the event that it is about
        delay_ms = row["decided_at_ms"] - row["entered_at_ms"]
        is_delivered = row["outcome"] == Outcome.DELIVERED
        named = {name: row[name] for name in Sent._fields[:-2]}
        self._rehearsal.take_sent(Sent(**named, is_delivered=is_delivered, delay_ms=delay_ms))


_WITH_EVENT: Final = (*PAYLOAD_REASONS, Reason.SENDER_NOT_ALLOWED)


def _is_own_letter(row: Mapping[str, Any]) -> bool:
    names: tuple[str, str, str | None] = row["sender"], row["type"], row["client_id"]
    return names[:2] == (PLANE, DEAD_LETTER_TYPE) and names[2] != PLANE_CLIENT


def _note(row: Mapping[str, Any], found: _Late) -> None:
    outcome = row["outcome"]
    is_refused = outcome == Outcome.DEAD_LETTERED and row["reason"] in PAYLOAD_REASONS
    is_late = outcome == Outcome.EXPIRED or row["decided_at_ms"] - row["entered_at_ms"] >= LATE_MS
    if is_refused or is_late:
        number = _number(row["sender"], row["source"], row["id"], row["entered_at_ms"])
        if is_refused:
            found.refused.add(number)
        if is_late:
            found.decided_ms[number] = max(row["decided_at_ms"], found.decided_ms.get(number, 0))


def _number(*names: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(names).encode(), digest_size=8).digest(), "big")


_LATER: Final = {"sender": "", "put_back_by": None, "dead_letter_reason": None, "basis": None}
"""What rows of the ledger lack that were written before it had them."""


def decision_row(line: bytes) -> dict[str, Any]:
    """Return a row of the ledger. Raises ValueError, LookupError and TypeError."""
    row: dict[str, Any] = json.loads(line)
    check_row(row, LEDGER)
    return _LATER | row


def tapped_row(line: bytes) -> Tapped | None:
    """Return a row of the tap; None for an item that is no event. Raises as `decision_row`."""
    row = json.loads(line)
    check_row(row, TAP)
    if row["event"] is None:
        return None
    client, accepted_ms, ends_ms = row["client_id"], row["accepted_at_ms"], row.get("expires_at_ms")
    try:
        envelope = parse_event(row["event"])
    except EnvelopeError as error:
        raise ValueError(str(error)) from error
    return Tapped(envelope, client, accepted_ms, ends_ms, accepted_ms)


def rehearsed(
    options: argparse.Namespace, new: Contract, former: Contract | None = None
) -> tuple[Contract, RehearsalTally, dict[str, str]]:
    """Return the contract that was in force, what `new` changes, and the damaged objects with the reason.

    With `former` it is that one, with what participants subscribed as far as the archive says. Raises
    `NothingToRehearseError`, `NotInArchiveError`.
    """
    days = _days(options)
    names = {folder: list(days.names(folder, _hours(options.date))) for folder in (LEDGER, TAP)}
    if not names[TAP] and not names[LEDGER]:
        remedy = "name another day by --date, or another archive by --archive"
        raise NothingToRehearseError(str(options.date), days.left(TAP) or remedy)
    old = load_contract(options.old) if options.old else _in_force(days, names[LEDGER], options.date)
    if former and not is_derived(old, former):
        old = former  # of a roll-out that went back, for instance
    say(f"{options.date}: {new.name} {new.version} in place of {old.version}")
    texts = old.canonical, carried(old, new).canonical
    total, late, damaged = RehearsalTally(), _Late(), dict[str, str]()
    unseen: set[int] = set()
    for folder in (LEDGER, TAP):
        for part in _parts(folder, names[folder], options, (*texts, late)):
            total.add(part.tally)
            late.decided_ms.update(part.late.decided_ms)
            late.refused.update(part.late.refused)
            unseen = unseen | part.late.hours if folder == LEDGER else unseen - part.late.hours
            damaged |= part.damaged
    for hour in sorted(unseen):
        name = f"{TAP}/{datetime.fromtimestamp(hour * 3_600, UTC):date=%Y-%m-%d/hour=%H}"
        damaged[name] = "it has no event of a device, and the ledger has"
    if not (total.events or total.deliveries or damaged):
        raise NothingToRehearseError(str(options.date), "no row of it is of that day, or could be read")
    return old, total, damaged


def is_derived(contract: Contract, former: Contract) -> bool:
    """Return whether `contract` is `former` with what participants subscribed and announced."""
    document = contract_document(contract)
    subscribed = {each.name for each in subscribed_routes(contract)}
    document["routes"] = {
        name: {key: value for key, value in each.items() if key != "interest"}
        for name, each in document["routes"].items()
        if name not in subscribed
    }
    return compile_contract(document, "archived").version == former.version


def _days(options: argparse.Namespace) -> Days:
    return Days(archive_of(options), options.date, options.date + timedelta(days=1))


def _hours(of: date) -> tuple[datetime, datetime]:
    """Return the hours in which the archive has a day: the day's own, and those right after it."""
    begin = datetime.combine(of, time(), UTC)
    return begin, begin + timedelta(days=1) + AFTERMATH - timedelta(seconds=1)


def _ms(of: date) -> int:
    return int(datetime.combine(of, time(), UTC).timestamp()) * 1_000


def _in_force(days: Days, names: Sequence[str], of: date) -> Contract:
    """Return the contract by which most decisions were made at the day's end. Raises `EventPlaneError`."""
    end_ms = _ms(of + timedelta(days=1))
    for name in reversed(names):
        rows = [
            each
            for each in days.rows_of(name, decision_row)
            if each["basis"] in (None, Basis.IN_FORCE) and each["decided_at_ms"] < end_ms
        ]
        if rows:
            # Not the last one: a candidate decides too, for few devices.
            version = Counter(each["contract_version"] for each in rows).most_common(1)[0][0]
            compiled = days.contract(version)
            try:
                return load_compiled(compiled or b"", f"the archived contract {version}")
            except ContractError as error:
                raise NotInArchiveError(version) from error
    raise NothingToRehearseError(str(of), "its ledger names no contract in force; name one by --old")


_READERS: Final[list[_Reader]] = []
"""The reader of this process, one of a pool."""


def _begin(*made_of: Any) -> None:
    _READERS.append(_Reader(*made_of))


def _read(folder: str, name: str) -> _Part:
    return _READERS[-1].read(folder, name)


def _parts(
    folder: str,
    names: Sequence[str],
    options: argparse.Namespace,
    made_of: tuple[bytes, bytes, _Late],
) -> Iterator[_Part]:
    jobs = min(options.jobs, len(names))
    if jobs < 2:
        read = partial(_Reader(options, *made_of).read, folder)
        yield from _told(folder, len(names), map(read, names))
        return
    with system.processes(jobs, initializer=_begin, initargs=(options, *made_of)) as pool:
        yield from _told(folder, len(names), pool.map(partial(_read, folder), names))


def _told(folder: str, of: int, parts: Iterator[_Part]) -> Iterator[_Part]:
    """Yield the parts, and report how many there were."""
    events = 0
    for at, part in enumerate(parts, start=1):
        events += part.tally.events
        if at == of or at * _STEPS // of > (at - 1) * _STEPS // of:
            sum_of = f", {events:,} events" if events else ""
            say(f"{system.now():%H:%M:%S} {folder}: {at} of {of} objects{sum_of}")
        yield part


# The result


def _document(
    of: date, old: Contract, new: Contract, tally: RehearsalTally, damaged: Mapping[str, str]
) -> dict[str, Any]:
    deliveries = [
        {"inbox": inbox, "type": type, "before": before, "after": after}
        for (inbox, type), (before, after) in sorted(tally.deliveries.items())
    ]
    changes = [
        {
            **each._asdict(),
            "harm": each.harm,
            "count": tally.changes[each],
            "examples": [one._asdict() for one in tally.examples[each]],
        }
        for each in sorted(tally.changes, key=_rank)
    ]
    unknown = [
        {"inbox": inbox, "type": type, "is_alarm": is_alarm, "count": number}
        for (inbox, type, is_alarm), number in sorted(tally.unknown.items())
        if number
    ]
    return {
        "date": str(of),
        "old": old.version,
        "new": new.version,
        "events": tally.events,
        "alarm_loses_reader": any(each.is_reader for each in tally.harmful),
        "deliveries": deliveries,
        "changes": changes,
        "unknown": unknown,
        "cost": _cost(old, new, tally),
        "damaged": dict(damaged),
    }


def _rank(change: Change) -> tuple[bool, bool, int, Change]:
    """Return the key to sort by: alarms first, lost readers before all others."""
    return not change.is_alarm, not change.is_reader, [*Effect].index(change.kind), change


def _cost(old: Contract, new: Contract, tally: RehearsalTally) -> dict[str, Any]:
    """Return the most requests of SQS for the day's deliveries to queues in the cloud, and their price."""
    requests, usd = [0, 0], [0.0, 0.0]
    for at, contract in enumerate((old, new)):
        prices = {each.address: _REQUEST_USD.get(each.transport) for each in contract.channels}
        for (inbox, _), counts in tally.deliveries.items():
            if (price := prices.get(inbox)) is not None:
                requests[at] += REQUESTS * counts[at]
                usd[at] += REQUESTS * counts[at] * price
    names = "before", "after"
    return {
        "basis": f"modelled: {REQUESTS} requests of SQS a delivery to a queue, list prices of us-east-1",
        "requests": dict(zip(names, requests, strict=True)),
        "usd": dict(zip(names, (round(each, 4) for each in usd), strict=True)),
    }


def _text(document: Mapping[str, Any], tally: RehearsalTally) -> str:
    changed, cost = tally.changes, document["cost"]
    by_kind = {kind: sum(changed[each] for each in changed if each.kind is kind) for kind in Effect}
    readers = {
        kind: [each for each in changed if each.is_alarm and each.is_reader and each.kind is kind]
        for kind in Effect
    }
    lines = [
        f"{document['date']}: {document['events']:,} events of devices, judged by {document['new']} and "
        f"{document['old']}",
        f"deliveries: {by_kind[Effect.MORE]:,} more, {by_kind[Effect.FEWER]:,} fewer",
        f"alarms: {_readers(changed, readers[Effect.FEWER])} lose a reader, "
        f"{_readers(changed, readers[Effect.MORE])} gain one",
        *(f"harm: {changed[each]:,} alarms {each.type} {each.harm}" for each in tally.harmful),
    ]
    if document["changes"]:
        head = ["", "CHANGE", "AT", "TYPE", "EVENTS", "BEFORE", "AFTER", "FOR EXAMPLE"]
        lines += ["", text.table(head, [_row(each) for each in document["changes"]])]
    moved = [each for each in document["deliveries"] if each["before"] != each["after"]]
    if moved:
        rows = [[each["inbox"], each["type"], f"{each['before']:,}", f"{each['after']:,}"] for each in moved]
        lines += ["", text.table(["INBOX", "TYPE", "BEFORE", "AFTER"], rows)]
    for each in document["unknown"]:
        what = "alarms" if each["is_alarm"] else "events"
        why = "a route asks for what the ledger does not have"
        lines.append(f"not known: {each['count']:,} {what} {each['type']} for {each['inbox']}; {why}")
    damaged = document["damaged"].items()
    lines += [f"{name} is not complete: {problem}" for name, problem in damaged]
    usd = " -> ".join(f"{each:.4f}" for each in cost["usd"].values())
    return "\n".join([*lines, "", f"cost of the queues: {usd} USD ({cost['basis']})"])


def _readers(counts: Mapping[Change, int], changes: Sequence[Change]) -> str:
    """Return the number of deliveries, and at which inboxes, as text."""
    if not changes:
        return "none"
    inboxes = ", ".join(sorted({each.to for each in changes}))
    return f"{sum(counts[each] for each in changes):,} deliveries ({inboxes})"


def _row(change: Mapping[str, Any]) -> list[object]:
    mark = "ALARM" if change["is_alarm"] else ""
    first = change["examples"][0] if change["examples"] else {"id": "", "source": ""}
    return [
        mark,
        change["kind"],
        change["to"],
        change["type"],
        f"{change['count']:,}",
        change["before"],
        change["after"],
        f"{first['id']} of {first['source']}",
    ]
