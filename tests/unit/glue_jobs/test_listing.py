"""Which objects of an archive are read, and which are faulty; without Spark.

That a bucket lists as a folder does is tested in test_objects.py.
"""

import gzip
import random
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.archive_layout import LEDGER_FOLDER, QUARANTINE_FOLDER, TAP_FOLDER, Folder
from eventplane.written import Entry, Extent, WriterList
from glue_jobs.common.attestation import open_key
from glue_jobs.common.hours import Days, Hour, hour_of
from glue_jobs.common.listing import HourReceipt, Listing, ObjectFault, publish, whole_lines, write_receipt
from glue_jobs.common.objects import FolderObjects, Objects, Stored
from glue_jobs.delivery_audit.devices import Registry, read_registry
from glue_jobs.delivery_audit.rules import Window

DAY = "tap/date=2026-03-01"
HOUR = Hour(datetime(2026, 3, 1, 12, tzinfo=UTC))
FILE = f"{HOUR.compacted('tap')}/run=r/part-0.parquet"
ALL = Days()


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return FolderObjects(tmp_path)


def put(objects: Objects, *names: str) -> None:
    for name in names:
        objects.write(name, gzip.compress(name.encode(), mtime=0))


def compacted(objects: Objects, *inputs: str, hour: Hour = HOUR, at_ms: int | None = 1) -> HourReceipt:
    """The hour is compacted of `inputs`, which are written, to one file, and attested at `at_ms`."""
    put(objects, *inputs)
    file = FILE.replace(HOUR.partition, hour.partition)
    objects.write(file, b"PAR1")
    publish(objects, TAP_FOLDER, hour, [file])
    digests = {each.name: objects.digest(each) for each in objects.beneath("")}
    receipt = HourReceipt(
        version=TAP_FOLDER.version,
        run="r",
        rows=1,
        line_texts=0,
        inputs={name: digests[name] for name in inputs},
        files={file: digests[file]},
        attested_at_ms=at_ms,
    )
    write_receipt(objects, open_key(None), TAP_FOLDER, hour, receipt)
    return receipt


def listing(
    objects: Objects,
    days: Days = ALL,
    known: Mapping[str, ObjectFault] | None = None,
    folder: Folder = TAP_FOLDER,
) -> Listing:
    return Listing(objects, open_key(None), folder, days, known or {})


def faults(found: Listing) -> list[tuple[str, str]]:
    return sorted((each.kind, each.name) for each in found.faults)


def files(found: Listing) -> list[str]:
    return [each.name for plan in found.plans.values() for each in plan.files]


def test_a_day_in_which_all_is_to_be_read_is_read_by_its_folder(objects: Objects) -> None:
    put(
        objects,
        f"{DAY}/hour=12/a.json.gz",
        f"{DAY}/hour=13/b.json.gz",
        "tap/date=2026-03-02/hour=00/c.json.gz",
    )
    assert listing(objects).roots() == [DAY, "tap/date=2026-03-02"]
    one = listing(objects, Days(date(2026, 3, 2), date(2026, 3, 2)))
    assert one.roots() == ["tap/date=2026-03-02"]
    assert [each.name for each in one.objects] == ["tap/date=2026-03-02/hour=00/c.json.gz"]


def test_only_folders_of_the_days_are_listed(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(1, 29):
        put(objects, f"tap/date=2026-03-{day:02}/hour=12/a.json.gz")
    compacted(objects, f"{DAY}/hour=12/a.json.gz")
    seen: list[str] = []
    beneath = objects.beneath

    def noted(folder: str) -> list[Stored]:
        seen.append(folder)
        return beneath(folder)

    monkeypatch.setattr(objects, "beneath", noted)
    listing(objects, Days(date(2026, 3, 1), date(2026, 3, 2)))
    assert sorted(seen) == [
        *(f"{each}/{DAY}" for each in ("compacted", "compactions", "published")),
        *(DAY, "tap/date=2026-03-02"),
    ]


def test_a_compacted_hour_is_read_from_its_files_and_what_came_later_as_lines(objects: Objects) -> None:
    receipt = compacted(objects, f"{DAY}/hour=12/a.json.gz")
    put(objects, f"{DAY}/hour=12/late.json.gz", f"{DAY}/hour=13/open.json.gz")
    found = listing(objects)
    assert files(found) == [FILE]
    assert found.roots() == [f"{DAY}/hour=12/late.json.gz", f"{DAY}/hour=13"]
    assert found.plans[HOUR].receipt == receipt
    assert found.plans[HOUR].has_envelope(TAP_FOLDER)
    assert found.faults == []
    objects.delete([each.name for each in objects.beneath("tap")])
    found = listing(objects)
    assert ([*found.plans], files(found), found.roots()) == ([HOUR], [FILE], [])


def test_the_attested_receipt_says_which_files_count_and_not_what_is_published(objects: Objects) -> None:
    compacted(objects, f"{DAY}/hour=12/a.json.gz")
    objects.delete([HOUR.published("tap")])
    found = listing(objects)
    assert (files(found), found.roots(), found.faults) == ([FILE], [], [])
    other = FILE.replace("run=r", "run=other")
    objects.write(other, b"PAR1")
    publish(objects, TAP_FOLDER, HOUR, [FILE, other])
    found = listing(objects)
    assert (files(found), faults(found)) == ([FILE], [("unattested", HOUR.published("tap"))])


def test_files_that_no_attested_receipt_names_give_only_what_no_raw_object_has(objects: Objects) -> None:
    compacted(objects, f"{DAY}/hour=12/a.json.gz", f"{DAY}/hour=12/b.json.gz")
    text = objects.read(HOUR.receipt("tap")) or b""
    objects.write(HOUR.receipt("tap"), text.replace(b'"rows": 1', b'"rows": 2'))
    found = listing(objects)
    assert (files(found), found.roots()) == ([], [DAY])
    assert (faults(found), found.plans[HOUR].receipt) == ([("unattested", HOUR.receipt("tap"))], None)
    objects.delete([f"{DAY}/hour=12/b.json.gz"])
    found = listing(objects)
    assert (files(found), found.roots()) == ([FILE], [DAY])
    # By digests that are not attested, an object would count as a copy of one that never was.
    objects.write(HOUR.receipt("tap"), text.replace(b"b.json.gz", b"0.json.gz"))
    assert {each.kind for each in listing(objects).faults} == {"unattested"}


def test_a_receipt_that_is_not_attested_makes_no_hour(objects: Objects) -> None:
    receipt = compacted(objects, f"{DAY}/hour=12/a.json.gz", at_ms=None)
    objects.delete([*receipt.inputs, FILE, HOUR.published("tap")])
    found = listing(objects)
    assert (faults(found), found.plans) == ([("unattested", HOUR.receipt("tap"))], {})


def test_published_files_without_a_receipt_give_what_no_raw_object_has(objects: Objects) -> None:
    compacted(objects, f"{DAY}/hour=12/a.json.gz", f"{DAY}/hour=12/b.json.gz")
    objects.delete([HOUR.receipt("tap"), f"{DAY}/hour=12/b.json.gz"])
    found = listing(objects)
    assert (files(found), found.roots()) == ([FILE], [DAY])
    assert faults(found) == [("unattested", HOUR.published("tap"))]
    assert found.plans[HOUR].present == {f"{DAY}/hour=12/a.json.gz"}
    assert not found.plans[HOUR].has_envelope(TAP_FOLDER)


@pytest.mark.parametrize("is_gone", [True, False])
def test_raw_objects_replace_damaged_files(is_gone: bool, objects: Objects) -> None:
    receipt = compacted(objects, f"{DAY}/hour=12/a.json.gz")
    known = {FILE: ObjectFault("unreadable", FILE, HOUR, "tap", "it is damaged", None)}
    if is_gone:
        objects.delete([FILE])
        known = {}
    found = listing(objects, known=known)
    assert (files(found), found.roots()) == ([], [DAY])
    assert faults(found) == [("unreadable", FILE)]
    objects.delete(receipt.inputs)
    found = listing(objects, known=known)
    assert (files(found), found.roots()) == ([] if is_gone else [FILE], [])
    assert faults(found) == [("unreadable", FILE)]


def test_a_receipt_that_cannot_be_read_is_a_fault(objects: Objects) -> None:
    compacted(objects, f"{DAY}/hour=12/a.json.gz")
    objects.write(HOUR.receipt("tap"), b"{")
    lists = "unattested", HOUR.published("tap")
    assert faults(listing(objects)) == [lists, ("unreadable", HOUR.receipt("tap"))]


def test_a_damaged_object_is_not_among_what_is_read_together(objects: Objects) -> None:
    put(objects, *(f"{DAY}/hour=12/{each}.json.gz" for each in "abc"), f"{DAY}/hour=13/d.json.gz")
    name = f"{DAY}/hour=12/b.json.gz"
    known = {name: ObjectFault("unreadable", name, HOUR, "tap", "it is cut short", 7)}
    found = listing(objects, known=known)
    assert found.roots() == [f"{DAY}/hour=12/a.json.gz", f"{DAY}/hour=12/c.json.gz", f"{DAY}/hour=13"]
    assert (found.damaged(), found.faults) == ([name], [known[name]])


def test_an_empty_object_is_a_fault_and_stops_nothing(objects: Objects) -> None:
    put(objects, f"{DAY}/hour=12/a.json.gz")
    objects.write(f"{DAY}/hour=12/b.json.gz", b"")
    found = listing(objects)
    assert (found.roots(), faults(found)) == ([DAY], [("unreadable", f"{DAY}/hour=12/b.json.gz")])


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        (f"{DAY}/loose.json.gz", True),
        (f"{DAY}/hour=25/a.json.gz", True),
        (f"{DAY}/hour=12/deeper/a.json.gz", True),
        (f"{DAY}/hour=12/a.json.gz.tmp", False),
        (f"{DAY}/hour=12/notes.txt", False),
        (f"{DAY}/hour=12/_a.json.gz", False),
    ],
)
def test_what_no_writer_puts_there_is_misplaced(name: str, is_read: bool, objects: Objects) -> None:
    put(objects, f"{DAY}/hour=12/whole.json.gz", name)
    found = listing(objects)
    assert faults(found) == [("misplaced", name)]
    assert (name in {each.name for each in found.objects}) == is_read
    assert (found.roots(), [*found.plans]) == ([DAY], [HOUR])


def test_a_folder_of_no_day_is_named_and_not_read(objects: Objects) -> None:
    put(objects, "tap/date=2026-13-45/hour=12/a.json.gz", f"{DAY}/hour=12/a.json.gz")
    found = listing(objects)
    assert (faults(found), found.roots()) == ([("misplaced", "tap/date=2026-13-45")], [DAY])


@pytest.mark.parametrize("compact", [(), ("first",), ("first", "second")])
def test_equal_objects_are_found(compact: tuple[str, ...], objects: Objects) -> None:
    first, second = f"{DAY}/hour=12/first.json.gz", f"{DAY}/hour=12/second.json.gz"
    put(objects, first, second)
    objects.write(second, objects.read(first) or b"")
    if compact:
        receipt = compacted(objects, f"{DAY}/hour=12/third.json.gz")
        digest = next(objects.digest(each) for each in objects.beneath(DAY) if each.name == first)
        names = {f"{DAY}/hour=12/{each}.json.gz": digest for each in compact}
        inputs = {**receipt.inputs, **names}
        write_receipt(objects, open_key(None), TAP_FOLDER, HOUR, replace(receipt, inputs=inputs))
    found = listing(objects)
    (fault,) = found.faults
    assert (fault.kind, fault.name, fault.detail) == (
        "duplicate",
        second,
        f"it has the same bytes as {first}",
    )
    assert second not in found.roots()


def test_objects_of_equal_size_are_not_thereby_equal(objects: Objects) -> None:
    objects.write(f"{DAY}/hour=12/a.json.gz", b"one")
    objects.write(f"{DAY}/hour=12/b.json.gz", b"two")
    assert listing(objects).faults == []


def test_a_folder_without_a_compaction_and_one_that_is_not_there(objects: Objects) -> None:
    put(objects, "quarantine/date=2026-03-01/hour=12/a.json.gz")
    assert [*listing(objects, folder=QUARANTINE_FOLDER).plans] == [HOUR]
    assert listing(objects, folder=LEDGER_FOLDER).objects == []


TEXT = "".join(f'{{"line":{n},"text":"{zlib.crc32(bytes(n)):x}"}}\n' for n in range(500)).encode()
LINES = TEXT.decode().splitlines()
WHOLE = gzip.compress(TEXT, mtime=0)


@given(end=st.integers(1, len(WHOLE) - 1))
def test_the_lines_before_a_cut_are_certain(end: int) -> None:
    lines, problem = whole_lines(WHOLE[:end])
    assert problem
    assert lines == LINES[: len(lines)]


@given(place=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_an_altered_object_is_noticed_and_none_of_its_lines_counts(place: int, bit: int) -> None:
    content = bytearray(WHOLE)
    content[place] ^= 1 << bit
    lines, problem = whole_lines(bytes(content))
    # A flag or the time in the header changes nothing of the content.
    assert problem or lines == LINES
    # An end that is altered can look like one that is cut, and give a last line or two that never were.
    certain = len(lines) if place < len(WHOLE) - 100 else max(0, len(lines) - 5)
    assert lines[:certain] == LINES[:certain]


def test_objects_of_several_parts_are_whole() -> None:
    assert whole_lines(WHOLE + WHOLE) == (LINES * 2, None)
    lines, problem = whole_lines(WHOLE + b"and more")
    assert (lines, bool(problem)) == (LINES, True)
    # Of more bytes than are read at a time, of which the second part is altered at its end.
    long = [random.Random(1).randbytes(10**5).hex()]
    part = gzip.compress(long[0].encode(), mtime=0)
    lines, problem = whole_lines(part + WHOLE + part[:-1] + b"0")
    assert (lines, bool(problem)) == ([long[0] + LINES[0], *LINES[1:]], True)


WRITER = "0" * 16
A, B, C, D = (f"{DAY}/hour=12/{name}.json.gz" for name in "abcd")
LATER = f"{DAY}/hour=14/e.json.gz"
LISTED = (A, B, C, D, LATER)


def enter(objects: Objects, *keys: str, began: Hour = HOUR) -> dict[str, str]:
    """Write objects and their entries in one writer's list; returns the names of these by the objects'."""
    mine, names = WriterList(began.start_ms, WRITER), {}
    put(objects, *keys)
    for at, key in enumerate(keys, 1):
        at_ms = hour.start_ms if (hour := hour_of(key)) else 0
        entry = mine.next(key, Extent(at, at_ms, at_ms + 1_000), "d" * 64)
        objects.write(entry.name, b"")
        mine.kept(entry)
        names[key] = entry.name
    return names


@pytest.mark.parametrize(
    ("keys", "entries", "expected"),
    [
        ([], [], []),
        ([B], [], [(B, 1, 2, "hour")]),
        ([A, D], [], [(A, 1, 1, "hour"), (D, 1, 4, "hour")]),
        # Its writer's last, and with it all of its hour: what other folders show is one finding.
        ([LATER], [], [(LATER, 1, 5, "none")]),
        ([], [B, C], [(f"written/{DAY}/hour=12", 0, 0, "hour")]),
        ([B, C], [B, C], [(f"written/{DAY}/hour=12", 2, 5, "hour")]),
        ([A], [A], [(f"written/{DAY}/hour=12", 1, 1, "hour")]),
        ([B], [C], [(B, 1, 2, "hour"), (f"written/{DAY}/hour=12", 0, 0, "hour")]),
        # Without an entry behind it, nothing shows that it was there.
        ([LATER], [LATER], []),
    ],
)
def test_what_a_writer_lists_and_is_not_there_is_gone(
    objects: Objects, keys: list[str], entries: list[str], expected: list[tuple[str, int, int, str]]
) -> None:
    names = enter(objects, *LISTED)
    objects.delete([*keys, *(names[key] for key in entries)])
    found = listing(objects)
    assert [(each.name, each.objects, each.rows) for each in found.gone] == [each[:3] for each in expected]
    assert faults(found) == sorted(("gone", name) for name, _, _, place in expected if place == "hour")
    assert all(HOUR.start_ms <= each.first_ms <= each.last_ms for each in found.gone)
    assert found.entries


def test_what_was_moved_compacted_or_never_listed_is_not_gone(objects: Objects) -> None:
    names = enter(objects, *LISTED)
    put(objects, f"{DAY}/hour=13/unlisted.json.gz")
    objects.move(A, A.replace("hour=12", "hour=13"))
    assert listing(objects).gone == []
    objects.move(A.replace("hour=12", "hour=13"), A)
    compacted(objects, A, B, C, D)
    objects.delete([A, B, C, D])
    assert listing(objects).gone == []
    objects.delete([*names.values(), LATER])
    assert (listing(objects).gone, listing(objects).entries) == ([], [])


@pytest.mark.parametrize("text", [b"{}", b"{", gzip.compress(b"\0", mtime=0), b"[" * 99_999, None])
@pytest.mark.parametrize("is_published", [True, False])
def test_an_unattested_one_hides_nothing(objects: Objects, text: bytes | None, is_published: bool) -> None:
    enter(objects, *LISTED)
    compacted(objects, A, B, C, D, at_ms=None)
    receipt, published = HOUR.receipt("tap"), HOUR.published("tap")
    if text is None:
        objects.delete([receipt])
    elif text != b"{}":
        objects.write(receipt, text)
    objects.delete([B, *([] if is_published else [published])])
    found = listing(objects)
    assert ([each.name for each in found.gone], files(found)) == ([B], [FILE] * is_published)
    assert ("gone", B) in faults(found)
    assert ({receipt, published} & {each.name for each in found.faults} != set()) == (
        is_published or text is not None
    )


@pytest.mark.parametrize(
    ("key", "numbers", "is_entry"),
    [
        # Out of numbering: it names an object that never was, and does not count for less than no rows.
        (B.replace("b.json", "x.json"), (2, 10**14, 1, 5, 9), True),
        (B.replace("b.json", "x.json"), (2, 0, 0, 0, 0), True),
        # Its times are reversed, or it is not in the folder of an hour.
        (B.replace("b.json", "x.json"), (9, 0, 1, 9, 5), False),
        (f"{DAY}/x.json.gz", (9, 0, 1, 5, 9), False),
        (f"{DAY}/hour=12/hour=13/x.json.gz", (9, 0, 1, 5, 9), False),
        (f"{DAY}/hour=99/x.json.gz", (9, 0, 1, 5, 9), False),
    ],
)
@pytest.mark.parametrize("writer", [WRITER, "e" * 16])
def test_a_wrong_entry_hides_no_hole_of_another_writer(
    objects: Objects, key: str, numbers: tuple[int, ...], is_entry: bool, writer: str
) -> None:
    enter(objects, *LISTED)
    objects.delete([B])
    name = Entry(key, f"{HOUR.start_ms}-{writer}", *numbers, "d" * 64).name
    objects.write(name, gzip.compress(b"no list"))
    found = listing(objects)
    assert (B, 2) in [(each.name, each.rows) for each in found.gone]
    assert all(each.rows >= 0 for each in found.gone)
    assert ("gone" if is_entry else "misplaced", key if is_entry else name) in faults(found)


def test_what_is_no_entry_is_named_and_counts_for_nothing(objects: Objects) -> None:
    names = enter(objects, *LISTED)
    garbage = f"written/{DAY}/hour=12/list.json.gz", f"{names[B]}.gz"
    for name in garbage:
        objects.write(name, gzip.compress(b"no list"))
    objects.delete([C])
    assert faults(listing(objects)) == [("gone", C), *sorted(("misplaced", name) for name in garbage)]


def test_an_unreadable_object_is_named_with_what_its_writer_listed(objects: Objects) -> None:
    enter(objects, *LISTED)
    known = {B: ObjectFault("unreadable", B, HOUR, "tap", "it is cut short", 1)}
    objects.write(C, b"")
    found = listing(objects, known=known)
    assert [(each.name, each.objects, each.rows) for each in found.gone] == [(B, 0, 1), (C, 0, 3)]
    assert faults(found) == [("unreadable", B), ("unreadable", C)]
    assert all(f"its writer {HOUR.start_ms}-{WRITER} listed it with " in each.detail for each in found.faults)


def test_a_list_may_begin_before_what_is_read(objects: Objects) -> None:
    names = enter(objects, *LISTED, began=Hour(HOUR.start - timedelta(days=1)))
    objects.delete([names[A]])
    assert listing(objects).gone == []


def test_entries_that_came_while_they_were_listed_are_not_counted_through(objects: Objects) -> None:
    names = enter(objects, A, B, C)
    objects.delete([names[B]])
    assert listing(objects).gone == []


@pytest.mark.parametrize(
    "row",
    [
        *(
            f'{{"thing":"d","state":"provisioned","since_ms":{since_ms}}}'
            for since_ms in ('"soon"', "true", "1.5", "99999999999999999999", "[]")
        ),
        *(f'{{"thing":{thing},"state":"x"}}' for thing in ("null", '""', "7", '["d"]', '"\\ud800"')),
        pytest.param("[" * 100_000, id="deep"),
        *("null", '"d"', '{"state":"x"}', '{"thing":"d","thing":"e","state":"x"}'),
    ],
)
def test_a_list_of_other_rows_is_a_fault(objects: Objects, row: str) -> None:
    before, last = (f"fleet/date=2026-03-0{day}/hour=12/devices.json" for day in (1, 2))
    objects.write(before, b'{"thing":"d","state":"provisioned","since_ms":5}\n{"thing":"e","state":"x"}')
    objects.write(last, row.encode())
    registry, found = read_registry(objects, Window(), None)
    assert registry == Registry(before, [("d", "provisioned", 5), ("e", "x", None)])
    assert [(each.kind, each.name) for each in found] == [("unreadable", last)]
