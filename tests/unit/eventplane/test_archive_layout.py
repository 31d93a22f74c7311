"""The archive's layout changes only with its version, and only by growing; the lists of its writers."""

import pytest

from eventplane.archive_layout import _MEANINGS, FOLDERS, Folder
from eventplane.written import Extent, WriterList, list_of, read_entry

KNOWN = {
    "tap": [
        "accepted_at_ms archived_at_ms client_id topic message_id index event original_base64 refusal",
        "principal",
        "",
        "digest",
        "expires_at_ms",
    ],
    "ledger": [
        "decided_at_ms entered_at_ms entered_by contract_version source id type priority client_id "
        "route destination outcome reason attempt message_id",
        "sender received_at_ms basis",
        "put_back_by",
        "digest",
        "dead_letter_reason",
    ],
    "handovers": [
        "decided_at_ms entered_at_ms channel contract_version source id type outcome reason status "
        "attempt message_id",
        "route",
        "sender",
    ],
    "quarantine": ["archived_at_ms message_id reason detail body"],
    "fleet": ["thing state since_ms"],
    "contracts": [""],
    "written": [""],
    "audit/findings": [
        "kind hop device epoch sequence source id type route destination contract_version "
        "archive_file at_ms detail",
    ],
    "audit/routes": [
        "route destination expected delivered dead_lettered expired dropped lost pending unrouted "
        "misrouted unexplained internal duplicated replayed events tap_copies",
        "no_interest",
        "unrecorded not_understood",
    ],
    "audit/devices": [
        "client_id epoch first last events gaps tap_copies stated missing explained lost pending "
        "not_stored skew_ms",
        "acknowledged_lost",
        "unrecorded manifest numbering tap nothing awaiting best_effort coverage",
        "home_stated home_receipt home_broker home_explained home_lost home_pending home_unattested "
        "home_unstated",
    ],
    "audit/consumers": [
        "channel expected delivered dead_lettered pending lost duplicated",
        "expired",
        "dropped",
        "unrecorded not_understood",
    ],
    "audit/deliveries": [
        "sender source id type device epoch sequence route destination contract_version hop verdict fate "
        "said_at_ms stored_at_ms accepted_at_ms routed_at_ms rung_at_ms taken_at_ms rests_on archive_file",
    ],
    "audit/quarantine": [
        "archive_file line reason text",
        "archive",
    ],
    "erasures": [""],
}
"""The columns that each version of a folder added to those before. Never edit one: add the next."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda each: each.name)
def test_versions_keep_earlier_columns(folder: Folder) -> None:
    assert folder.version == len(KNOWN[folder.name])
    assert [each.name for each in folder.columns] == " ".join(KNOWN[folder.name]).split()
    compacted = [each.name for each in folder.compacted_columns or folder.columns]
    assert len({*folder.partitions, *compacted}) == len(folder.partitions) + len(compacted)
    if folder.compaction:
        assert {*folder.compaction.identity, *folder.compaction.order} <= {*compacted}


def test_every_column_has_a_meaning_and_no_other_word_has_one() -> None:
    used = {column.name for folder in FOLDERS for column in folder.compacted_columns or folder.columns}
    assert used == set(_MEANINGS)


KEY = "tap/date=2026-03-01/hour=04/a.b-1.json.gz"
DIGEST = "0" * 64


def test_the_key_of_an_entry_has_all_of_it() -> None:
    mine = WriterList(1_772_323_200_000, "0123456789abcdef")
    first = mine.next(KEY, Extent(3, 5, 7), DIGEST)
    assert mine.next(KEY, Extent(3, 5, 7), DIGEST) == first
    mine.kept(first)
    second = mine.next(KEY, Extent(2), DIGEST)
    assert (first.number, second.number, second.rows_before) == (1, 2, 3)
    mark = f"{'f' * 32}-123"
    marked = mine.next(KEY, Extent(), DIGEST, mark)
    assert (marked.mark, mine.next(KEY, Extent(), DIGEST, f"{mark}-2")) == (
        mark,
        mine.next(KEY, Extent(), DIGEST),
    )
    for each in (first, second, marked):
        assert each.name.startswith(f"{list_of('tap')}/date=2026-03-01/hour=04/")
        assert read_entry(each.name) == each
    assert second.began_ms == 1_772_323_200_000


@pytest.mark.parametrize("change", ["x", f".{DIGEST}", "-1", "\n"])
def test_another_name_is_no_entry(change: str) -> None:
    name = WriterList(1, "0" * 16).next(KEY, Extent(), DIGEST).name
    assert read_entry(name + change) is None
    assert read_entry(name.replace(".0." if change == "-1" else DIGEST, change)) is None


@pytest.mark.parametrize("place", ["began", "first", "last"])
def test_a_time_that_no_date_has_makes_no_entry(place: str) -> None:
    times = dict.fromkeys(("began", "first", "last"), 10**14 - 1)
    for most, is_entry in ((0, True), (10**15 - 1, False)):
        began_ms, *others = {**times, **({place: most} if most else {})}.values()
        name = WriterList(began_ms, "0" * 16).next(KEY, Extent(1, *others), DIGEST).name
        assert (read_entry(name) is not None) is is_entry
    assert read_entry(WriterList(1, "0" * 16).next(KEY, Extent(1, 8, 7), DIGEST).name) is None


def test_an_extent_has_the_times_with_which_records_begin() -> None:
    extent = Extent()
    for line in (
        '{"accepted_at_ms":20,"archived_at_ms":30,"client_id":"a"}',
        '{"decided_at_ms":15,"entered_at_ms":12}',
        '{"id":"1","accepted_at_ms":1,"archived_at_ms":99}',
        '{"accepted_at_ms":"1","archived_at_ms":99}',
        '{"accepted_at_ms":20,"archived_at_ms":999999999999999}',
    ):
        extent.add(line)
    assert extent == Extent(5, 12, 30)
