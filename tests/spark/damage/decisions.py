"""Rows of ledger and handovers that are wrong, contradict the tap, or were written by a newer release."""

import hashlib
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.spark.damage.archive import (
    CLIMATE,
    CONTRACTS,
    HANDOVERS,
    HOUR_MS,
    LEDGER,
    READING,
    TAP,
    Archive,
    Row,
    event,
    hour_ms,
    restate,
    with_event,
)
from tests.spark.damage.expected import BROKEN, INCOMPLETE, NOTHING_LOST, PROVEN, Expected, Fact, kind

ROUTER: Final = ("router",)
DIARY: Final = "org.example.diary.v1"
ALARM: Final = "org.example.alarm.v1"


@kind
def lost_on_a_route(archive: Archive) -> Expected:
    """A router recorded nothing of an event."""
    row = _decision(archive, 1)
    archive.edit(LEDGER, lambda each: None if each == row else each, 1)
    lost = Fact("lost", ROUTER, {"id": row["id"], "route": row["route"]})
    return Expected((BROKEN,), (lost,), totals={**NOTHING_LOST, "lost": 1, "to_replay": 1}, unseen=0)


@kind
def lost_behind_the_inbox(archive: Archive) -> Expected:
    """A webhook recorded nothing of an event in its inbox."""
    row = next(iter(archive.rows(HANDOVERS, 2)))
    archive.edit(HANDOVERS, lambda each: None if each == row else each, 2)
    lost = Fact("lost", ("inbox_consumer",), {"id": row["id"]})
    totals = {name: count for name, count in NOTHING_LOST.items() if name != "to_replay"}
    return Expected((BROKEN,), (lost,), totals={**totals, "lost": 1}, unseen=0)


def _copied(row: Row, id_: str) -> Callable[[str], str]:
    return lambda line: line + "\n" + line.replace(row["id"], id_)


@kind
def forged_decision(archive: Archive) -> Expected:
    """The ledger has a decision about an event that its device, which states all it stored, never sent."""
    row = _decision(archive, 3)
    archive.edit_line(LEDGER, 3, lambda each: each == row, _copied(row, "f" * 32))
    forged = Fact("forged", ROUTER, {"id": "f" * 32})
    return Expected((BROKEN,), (forged,), totals={**NOTHING_LOST, "unexplained": 1}, unseen=0)


@kind
def forged_handover(archive: Archive) -> Expected:
    """A webhook has a receipt for an event that no router put into its inbox."""
    row = next(iter(archive.rows(HANDOVERS, 4)))
    archive.edit_line(HANDOVERS, 4, lambda each: each == row, _copied(row, "e" * 32))
    forged = Fact("forged", ("inbox_consumer",), {"id": "e" * 32})
    # What was put into an inbox on the day before is not seen by the audit of a day.
    return Expected((BROKEN,), (forged,), unseen=0, arguments=("--DATE", "all"))


@kind
def ghost_queue(archive: Archive) -> Expected:
    """A delivery went to an inbox that no contract has."""
    return _misrouted(archive, 5, destination="ghost.inbox")


@kind
def ghost_route(archive: Archive) -> Expected:
    """A delivery went over a route that no contract has."""
    return _misrouted(archive, 6, route="ghost")


def _misrouted(archive: Archive, hour: int, **changed: str) -> Expected:
    row = _decision(archive, hour)
    archive.edit(LEDGER, lambda each: {**each, **changed} if each == row else each, hour)
    facts = (Fact("misrouted", ROUTER, {"id": row["id"]}), Fact("lost", ROUTER, {"id": row["id"]}))
    totals = {**NOTHING_LOST, "lost": 1, "to_replay": 1, "misrouted": 1}
    return Expected((BROKEN,), facts, totals=totals, unseen=0)


@kind
def early_decision(archive: Archive) -> Expected:
    """An event was decided an hour before IoT Core accepted it."""
    row = _decision(archive, 7)
    early = {name: row[name] - HOUR_MS for name in ("decided_at_ms", "received_at_ms")}
    archive.edit(LEDGER, lambda each: {**each, **early} if each == row else each, 7)
    fact = Fact("causality", ROUTER, {"id": row["id"]})
    return Expected((INCOMPLETE,), (fact,), (Fact("clock_skew", ROUTER, {"id": row["id"]}),), unseen=0)


@kind
def early_handover(archive: Archive) -> Expected:
    """A webhook's endpoint answered an hour before the event was in its inbox."""
    row = next(iter(archive.rows(HANDOVERS, 8)))
    early = {"decided_at_ms": row["decided_at_ms"] - HOUR_MS}
    archive.edit(HANDOVERS, lambda each: {**each, **early} if each == row else each, 8)
    fact = Fact("causality", ("inbox_consumer",), {"id": row["id"]})
    return Expected((INCOMPLETE,), (fact,), unseen=0)


@kind
def other_type(archive: Archive) -> Expected:
    """The ledger calls an event by another type, with the same routes, than the tap."""
    row = _decision(archive, 9)
    archive.edit(LEDGER, lambda each: {**each, "type": CLIMATE} if each == row else each, 9)
    # Another service sends that type.
    may = (Fact("not_allowed", ROUTER, {"id": row["id"]}),)
    return Expected((BROKEN,), (Fact("type_mismatch", ROUTER, {"id": row["id"]}),), may, unseen=0)


@kind
def other_sender(archive: Archive) -> Expected:
    """The ledger names another sender than the connection that brought the event."""
    row = _decision(archive, 10)
    other = next(each for each in archive.devices() if each != row["client_id"])
    sender = row["sender"].replace(row["client_id"], other)
    archive.edit(LEDGER, lambda each: {**each, "sender": sender} if each == row else each, 10)
    fact = Fact("sender_mismatch", ROUTER, {"id": row["id"]})
    # Whether the event of the tap counts as delivered by it is the audit's to say.
    may = tuple(Fact(kind, (), {"id": row["id"]}) for kind in ("two_senders", "lost", "forged"))
    return Expected((BROKEN,), (fact,), may, totals={"misrouted": 0, "pending": 0}, unseen=0)


@kind
def unknown_type(archive: Archive) -> Expected:
    """An event that no route takes is of a type that no contract knows."""
    row = next(row for row in archive.rows(LEDGER, 11) if row["type"] == DIARY)
    type_ = "org.example.unheard.v9"
    archive.edit(
        TAP,
        lambda each: (
            with_event(each, {**event(each), "type": type_}) if event(each)["id"] == row["id"] else each
        ),
        11,
    )
    archive.edit(LEDGER, lambda each: {**each, "type": type_} if each == row else each, 11)
    restate(archive, row["client_id"])
    return Expected((PROVEN,), unseen=0)


@kind
def cold_router(archive: Archive) -> Expected:
    """For an hour a router decides by a contract that was used for five minutes of a rollout, long ago."""
    versions = archive.contracts()
    rows = list(archive.rows(LEDGER))
    later = rows[-1]["contract_version"]
    document = versions[later]
    document["participants"]["care"]["description"] += " Interim."
    content = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    interim = hashlib.sha256(content).hexdigest()[:16]
    (archive.root / CONTRACTS / f"{interim}.json").write_bytes(content)
    # The first frames of an hour are accepted about ten minutes after its beginning.
    rollout, device = hour_ms(13) + 600_000, archive.devices()[4]

    def by_interim(row: Row) -> Row:
        in_rollout = 0 <= row["decided_at_ms"] - rollout < 300_000
        is_cold = row.get("client_id", "") == device and hour_ms(20) <= row["decided_at_ms"] < hour_ms(21)
        return {**row, "contract_version": interim} if in_rollout or is_cold else row

    archive.edit(LEDGER, by_interim)
    cold = [
        row
        for row in archive.rows(LEDGER)
        if row["contract_version"] == interim and row["decided_at_ms"] >= hour_ms(20)
    ]
    facts = tuple(Fact("stale_contract", ROUTER, {"id": each["id"]}) for each in cold)
    return Expected((BROKEN,), facts, unseen=0)


@kind
def unknown_contract(archive: Archive) -> Expected:
    """A router decided by a contract that is not in the archive yet."""
    return _newer(archive, LEDGER, 12, lambda line, row: line.replace(row["contract_version"], "0" * 16))


@kind
def unknown_outcome(archive: Archive) -> Expected:
    """A newer router records an outcome that the audit does not know."""
    return _newer(archive, LEDGER, 13, lambda line, _: line.replace('"delivered"', '"held_for_review"'))


@kind
def attempt_as_text(archive: Archive) -> Expected:
    """A newer router writes a number as text."""
    return _newer(archive, LEDGER, 14, lambda line, _: line.replace('"attempt":1', '"attempt":"1"'))


@kind
def attempt_as_fraction(archive: Archive) -> Expected:
    """A newer router writes a whole number with a fraction."""
    return _newer(archive, LEDGER, 16, lambda line, _: line.replace('"attempt":1', '"attempt":1.0'))


@kind
def time_as_text(archive: Archive) -> Expected:
    """A newer router writes times as text."""

    def change(line: str, row: Row) -> str:
        return line.replace(
            f'"decided_at_ms":{row["decided_at_ms"]}', '"decided_at_ms":"2026-03-01T17:00:00Z"'
        )

    return _newer(archive, LEDGER, 17, change)


@kind
def nameless_decision(archive: Archive) -> Expected:
    """A row of the ledger names no event: whatever it decided has another record, or none."""
    row = _decision(archive, 19)
    archive.edit_line(
        LEDGER, 19, lambda each: each == row, lambda line: line.replace(f'"{row["id"]}"', "null")
    )
    return _nameless(rows=1)


@kind
def nameless_arrival(archive: Archive) -> Expected:
    """Two rows of the tap have members that cannot be read: the numbers in their events are not lost."""
    others = (r'"index":(\d+)', r'"index":"\1"'), ('"client_id":"[^"]*"', '"client_id":null')
    arrived = [row for row in archive.rows(TAP, 20) if event(row)["type"] == READING]
    for row, other in zip(arrived, others, strict=False):
        archive.edit_line(TAP, 20, lambda each, row=row: each == row, partial(re.sub, *other))
    return _nameless(rows=2)


def _nameless(rows: int) -> Expected:
    may = Fact("missing_records", ("archive",)), Fact("not_understood", ("archive",), count=None)
    return Expected((INCOMPLETE,), (), may, quarantined=(rows,), unseen=0)


@kind
def cut_line(archive: Archive) -> Expected:
    """A line of the ledger ends in its middle, behind the event's identity."""
    return _newer(archive, LEDGER, 18, lambda line, _: line[: line.index('"priority"') + 6])


@kind
def unknown_handover(archive: Archive) -> Expected:
    """A newer webhook records an outcome that the audit does not know."""
    return _newer(archive, HANDOVERS, 19, lambda line, _: line.replace('"delivered"', '"parked"'))


@kind
def new_member(archive: Archive) -> Expected:
    """Newer functions write members that the audit does not know, in all folders."""
    added = {"region": "eu-central-1", "shards": [1, 2], "cost": {"units": 3}}
    archive.edit(TAP, lambda row: {**row, **added}, 22)
    archive.edit(LEDGER, lambda row: {**row, **added}, 22)
    archive.edit(HANDOVERS, lambda row: {**row, **added}, 22)
    may = (Fact("not_understood", ("archive", "device_cloud", "router", "inbox_consumer")),)
    devices = dict.fromkeys(archive.devices(), ("attested", "partly"))
    return Expected((PROVEN, INCOMPLETE), (), may, devices=devices, quarantined=tuple(range(1_000)))


@kind
def rolling_upgrade(archive: Archive) -> Expected:
    """For half an hour a third of all decisions is written by a newer release, in several ways at once."""
    first = hour_ms(21)
    found = 0

    def change(row: Row) -> Row:
        nonlocal found
        is_new = first <= row["decided_at_ms"] < first + HOUR_MS // 2 and int(row["id"][-1], 36) % 3 == 0
        if not is_new or row["outcome"] != "delivered":
            return row
        found += 1
        return {**row, "outcome": "accepted", "attempt": {"of": 5, "number": 1}, "region": "eu-central-1"}

    archive.edit(LEDGER, change, 21)
    may = (Fact("not_understood", ("router", "inbox_consumer")),)
    return Expected((INCOMPLETE,), (), may, quarantined=tuple(range(found + 1)))


def _newer(archive: Archive, folder: str, hour: int, change: Callable[[str, Row], str]) -> Expected:
    """Expect that one row is not understood: neither lost nor sent again."""
    row = _decision(archive, hour) if folder == LEDGER else next(iter(archive.rows(folder, hour)))
    archive.edit_line(folder, hour, lambda each: each == row, lambda line: change(line, row))
    hops = ROUTER if folder == LEDGER else ("inbox_consumer",)
    fact = Fact("not_understood", hops, {"id": row["id"]})
    return Expected((INCOMPLETE,), (fact,), quarantined=(0, 1), unseen=0)


def _decision(archive: Archive, hour: int) -> Row:
    """Return a delivered reading of the hour."""
    return next(row for row in archive.rows(LEDGER, hour) if row["type"] == READING)
