"""Holes of the archive: which hours may lack records, and what is reported of them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from eventplane.written import Entry
from glue_jobs.common.archive import ArchivePart
from glue_jobs.common.hours import Hour
from glue_jobs.common.listing import Gone, HourReceipt, ObjectFault
from glue_jobs.delivery_audit.coverage import (
    LedgerHours,
    absent_hours,
    damaged_hours,
    gone_hours,
    hole_findings,
    hours_of_gone,
    missing_rows,
    with_altered,
)
from glue_jobs.delivery_audit.event_group import HoleCount
from glue_jobs.delivery_audit.rules import MissingRows

HOUR_S = 3_600
DAY = datetime(2026, 3, 1, tzinfo=UTC)


def hour(number: int) -> Hour:
    return Hour(DAY + timedelta(hours=number))


def part(hours: Iterable[int], *faults: ObjectFault) -> ArchivePart:
    return ArchivePart(cast(Any, None), (), faults, frozenset(map(hour, hours)))


def fault(kind: Any, at: int) -> ObjectFault:
    return ObjectFault(kind, f"{hour(at).raw('ledger')}/a.json.gz", hour(at), "ledger", "not gzip", 3)


def gone(at: int, first_s: int, last_s: int, rows: int, name: str = "a") -> Gone:
    """What is gone of an hour, with times in seconds from its beginning."""
    first_ms, last_ms = (hour(at).start_ms + 1_000 * each for each in (first_s, last_s))
    return Gone(f"{hour(at).raw('ledger')}/{name}.json.gz", hour(at), 1, rows, first_ms, last_ms, "gone")


def archive(*, tap: range, ledger: Iterable[int], handovers: Iterable[int] = ()) -> dict[str, ArchivePart]:
    return {"tap": part(tap), "ledger": part(ledger), "handovers": part(handovers)}


def test_an_hour_without_an_object_is_damaged_where_another_folder_proves_records() -> None:
    parts = archive(tap=range(3), ledger=[0, 2, 3], handovers=[0])
    seen = LedgerHours(frozenset(map(hour, (0, 3))), frozenset(map(hour, (0, 2))))
    found = damaged_hours(parts, seen)
    assert found == {
        "tap": frozenset({hour(3)}),
        "ledger": frozenset({hour(1)}),
        "handovers": frozenset({hour(2)}),
    }
    assert gone_hours(found, parts["tap"]) == {hour(3).number}


def test_damaged_and_removed_objects_and_nameless_lines_damage_their_hours() -> None:
    whole = archive(tap=range(3), ledger=range(3), handovers=range(3))
    parts = {**whole, "ledger": part(range(3), fault("unreadable", 1), fault("duplicate", 0))}
    removed = [f"{hour(2).raw('tap')}/gone.json.gz", "contracts/v1.json"]
    found = damaged_hours(parts, LedgerHours(), [("handovers", hour(0))], removed)
    assert {name: hours for name, hours in found.items() if hours} == {
        "tap": {hour(2)},
        "ledger": {hour(1)},
        "handovers": {hour(0)},
    }
    # The tap has other objects in that hour.
    assert gone_hours(found, parts["tap"]) == frozenset()


def test_hours_without_a_tap_object_lie_between_others() -> None:
    hours = frozenset(hour(number) for number in (2, 3, 6))
    assert absent_hours(ArchivePart(cast(Any, None), (), (), hours)) == {hour(4).number, hour(5).number}
    assert absent_hours(part([])) == frozenset()


def test_what_an_unreadable_object_lacks_is_no_second_finding() -> None:
    parts = archive(tap=range(3), ledger=range(3))
    counts = {HoleCount("ledger", hour(1).number): 7}
    found = list(hole_findings(parts, [fault("unreadable", 1), fault("unreadable", 1)], counts, {}))
    assert [each.detail for each in found] == [
        "not gzip; 3 rows of it were read; 7 events of its hour are without a record",
        "not gzip; 3 rows of it were read",
    ]


def test_each_hole_is_one_finding_with_its_extent() -> None:
    parts = archive(tap=range(3), ledger=[0, 2])
    counts = {HoleCount("ledger", hour(1).number): 250, HoleCount("ledger", hour(2).number): 0}
    found = list(hole_findings(parts, [fault("unreadable", 0)], counts, {hour(2).number: 4}))
    assert [(each.kind, each.hop, each.archive_file) for each in found] == [
        ("unreadable_object", "archive", "ledger/date=2026-03-01/hour=00/a.json.gz"),
        ("missing_records", "archive", "ledger/date=2026-03-01/hour=01"),
        ("missing_records", "archive", "tap/date=2026-03-01/hour=02"),
    ]
    assert [each.detail for each in found] == [
        "not gzip; 3 rows of it were read",
        "no object for 01:00-02:00: 250 events without a record",
        "objects are missing for 02:00-03:00: 4 events without a record",
    ]


def test_rows_of_gone_objects_are_one_hole_where_their_times_meet() -> None:
    parts = archive(tap=range(3), ledger=range(3))
    listed = (gone(1, 50, 90, 7), gone(1, 0, 50, 10), gone(2, -HOUR_S, -HOUR_S, 0), gone(2, -60, 30, 4))
    parts["ledger"] = replace(parts["ledger"], gone=listed)
    parts["tap"] = replace(parts["tap"], gone=(gone(1, -1, 5, 3), gone(1, 7, 9, 2)))
    start = hour(1).number * HOUR_S
    assert missing_rows(parts)["ledger"] == [
        MissingRows(start, start + 90, 17, hour(1).number),
        MissingRows(start + HOUR_S - 60, start + HOUR_S + 30, 4, hour(2).number),
    ]
    assert hours_of_gone(parts["tap"]) == {hour(0).number: 3, hour(1).number: 5}
    # Of the tap devices tell what is missing; of the others it is known which rows they had.
    found = damaged_hours(parts, LedgerHours(), removed=[listed[0].name])
    assert {name: hours for name, hours in found.items() if hours} == {"tap": {hour(0), hour(1)}}


def test_times_of_entries_count_as_far_as_their_folders_allow() -> None:
    reach = 15 * 24
    wide = gone(1, -1_000 * HOUR_S, 1_000_000 * HOUR_S, 7)
    tap = replace(part([-500, 1]), gone=(wide,))
    assert [*hours_of_gone(tap)] == [*range(hour(1).number - reach, hour(2).number + 1)]
    # What a gap lacks may have been in any folder.
    tap = replace(tap, gone=(wide._replace(name=f"written/{hour(1).raw('tap')}"),))
    assert [*hours_of_gone(tap)] == [*range(hour(-500).number - reach, hour(2).number + 1)]


def test_wrong_times_of_an_entry_are_cut_or_do_not_count() -> None:
    wide, none = gone(1, -1_000 * HOUR_S, 1_000_000 * HOUR_S, 7), gone(1, 50 * HOUR_S, 60 * HOUR_S, 7)
    parts = {"ledger": replace(part([1]), gone=(wide, none))}
    start = hour(1).number * HOUR_S
    spans = [MissingRows(start - 15 * 24 * HOUR_S, start + 2 * HOUR_S - 1, 7, hour(1).number)]
    assert missing_rows(parts) == {"ledger": spans}


def entry(at: int, name: str = "a", rows: int = 3) -> Entry:
    start_ms = hour(at).start_ms
    return Entry(f"{hour(at).raw('ledger')}/{name}.json.gz", "1-0", 1, 0, rows, start_ms, start_ms, "d" * 64)


def test_an_altered_object_lacks_at_most_what_its_writer_listed() -> None:
    listed = replace(
        part([1]), gone=(gone(1, 0, 5, 2, "b"),), entries=(entry(1), entry(1, "b"), entry(1, "c"))
    )
    keys = [f"{hour(1).raw('ledger')}/{name}.json.gz" for name in ("a", "b", "run=1/part-0.parquet")]
    parts = {"tap": part([1]), "handovers": part([]), "ledger": listed}
    found = with_altered(parts, keys)
    assert [(each.name, each.objects, each.rows) for each in found["ledger"].gone] == [
        (keys[1], 1, 2),
        (keys[0], 0, 3),
    ]
    # Of a compacted file it is not known what it had.
    assert damaged_hours(found, LedgerHours(), removed=keys)["ledger"] == {hour(1)}
    assert damaged_hours(found, LedgerHours(), removed=keys[:2])["ledger"] == frozenset()


@pytest.mark.parametrize(
    "name", [f"{hour(1).receipt('ledger')}", f"{hour(1).compacted('ledger')}/run=0/p.parquet"]
)
@pytest.mark.parametrize("lists", ["none", "lists", "attested"])
def test_what_no_key_attested_damages_no_hour_of_which_there_are_lists(name: str, lists: str) -> None:
    """It hides neither a loss nor what is gone."""
    false, missing = (
        ObjectFault(kind, each, hour(1), "ledger", "damaged", None)
        for kind, each in (("unreadable", name), ("gone", entry(1).key))
    )
    receipt = HourReceipt(1, "0", 1, 0, {entry(1, "z").key: "x"}, {}, 1)
    listed = replace(
        part([1], false, missing),
        entries=() if lists == "none" else (entry(1),),
        receipts=(receipt,) if lists == "attested" else (),
    )
    parts = {"tap": part([1]), "handovers": part([]), "ledger": listed}
    assert damaged_hours(parts, LedgerHours())["ledger"] == (frozenset() if lists == "lists" else {hour(1)})
    found = list(hole_findings(parts, listed.faults, {HoleCount("ledger", hour(1).number): 5}, {}))
    assert [(each.archive_file, "5 events" in str(each.detail)) for each in found] == [
        (entry(1).key, True),
        (name, False),
    ]


def test_a_hole_beside_a_receipt_that_cannot_be_read_is_a_finding_of_its_own() -> None:
    receipt = ObjectFault("unreadable", hour(1).receipt("ledger"), hour(1), "ledger", "damaged", None)
    parts = {"ledger": part([0], receipt)}
    found = list(hole_findings(parts, [receipt], {HoleCount("ledger", hour(1).number): 5}, {}))
    assert [each.archive_file for each in found] == [receipt.name, hour(1).raw("ledger")]


def test_a_gone_object_is_a_finding_with_its_key_and_what_its_hour_lacks() -> None:
    name = f"{hour(1).raw('ledger')}/a.json.gz"
    fault_ = ObjectFault("gone", name, hour(1), "ledger", "it is gone", None)
    counts = {HoleCount("ledger", hour(1).number, second): 3 for second in (4, 5)}
    (found,) = hole_findings(archive(tap=range(3), ledger=range(3)), [fault_], counts, {})
    assert (found.kind, found.archive_file) == ("missing_records", name)
    assert found.detail == "it is gone; 6 events of its hour are without a record"
