"""Many groups together: what the driver keeps of them is bounded, and the order of their deliveries."""

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.ledger import SENT_BEFORE
from glue_jobs.delivery_audit.contracts import ContractHistory, Use
from glue_jobs.delivery_audit.event_group import LedgerRow, NotInTap, ReplayRow, TapRow
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.judging import (
    MAX_FINDINGS,
    Judged,
    OrderedDelivery,
    Task,
    judge_rows,
    ordered_deliveries,
    ordered_inboxes,
    overtaken,
)
from glue_jobs.delivery_audit.rows import MAX_ROWS, STRUCTS, event_groups
from glue_jobs.delivery_audit.rules import Rules, Watermark, Window
from lab.archive_generator.flows import MOTION, audited_contracts
from tests.spark.small_archive import HOUR_MS, SmallArchive, small_contract
from tests.unit.glue_jobs.judging import groups_of, history_of

AS_OF_MS = 1_775_001_600_000
NOON_MS = 1_772_366_400_000
LOST = 5 * MAX_FINDINGS


def test_more_findings_than_the_driver_keeps_are_counted_and_returned() -> None:
    contract, _ = audited_contracts()
    rules = Rules(ContractHistory((Use(contract, None),)), Watermark(AS_OF_MS), Window())
    task = Task(rules, frozenset(), frozenset())
    events = (
        TapRow(1, "m", at, 2, "tap/x", "home-1", "a", "/s", str(at), MOTION, routes=("day-to-family",))
        for at in range(LOST)
    )
    rows = ((event.place, 0, event, None, None, None, None) for event in events)
    found = list(judge_rows(task, rows))
    judged = found[-1]
    assert isinstance(judged, Judged)
    types = Counter(map(type, found))
    assert types == {Finding: LOST, ReplayRow: LOST, Judged: 1}
    assert judged.kinds == {("lost", "router"): LOST}
    assert MAX_FINDINGS <= len(judged.worst) <= 2 * MAX_FINDINGS
    assert not judged.judgement.findings
    assert not judged.judgement.replay
    total = Judged()
    for _ in range(5):
        total.add(judged)
    assert total.kinds == {("lost", "router"): 5 * LOST}
    assert len(total.worst) <= 2 * MAX_FINDINGS


def test_what_the_tap_does_not_have_is_returned_and_not_kept() -> None:
    """A day without a tap has millions of such rows."""
    contract, _ = audited_contracts()
    task = Task(
        Rules(ContractHistory((Use(contract, None),)), Watermark(AS_OF_MS), Window()),
        frozenset(),
        frozenset(),
    )
    uplink = contract.device.outbox.address
    named = (None, "home-1", "day-to-family", "family.inbox", "delivered", None, 1, "m", "home-1/a")
    rows = (
        (
            at,
            0,
            None,
            LedgerRow(NOON_MS, NOON_MS, uplink, contract.version, "/s", str(at), MOTION, *named),
            *[None] * 3,
        )
        for at in range(LOST)
    )
    *found, judged = judge_rows(task, rows)
    assert isinstance(judged, Judged)
    assert sum(isinstance(each, NotInTap) for each in found) == LOST
    assert not judged.judgement.not_in_tap


TAPPED = TapRow(1, "m", 0, 2, "tap/x", "home-1", "a", "/s", "0", MOTION, routes=("day-to-family",))
DECIDED = LedgerRow(
    *(NOON_MS, NOON_MS, "device.outbox", "version", "/s", "0", MOTION, None, "home-1"),
    *("day-to-family", "family.inbox", "delivered", None, 1, "m", "home-1/a"),
    file="ledger/x",
)


@pytest.mark.parametrize(("kind", "row"), [("tap", TAPPED), ("ledger", DECIDED)])
def test_too_many_rows_are_one_finding(kind: str, row: TapRow | LedgerRow) -> None:
    """Of millions of copies no list is made, and what is left out names no hop as a cause."""
    contract, _ = audited_contracts()
    history = ContractHistory((Use(contract, None),))
    task = Task(Rules(history, Watermark(AS_OF_MS), Window()), frozenset(), frozenset({"family.inbox"}))

    def grouped(key: int, **structs: Any) -> tuple[Any, ...]:
        return key, 0, *(structs.get(name) for name in STRUCTS)

    other = grouped(1, tap=TAPPED._replace(id="1"))
    copies = (grouped(0, **{kind: row}) for _ in range(MAX_ROWS + 5))
    alone, *found = ([*judge_rows(task, rows)] for rows in ([other], chain(copies, [other])))
    (cut,) = (each for each in found[0] if each not in alone and isinstance(each, Finding))
    assert (cut.kind, cut.hop, cut.device, cut.id, cut.archive_file) == (
        *("not_understood", "archive", "home-1", "0"),
        row.file,
    )
    assert cut.detail == "too many records of one event to be judged: 5 beyond 10,000 of a kind"
    assert [each for each in found[0][:-1] if each != cut] == alone[:-1]
    assert found[0][-1].judgement.counts == alone[-1].judgement.counts
    ((_, group),) = event_groups((grouped(0, **{kind: row}) for _ in range(MAX_ROWS + 5)), ())
    assert len(group.tap) + len(group.ledger) == MAX_ROWS


def reordered(
    archive: SmallArchive, **changed: dict[str, dict[str, Any]]
) -> set[tuple[str | None, str | None]]:
    """What was overtaken, where rows of the event called so have other members."""
    history = history_of(archive)
    groups, inboxes = groups_of(archive, history.contracts), ordered_inboxes(history)
    for number, group in enumerate(groups):
        others = {
            name: [row._replace(**more) for row in getattr(group, name)]
            for name, more in changed.get(group.ledger[0].id, {}).items()
        }
        groups[number] = group._replace(**others)
    found = overtaken(each for group in groups for each in ordered_deliveries(group, inboxes))
    return {(each.id, each.detail) for each in found}


def test_what_was_overtaken_in_an_inbox_with_order_is_reordered(archive: SmallArchive) -> None:
    archive.use(small_contract(inboxes={"care": {"transport": "sqs_fifo", "ordering": "source"}}))
    first, second = archive.send(), archive.send()
    assert reordered(archive) == set()
    archive.move(first, decided_at_ms=NOON_MS + 5_000)
    late = (first.id, "4960 ms behind one that was sent later")
    assert reordered(archive) == {late}
    # The first of several copies counts, by when it was put there; and not what was there before.
    again = [replace(row, decided_at_ms=NOON_MS + 9_000) for row in archive.ledger if row.id == first.id]
    archive.ledger += again
    assert reordered(archive) == {late}
    archive.ledger += [replace(row, decided_at_ms=NOON_MS, reason=SENT_BEFORE) for row in again]
    assert reordered(archive) == {late}
    # A forged copy overtakes nobody: of that `two_senders` is found.
    forged = archive.event(home="home-2", id=second.id, source=second.source)
    archive.route(forged, "home-2")
    assert reordered(archive) == set()


def test_the_time_of_entry_orders(archive: SmallArchive) -> None:
    archive.use(small_contract(inboxes={"care": {"transport": "sqs_fifo", "ordering": "source"}}))
    events = [archive.event(partitionkey=key).without(("devicesequence",)) for key in ("a", "b", "a")]
    for number, event in enumerate(events):
        archive.accept(event, at_ms=NOON_MS + number * 60_000)
        archive.route(event, at_ms=NOON_MS + number * 60_000)
    archive.move(events[0], decided_at_ms=NOON_MS + HOUR_MS)
    assert {id for id, _ in reordered(archive)} == {events[0].id}
    archive.move(events[0], decided_at_ms=NOON_MS + 90_000)  # behind b's only
    assert reordered(archive) == set()


@pytest.mark.parametrize(
    ("tap", "ledger"),
    [
        ({"unread": "unreadable_devicesequence", "sequence": None}, {}),
        ({}, {"decided_at_ms": NOON_MS + 600_000}),
        ({}, {"decided_at_ms": NOON_MS + 5_000, "within": False}),
        ({"sequence": None, "epoch": None, "accepted_at_ms": NOON_MS - 60_000}, {}),
        ({"sequence": None, "epoch": None}, {"entered_at_ms": NOON_MS - 60_000}),
    ],
    ids=["unreadable number", "wrong clock", "another day", "another time in the tap", "in the ledger"],
)
def test_an_unknown_place(archive: SmallArchive, tap: dict[str, Any], ledger: dict[str, Any]) -> None:
    archive.use(small_contract(inboxes={"care": {"transport": "sqs_fifo", "ordering": "source"}}))
    first, second = archive.send(), archive.send()
    archive.move(first, decided_at_ms=NOON_MS + 5_000)
    assert {id for id, _ in reordered(archive)} == {first.id}
    changed = {"tap": tap, "ledger": ledger}
    assert reordered(archive, **{first.id: changed}) == set()
    archive.move(first, decided_at_ms=NOON_MS)
    archive.move(second, decided_at_ms=NOON_MS)
    assert reordered(archive, **{second.id: changed}) == set()


SENT = st.lists(st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 5), st.integers(0, 5)), max_size=9)


@given(SENT)
def test_exactly_what_came_after_one_sent_later_is_overtaken(sent: list[tuple[str, int, int]]) -> None:
    deliveries = [
        OrderedDelivery((stream,), number, at_ms, Finding("2026-03-01", "reordered", "router", id=str(place)))
        for place, (stream, number, at_ms) in enumerate(sent)
    ]
    expected = {
        str(place)
        for place, (stream, number, at_ms) in enumerate(sent)
        if any(other == stream and later > number and at < at_ms for other, later, at in sent)
    }
    assert {each.id for each in overtaken(deliveries)} == expected
