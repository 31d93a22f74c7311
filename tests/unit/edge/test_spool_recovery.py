"""Damage: the spool is set aside, what is readable is in the new one, and it always starts."""

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.errors import SpoolCorruptError, SpoolError, SpoolUnavailableError
from edge.spool import BEFORE_EVERYTHING, Discard, SpoolOrigin, database, deliveries
from edge.spool.database import FORMAT, OLDEST_FORMAT, PAGE_BYTES
from edge.spool.files import log_of, marker_of, note_of
from edge.spool.salvage import SHIFT
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.reasons import Outcome
from tests.examples import sampled
from tests.unit.edge.builders import CLOUD, HOME, arrival, beside, cloud, device_state, fill, waiting


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool[1].db"  # no pattern: its other files have to be found


def overwrite(path: Path, page: int, count: int = 1, filler: bytes = b"\xa5") -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(filler * PAGE_BYTES * count)


def pages(path: Path, table: str) -> list[int]:
    query = "SELECT pageno FROM dbstat WHERE name = ? ORDER BY pageno"
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute(query, (table,))]


def filled(path: Path, count: int) -> str:
    """A closed spool with `count` events; its epoch."""
    with Spool(path, SYSTEM) as spool:
        fill(spool, count)
        return spool.epoch


def reopened(path: Path, use: Callable[[Spool], Any]) -> Any:
    """What `use` finds; the damage may show at the start or when it is met."""
    with contextlib.suppress(SpoolCorruptError), Spool(path, SYSTEM) as spool:
        return use(spool)
    with Spool(path, SYSTEM) as spool:
        return use(spool)


def origin_of(path: Path) -> tuple[str, int | None, int]:
    """How a start finds the spool: kind, lost, and how many events it has."""
    with Spool(path, SYSTEM) as spool:
        return spool.origin.kind, spool.origin.lost, len(waiting(spool))


@pytest.mark.source("F-W1")
@pytest.mark.parametrize("contents", [b"something else entirely" * 100, b"\0" * 4096, b"SQLite format 3\0"])
def test_a_file_that_is_no_database_is_set_aside_untouched(path: Path, contents: bytes) -> None:
    path.write_bytes(contents)
    Spool(path, SYSTEM).close()
    with Spool(path, SYSTEM) as spool:  # it has not been reported yet
        assert spool.origin.kind == "recovered"
        assert spool.origin.damage
        fill(spool, 3)
    assert origin_of(path) == ("resumed", 0, 3)
    (aside,) = beside(path, ".damaged-")
    assert aside.read_bytes() == contents


@pytest.mark.source("F-W1")
def test_one_damaged_page_costs_its_batches(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 1000)
        lost_epoch = spool.epoch
    batches = pages(path, "batch")
    overwrite(path, batches[len(batches) // 2])
    with Spool(path, SYSTEM) as spool, pytest.raises(SpoolCorruptError):
        waiting(spool)
    with Spool(path, SYSTEM) as spool:
        found = [json.loads(each)["n"] for each in waiting(spool)]
        # A page has the heads of two batches of 50 at most.
        assert 1000 - 2 * 50 <= len(found) < 1000
        assert found == sorted(set(found))
        lost = [number for first, last in spool.origin.lost_ranges for number in range(first, last + 1)]
        assert lost == sorted({*range(1, 1001)} - {*found})
        assert spool.origin.lost == len(lost)
        assert spool.origin.kind == "recovered"
        assert spool.origin.salvaged == len(found) == spool.pending(CLOUD, 1)
        assert spool.origin.lost_epoch == lost_epoch != spool.epoch
        assert spool.next_sequence == 1
        assert spool.manifests() == []
        assert all(each.delivery.sequence < 0 for each in spool.read(CLOUD, 1, BEFORE_EVERYTHING, 10))
        spool.commit([arrival(1, json="new")], uptime_ms=0)
        assert waiting(spool)[-1] == "new"


def test_damage_in_a_compressed_batch_costs_events_of_it_that_are_named(path: Path) -> None:
    texts = [json.dumps({"n": each, "noise": os.urandom(200).hex()}) for each in range(1, 61)]
    with Spool(path, SYSTEM) as spool:
        spool.commit([arrival(n, json=text) for n, text in enumerate(texts, 1)], uptime_ms=0)
    batches = pages(path, "batch")
    assert len(batches) * PAGE_BYTES < sum(map(len, texts))
    with path.open("r+b") as file:
        # Behind the number of the page that follows.
        file.seek((batches[len(batches) // 2] - 1) * PAGE_BYTES + 100)
        file.write(b"\xa5" * 8)
    found, lost = reopened(path, lambda spool: (waiting(spool), spool.origin.lost_ranges))
    missing = {number for first, last in lost for number in range(first, last + 1)}
    # Those in front of the damage are there; behind it some may be.
    assert 0 < len(found) < 60
    assert found == [text for number, text in enumerate(texts, 1) if number not in missing]
    assert found[0] == texts[0]


def test_the_format_before_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(database, "FORMAT", OLDEST_FORMAT)
        before.setattr(deliveries, "COMPRESSED_BYTES", 1 << 30)
        filled(path, 100)
    with Spool(path, SYSTEM) as spool:
        fill(spool, 100)
        assert [json.loads(each)["n"] for each in waiting(spool)] == list(range(1, 201))
        assert spool.origin.kind == "resumed"
    monkeypatch.setattr(database, "FORMAT", OLDEST_FORMAT)
    with pytest.raises(SpoolUnavailableError, match="run the program that wrote it"):
        Spool(path, SYSTEM)


def test_destinations_ranks_and_expiries_survive(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        arrivals = [arrival(1, 0, {HOME: 5000, CLOUD: None}, "a"), arrival(2, 0, {CLOUD: 9000}, "b")]
        spool.commit(arrivals, uptime_ms=70)
        spool.commit([], [spool.read(HOME, 0, BEFORE_EVERYTHING, 1)[0].delivery], uptime_ms=80)
        spool.commit([arrival(3, 2, {HOME: 6000}, "c")], uptime_ms=90)
    marker = path.with_name(f"{path.name}.damaged")
    marker.touch()
    with Spool(path, SYSTEM) as spool:
        assert not marker.exists()
        assert spool.backlog() == {CLOUD: 2, HOME: 1}
        rows = spool.read(CLOUD, 0, BEFORE_EVERYTHING, 10)
        assert [(each.json, each.expires_ms, each.stored_ms) for each in rows] == [
            ("a", None, 70),
            ("b", 9000, 70),
        ]
        (row,) = spool.read(HOME, 2, BEFORE_EVERYTHING, 10)
        assert (row.json, row.expires_ms, row.stored_ms) == ("c", 6000, 90)
        assert spool.clock() >= 90


def test_what_was_discarded_is_still_reported(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 9)
        spool.commit([], [], [Discard(cloud(n), Outcome.DROPPED, "full") for n in (2, 3, 7)], uptime_ms=0)
    marker_of(path).touch()
    with Spool(path, SYSTEM) as spool:
        (report,) = spool.loss_reports()
        assert (report.destination, report.outcome, report.reason) == (CLOUD, Outcome.DROPPED, "full")
        assert report.ranges == ((2 - SHIFT, 3 - SHIFT), (7 - SHIFT, 7 - SHIFT))
        assert spool.origin.lost == 0


@pytest.mark.long
@pytest.mark.source("F-W1")
@pytest.mark.parametrize("filler", [b"\0", b"\1", b"\xa5"])
@pytest.mark.parametrize(
    "table", ["batch", "delivery", "queue", "device", "recent", "device_state", "discard"]
)
def test_any_page_may_be_overwritten(path: Path, tmp_path: Path, table: str, filler: bytes) -> None:
    """Zeroed pages gave empty events; an overwritten list of pending events lost 15 of 18 silently."""
    with Spool(path, SYSTEM) as spool:
        fill(spool, 120, a_commit=60)
        stored = dict(enumerate(waiting(spool), 1))
        spool.commit([], [cloud(n) for n in range(1, 10)], uptime_ms=0, states=[device_state("a/b/c")])
        spool.commit([], [], [Discard(cloud(10), Outcome.EXPIRED, "ttl")], uptime_ms=0)
    for page in sampled([each for each in pages(path, table) if each > 1][:30]):
        copy = tmp_path / f"page-{page}" / path.name
        copy.parent.mkdir()
        for side in ("", ".commits"):
            shutil.copy(f"{path}{side}", f"{copy}{side}")
        overwrite(copy, page, filler=filler)
        _, found, origin = reopened(copy, lambda spool: (spool.recent_keys(10), waiting(spool), spool.origin))
        assert not {*found} - {*stored.values()}
        missing = {number for number, text in stored.items() if number > 10 and text not in found}
        assert table == "batch" or not missing
        assert len(missing) <= (origin.lost or 0)
        assert missing <= {n for first, last in origin.lost_ranges for n in range(first, last + 1)}


@pytest.mark.parametrize("place", sampled(range(16, 100)))
def test_any_byte_of_the_header_may_be_wrong(path: Path, place: int) -> None:
    filled(path, 3)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes([path.read_bytes()[place] ^ 0x55]))
    assert reopened(path, lambda spool: fill(spool, 1) or waiting(spool))


def crashed(path: Path, to: Path, *, commits: int = 10, noted: bool = True) -> Path:
    """The files as a crash leaves them: nothing has been written from the log to the main file."""
    to.mkdir()
    with Spool(path, SYSTEM) as spool:
        for _ in range(commits):
            fill(spool, 1)
        for side in ("", "-wal", ".commits") if noted else ("", "-wal"):
            shutil.copy(f"{path}{side}", to)
    return to / path.name


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("commits_behind", [0, 1, 2, 9])
def test_a_damaged_log_is_not_torn(path: Path, tmp_path: Path, commits_behind: int, noted: bool) -> None:
    left = crashed(path, tmp_path / "crashed", noted=noted)
    log = log_of(left)
    frames = log.read_bytes()[32:]
    commits = [n for n in range(0, len(frames), 24 + PAGE_BYTES) if frames[n + 4 : n + 8] != bytes(4)]
    with log.open("r+b") as file:
        # In the middle of a page of the last commit but so many; what follows is not reached by SQLite.
        file.seek(32 + commits[-1 - commits_behind] + 100)
        file.write(b"\xff" * 50)
    with Spool(left, SYSTEM) as spool:
        found = len(waiting(spool))
        assert found >= 9
        # Without a note, which a power cut leaves, nobody knows how many commits there were.
        assert (spool.origin.kind, spool.origin.lost) == ("recovered", 10 - found if noted else None)
        lost = [n for first, last in spool.origin.lost_ranges for n in range(first, last + 1)]
        assert len(lost) == (10 - found if noted else 0)


@pytest.mark.parametrize("place", sampled(range(32)))
@pytest.mark.parametrize("noted", [True, False])
def test_a_damaged_log_header_loses_nothing(path: Path, tmp_path: Path, place: int, noted: bool) -> None:
    left = crashed(path, tmp_path / "crashed", noted=noted)
    content = bytearray(log_of(left).read_bytes())
    content[place] ^= 0x10
    log_of(left).write_bytes(content)
    assert origin_of(left) == ("recovered", 0 if noted else None, 10)


@pytest.mark.parametrize("left_of_the_log", [0, 1, 31, 32, 3000])
def test_a_truncated_log_is_reported(path: Path, tmp_path: Path, left_of_the_log: int) -> None:
    left = crashed(path, tmp_path / "crashed")
    os.truncate(f"{left}-wal", left_of_the_log)
    with Spool(left, SYSTEM) as spool:
        found = len(waiting(spool))
        assert (spool.origin.kind, spool.origin.lost) == ("recovered", 10 - found)
        assert spool.origin.lost_ranges == ((found + 1, 10),)


def test_a_missing_database_is_reported_with_the_number_of_its_events(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 20)
        spool.commit([], [cloud(n) for n in range(1, 8)], uptime_ms=0)
        epoch = spool.epoch
    path.unlink()
    with Spool(path, SYSTEM) as spool:
        assert spool.origin == SpoolOrigin(
            "recovered", "the file is empty after 2 commits", 0, epoch, 13, ((1, 20),)
        )
    with Spool(path, SYSTEM) as spool:
        assert spool.origin.kind == "recovered"


def test_damage_is_named_in_words(path: Path) -> None:
    filled(path, 20)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE delivery SET waiting = x'00'")
    damage = reopened(path, lambda spool: (waiting(spool), spool.origin.damage)[1])
    assert damage.startswith("the list of what is pending of batch")


def test_damaged_files_do_not_fill_the_disk(path: Path) -> None:
    for n in range(6):
        path.write_bytes(b"garbage %d" % n * 1000)
        Spool(path, SYSTEM).close()
    kept = beside(path, ".damaged-")
    assert [each.read_bytes()[8:9] for each in kept] == [b"3", b"4", b"5"]
    path.write_bytes(b"large" * 1000)
    Spool(path, SYSTEM, capacity_bytes=1000).close()
    assert [each.read_bytes()[:5] for each in beside(path, ".damaged-")] == [b"large"]


def test_damage_before_the_exchange(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, 20)
    marker_of(path).touch()
    with monkeypatch.context() as patched:
        patched.setattr("edge.spool.recovery.finish_recovery", lambda *_: None)
        with pytest.raises(SpoolCorruptError):
            Spool(path, SYSTEM)
    (recovered,) = beside(path, ".recovered-")
    content = bytearray(recovered.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    recovered.write_bytes(content)
    assert origin_of(path) == ("recovered", 0, 20)
    assert not beside(path, ".recovered-")


def test_what_the_cloud_desires_is_saved_and_marked_as_salvaged(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 100)
        spool.commit([], uptime_ms=0, states=[device_state(f"a/b/{n}", sequence=n) for n in range(50)])
    marker_of(path).touch()
    with Spool(path, SYSTEM) as spool:
        assert spool.origin.kind == "recovered"
        assert spool.state_count() == 50
        saved = spool.device_state("state", "a/b/7")
        assert saved.sequence < 0
        assert saved._replace(sequence=7) == device_state("a/b/7", sequence=7)


def test_a_state_whose_page_is_damaged_is_lost_and_the_ones_before_it_are_not(path: Path) -> None:
    text = "x" * 3 * PAGE_BYTES
    with Spool(path, SYSTEM) as spool:
        fill(spool, 10)
        spool.commit([], uptime_ms=0, states=[device_state(f"a/b/{n}", json=text) for n in range(20)])
    damaged = pages(path, "device_state")
    overwrite(path, damaged[len(damaged) // 2])
    with contextlib.suppress(SpoolCorruptError), Spool(path, SYSTEM) as spool:
        _ = [spool.device_state("state", f"a/b/{n}") for n in range(20)]
    with Spool(path, SYSTEM) as spool:
        assert spool.origin.kind == "recovered"
        assert len(waiting(spool)) == 10
        assert 0 < spool.state_count() < 20
        assert f"{20 - spool.state_count()} states lost" in spool.origin.damage


def test_a_newer_format_is_never_touched(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
        db.execute("CREATE TABLE something (else_ TEXT)")
    with pytest.raises(SpoolError, match=f"format is {FORMAT + 1}"):
        Spool(path, SYSTEM)
    assert beside(path, ".damaged") == []


def test_a_directory_in_its_place_is_an_error_with_a_remedy(path: Path) -> None:
    path.mkdir()
    with pytest.raises(SpoolError, match="see that") as raised:
        Spool(path, SYSTEM)
    assert not isinstance(raised.value, SpoolCorruptError)
    assert path.is_dir()


def use_all(spool: Spool) -> None:
    waiting(spool)
    spool.recent_keys(10)
    fill(spool, 1)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        # Found by fuzzing: a few bytes of a page changed, in a place where SQLite does not notice.
        ("UPDATE recent SET keys = 7", ()),
        ("UPDATE delivery SET waiting = 'no blob'", ()),
        ("UPDATE delivery SET waiting = ?", (struct.pack("<Iq", 2_000, 1),)),
        ("UPDATE device SET boot = CAST(X'ff' AS TEXT)", ()),
        ("ALTER TABLE device RENAME COLUMN boot TO boat", ()),
        ("UPDATE batch SET stored_ms = 'late'", ()),
    ],
)
def test_nonsense_in_a_spool_is_recovered(path: Path, statement: str, values: tuple[object, ...]) -> None:
    filled(path, 20)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)
    reopened(path, use_all)


def test_a_schema_that_even_the_message_cannot_quote_is_recovered(path: Path) -> None:
    filled(path, 20)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE \xf2\x35\xbeLE"))
    reopened(path, use_all)


def test_a_number_that_is_taken_already_is_damage(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 1)
        spool._db.execute("INSERT INTO batch SELECT last + 1, rank, 0, 0, '', texts FROM batch")
        with pytest.raises(SpoolCorruptError):
            fill(spool, 1)
    assert origin_of(path) == ("recovered", 0, 1)


def test_a_statement_that_is_wrong_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 1)
        with monkeypatch.context() as wrong:
            wrong.setattr("edge.spool.states._PUT", "INSERT INTO nowhere VALUES (?)")
            with pytest.raises(SpoolUnavailableError):
                spool.commit([], uptime_ms=0, states=[device_state("a/b/c")])
        assert not marker_of(path).exists()
        fill(spool, 1)
        assert len(waiting(spool)) == 2


@pytest.mark.parametrize("damage", [b"\0" * PAGE_BYTES, b"\xa5" * PAGE_BYTES, b"\xa5"])
@pytest.mark.parametrize("logged", [True, False])
def test_a_damaged_schema_costs_nothing(path: Path, tmp_path: Path, damage: bytes, logged: bool) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 100)
        if logged:
            spool._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            fill(spool, 100)
        stored = waiting(spool)
        made = tmp_path / "left"
        shutil.copytree(path.parent, made) if logged else None
    if not logged:
        shutil.copytree(path.parent, made)
    schema = pages(path, "sqlite_schema")
    assert len(schema) > 5
    for page in schema:
        copy = tmp_path / f"page-{page}" / path.name
        shutil.copytree(made, copy.parent)
        with copy.open("r+b") as file:
            file.seek((page - 1) * PAGE_BYTES + (0 if len(damage) > 1 else 200))
            file.write(damage)
        with Spool(copy, SYSTEM) as spool:
            assert waiting(spool) == stored
            assert spool.origin.lost == 0


@pytest.mark.parametrize("copy", [0, 512])
def test_one_damaged_sector_of_the_note_costs_nothing(path: Path, copy: int) -> None:
    epoch = filled(path, 3)
    with note_of(path).open("r+b") as note:
        note.seek(copy)
        note.write(b"\xff" * 40)
    with Spool(path, SYSTEM) as spool:
        assert (spool.origin.kind, spool.epoch) == ("resumed", epoch)


def test_without_a_note_no_number_is_given_twice(path: Path) -> None:
    epoch = filled(path, 3)
    note_of(path).unlink()
    assert origin_of(path) == ("recovered", None, 3)
    with Spool(path, SYSTEM) as spool:
        assert spool.epoch != epoch


def test_a_recovered_spool_has_its_note(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 20)
        spool.commit([], [cloud(n) for n in range(1, 8)], uptime_ms=0)
    marker_of(path).touch()

    def cut(*_: object) -> None:
        raise OSError(errno.EIO, "cut")

    with monkeypatch.context() as patched:
        patched.setattr("edge.spool.store.files.CommitNotes", cut)
        with pytest.raises(SpoolUnavailableError):
            Spool(path, SYSTEM)
    path.unlink()
    with Spool(path, SYSTEM) as spool:
        assert (spool.origin.kind, spool.origin.lost) == ("recovered", 13)
        assert spool.origin.lost_ranges == ((8 - SHIFT, 0),)


def test_a_note_of_another_epoch_is_damaged(path: Path) -> None:
    Spool(path, SYSTEM).close()
    filled(path.with_name("other.db"), 3)
    note_of(path.with_name("other.db")).replace(note_of(path))
    assert origin_of(path) == ("recovered", None, 0)


def test_a_note_may_be_older_than_the_database_and_not_newer(path: Path) -> None:
    kept = []
    for _ in range(2):
        filled(path, 5)
        kept.append((path.read_bytes(), note_of(path).read_bytes()))
    note_of(path).write_bytes(kept[0][1])
    assert origin_of(path) == ("resumed", 0, 10)
    path.write_bytes(kept[0][0])
    with Spool(path, SYSTEM) as spool:
        assert (spool.origin.kind, spool.origin.lost, len(waiting(spool))) == ("recovered", 5, 5)
        assert spool.origin.lost_ranges == ((6, 10),)


def test_a_log_outlives_its_database(path: Path, tmp_path: Path) -> None:
    left = crashed(path, tmp_path / "crashed")
    os.truncate(left, 0)
    assert origin_of(left) == ("recovered", 0, 10)


def test_what_an_earlier_recovery_lost_is_reported_by_the_next_one(path: Path, tmp_path: Path) -> None:
    left = crashed(path, tmp_path / "crashed")
    os.truncate(f"{left}-wal", 3000)
    with Spool(left, SYSTEM) as spool:
        lost, ranges = spool.origin.lost, spool.origin.lost_ranges
        assert lost
    marker_of(left).touch()
    with Spool(left, SYSTEM) as spool:
        assert spool.origin.lost == lost
        assert spool.origin.lost_ranges == tuple((first - SHIFT, last - SHIFT) for first, last in ranges)
    # Nothing is left of the file but its note.
    left.unlink()
    with Spool(left, SYSTEM) as spool:
        assert spool.origin.lost is not None
        assert spool.origin.lost >= lost


def test_discards_and_states_of_lost_commits_are_reported(path: Path, tmp_path: Path) -> None:
    filled(path, 3)
    with Spool(path, SYSTEM) as spool:
        dropped = [Discard(cloud(n), Outcome.DROPPED, "full") for n in (1, 3)]
        spool.commit([], [], dropped, uptime_ms=0, states=[device_state("a/b/1")])
        left = tmp_path / "crashed" / path.name
        shutil.copytree(path.parent, left.parent)
    os.truncate(f"{left}-wal", 0)
    with Spool(left, SYSTEM) as spool:
        assert spool.origin.kind == "recovered"
        assert "at most 2 ranges of discards lost" in spool.origin.damage
        assert "at most 1 states lost" in spool.origin.damage
        assert spool.origin.lost == 0
