"""The lists of writers: what an entry says, it says in its key."""

import pytest

from eventplane.written import Extent, WriterList, list_of, read_entry

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
