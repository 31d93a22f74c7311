"""What became of an event in its home, by the next reports of its device: it rang, waits, or was given up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

from eventplane.account import OF_ROUTER, Account, Fate, reader_of
from eventplane.contract import Contract, ContractError, Place, load_compiled
from eventplane.device_reports import DISCARDED, HEARTBEAT, MANIFEST
from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError
from eventplane.ledger import TAP
from eventplane.names import EPOCH, SEQUENCE
from eventplane.router import Router
from operations.archive import Days, Record, json_object
from operations.names import event_in_tap
from operations.stations import Station

_Member = TypeVar("_Member")

_REPORTS: Final = (MANIFEST, DISCARDED, HEARTBEAT)

_LOSSES_MS: Final = 120_000
"""How long after it gave something up a device reports it, milliseconds: a minute and one to spare."""

_End: TypeAlias = tuple[Fate, str]
"""How the event ended at an inbox, or that it waits; and why."""


def at_home(tap: Record, event: Envelope, days: Days, contract: Contract) -> Iterator[Station]:
    """Yield what happened at each inbox in the home of the `event` that `tap` has.

    Without a word of its device on an inbox, there is none of it. `contract` is that of the device where no
    report names one that the archive has.
    """
    number = _number(event.attributes.get(SEQUENCE))
    if number is None:
        return
    if not (reports := sorted(_reports(tap, event.attributes.get(EPOCH), days), key=itemgetter(0))):
        return
    manifests = [(at_ms, data) for at_ms, name, data in reports if name == MANIFEST]
    losses = [(at_ms, data) for at_ms, name, data in reports if name == DISCARDED]
    version = next((data.get("contract") for _, data in manifests if _covers(data, number)), None)
    contract = _contract(days, version) or contract
    for inbox in sorted({each.destination for each in Router(contract, Place.DEVICE).route(event)}):
        if inbox != contract.device.outbox.address:
            ends = [(at_ms, each) for at_ms, data in losses for each in _given_up(inbox, number, data)]
            ends += _by_manifests(inbox, number, manifests, max(at_ms for at_ms, *_ in reports))
            yield from (_station(at_ms, tap["client_id"], inbox, *end, contract) for at_ms, end in ends[:1])


def _by_manifests(
    inbox: str, number: int, manifests: Sequence[tuple[int, dict[str, Any]]], heard_ms: int
) -> Iterator[tuple[int, _End]]:
    """Yield the first manifest by which the event has ended at `inbox`, or the last by which it waits.

    The device was heard last at `heard_ms`. What it has given up it reports later than that it has ended.
    """
    words = [(at_ms, data, _word(inbox, number, data)) for at_ms, data in manifests]
    for at_ms, data, word in words:
        if word is Fate.HANDLED and (heard_ms >= at_ms + _LOSSES_MS or data.get("final")):
            yield at_ms, (Fate.HANDLED, "")
            return
    if words and words[-1][2] is Fate.WAITING:
        yield words[-1][0], (Fate.WAITING, f"{reader_of(inbox)} has not taken it")


def _station(at_ms: int, device: str, inbox: str, fate: Fate, why: str, contract: Contract) -> Station:
    """Return the step, which was at `at_ms` (Unix milliseconds) at the latest."""
    reader, is_confirmed = reader_of(inbox), contract.channel(inbox).receipts
    what, by = fate.value, device
    if fate is Fate.HANDLED:
        what = f"taken by {reader}" if is_confirmed else "handed to the broker"
        fate, by = (Fate.HANDLED, reader) if is_confirmed else (Fate.IN_INBOX, "")
    facts = {"device": device, "inbox": inbox, "reason": why or None}
    account = Account(inbox, fate, by, why, at_ms)
    return Station(at_ms, f"home of {device}, at the latest", what, facts, account)


def _reports(tap: Record, epoch: object, days: Days) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield when reports of the event's device and epoch were accepted, their type and data."""

    def wanted(line: bytes) -> Record | None:
        if not any(each.encode() in line for each in _REPORTS):
            return None
        record = json_object(line)
        is_later = record is not None and record["accepted_at_ms"] >= tap["accepted_at_ms"]
        return record if is_later and record and record["client_id"] == tap["client_id"] else None

    for each in days.records(TAP, wanted):
        try:
            report = event_in_tap(each)
            data = report.data()
        except (EnvelopeError, ValueError, TypeError):
            continue
        if report.type in _REPORTS and report.attributes.get(EPOCH) == epoch and isinstance(data, dict):
            yield each["accepted_at_ms"], report.type, data


def _covers(data: dict[str, Any], number: int) -> bool:
    """Return whether the manifest states what was stored at `number`."""
    return any(each["first"] <= number <= each["last"] for each in _statements(data))


def _given_up(inbox: str, number: int, data: dict[str, Any]) -> Iterator[_End]:
    """Yield how a report of losses says that the event ended at `inbox`."""
    for each in _members(data.get("deliveries"), dict):
        spans = [_members(span, int) for span in _members(each.get("ranges"), list)]
        if each.get("destination") == inbox and any(
            len(span) == 2 and span[0] <= number <= span[1] for span in spans
        ):
            yield OF_ROUTER.get(str(each.get("outcome")), Fate.UNKNOWN), str(each.get("reason") or "")


def _word(inbox: str, number: int, data: dict[str, Any]) -> Fate | None:
    """Return whether the event has ended at `inbox` by a manifest, or waits; None where it does not say."""
    for each in _statements(data):
        ended_to = _number(each.get("acknowledged_to"))
        if each["destination"] != inbox or ended_to is None:
            continue
        pending = _members(each.get("pending"), int)
        if number in pending:
            return Fate.WAITING
        if number <= ended_to or number < max(pending, default=number):
            return Fate.HANDLED
    return None


def _statements(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        each
        for each in _members(data.get("statements"), dict)
        if isinstance(each.get("destination"), str)
        and all(isinstance(each.get(name), int) for name in ("first", "last"))
    ]


def _members(values: object, kind: type[_Member]) -> list[_Member]:
    """Return those of a list that are of the `kind`: a device may report anything."""
    return [each for each in values if isinstance(each, kind)] if isinstance(values, list) else []


def _number(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _contract(days: Days, version: object) -> Contract | None:
    found = days.contract(version) if isinstance(version, str) and version.isalnum() else None
    try:
        return load_compiled(found) if found else None
    except ContractError:
        return None
