"""The filter on the disk: its bounds, its lock, and what becomes of damaged copies."""

import errno
import sqlite3
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from shutil import copyfile

import pytest

from eventplane_client import sqlite_filter
from eventplane_client.errors import StateError
from eventplane_client.notices import Notice, StateCreated, StateHealed, StateLost
from eventplane_client.ports import Verdict
from eventplane_client.sqlite_file import copy_of
from eventplane_client.sqlite_filter import SqliteFilter


def key(number: int) -> bytes:
    return blake2b(str(number).encode(), digest_size=16).digest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def notices() -> list[Notice]:
    return []


@pytest.fixture
def reopened(path: Path, notices: list[Notice]) -> Callable[[], SqliteFilter]:
    """The filter after some damage; 20 events were done before, the last is in hand."""
    with_state = SqliteFilter(path, on_notice=notices.append)
    with_state.claim([], [key(number) for number in range(20)])
    with_state.claim([key(20)])
    with_state.close()
    return lambda: SqliteFilter(path, on_notice=notices.append)


def remembers(filter: SqliteFilter) -> bool:
    verdicts = filter.claim([key(number) for number in range(21)])
    filter.close()
    return verdicts == [Verdict.DONE] * 20 + [Verdict.DOUBT]


def test_a_first_start_is_told(
    reopened: Callable[[], SqliteFilter], path: Path, notices: list[Notice]
) -> None:
    assert remembers(reopened())
    assert notices == [StateCreated(str(path))]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("damage", ["wiped", "cut", "header", "middle", "other"])
def test_a_damaged_copy_is_made_anew_from_the_other(
    reopened: Callable[[], SqliteFilter], path: Path, notices: list[Notice], which: int, damage: str
) -> None:
    victim = (path, copy_of(path))[which]
    hurt(victim, damage)
    assert remembers(reopened())
    (healed,) = notices[1:]
    assert isinstance(healed, StateHealed)
    assert healed.place == str(victim)
    # And that one can heal the other now.
    (path, copy_of(path))[1 - which].unlink()
    assert remembers(reopened())


@pytest.mark.source("F6")
def test_both_damaged(reopened: Callable[[], SqliteFilter], path: Path, notices: list[Notice]) -> None:
    for victim in (path, copy_of(path)):
        hurt(victim, "header")
    filter = reopened()
    assert filter.claim([key(0)]) == [Verdict.NEW]
    filter.close()
    assert isinstance(notices[-1], StateLost)
    assert path.with_name("state.db.damaged").exists()


def test_an_older_copy_that_comes_back_does_not_count(
    reopened: Callable[[], SqliteFilter], path: Path, tmp_path: Path, notices: list[Notice]
) -> None:
    copyfile(path, tmp_path / "old")
    filter = reopened()
    filter.claim([], [key(20), key(21)])
    filter.claim([], [key(22)])
    filter.close()
    copyfile(tmp_path / "old", path)
    filter = reopened()
    assert filter.claim([key(20), key(21), key(22)]) == [Verdict.DONE] * 3
    filter.close()
    assert isinstance(notices[-1], StateHealed)


def test_damage_while_it_works_is_healed(path: Path, notices: list[Notice]) -> None:
    filter = SqliteFilter(path, on_notice=notices.append)
    filter.claim([], [key(number) for number in range(2_000)])
    filter._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    filter._db.execute("PRAGMA main.shrink_memory")
    filter._db.execute("PRAGMA main.cache_size = 1")
    hurt(path, "middle")
    assert set(filter.claim([key(number) for number in range(2_000)])) == {Verdict.DONE}
    assert filter.claim([key(5_000)]) == [Verdict.NEW]
    filter.close()
    assert any(isinstance(each, StateHealed) for each in notices)


def test_healing_is_retried(path: Path, notices: list[Notice], monkeypatch: pytest.MonkeyPatch) -> None:
    filter = SqliteFilter(path, on_notice=notices.append)
    filter.claim([], [key(1)])

    def damaged(_: object, __: object) -> Verdict:
        error = sqlite3.DatabaseError("malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    def full(_: object, __: object) -> sqlite3.Connection:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(filter, "_verdict", damaged)
        patch.setattr(sqlite_filter, "open_copies", full)
        with pytest.raises(StateError, match="no space"):
            filter.claim([key(1)])
    assert filter.claim([key(1)]) == [Verdict.DONE]
    filter.close()


def test_a_claim_that_failed_is_no_claim(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filter = SqliteFilter(path, on_notice=lambda _: None)
    filter._write([key(1)], [])  # stands in the file, but nobody was told
    assert filter.claim([key(1)]) == [Verdict.NEW]
    assert filter.claim([key(1)]) == [Verdict.MINE]
    filter.release([key(1)])
    assert filter.claim([key(1)]) == [Verdict.NEW]
    filter.close()


def test_a_second_reader_is_refused(path: Path) -> None:
    filter = SqliteFilter(path, on_notice=lambda _: None)
    with pytest.raises(StateError, match="another reader"):
        SqliteFilter(path)
    filter.close()
    SqliteFilter(path).close()
    with pytest.raises(StateError, match="missing"):
        SqliteFilter(path.parent / "missing" / "state.db")


@pytest.mark.source("F-W3")
def test_its_size_is_bounded(path: Path) -> None:
    filter = SqliteFilter(path, window=100, on_notice=lambda _: None)
    for number in range(0, 3_000, 10):
        filter.claim([], [key(each) for each in range(number, number + 10)])
    assert filter.claim([key(2_899), key(2_950)]) == [Verdict.NEW, Verdict.DONE]
    filter.close()
    assert path.stat().st_size < 40_000


def hurt(path: Path, damage: str) -> None:
    contents = bytearray(path.read_bytes())
    if damage == "wiped":
        path.unlink()
        return
    if damage == "cut":
        contents = contents[: len(contents) // 2]
    elif damage == "header":
        contents[:100] = b"x" * 100
    elif damage == "middle":
        for start in range(1024, len(contents), 1024):
            contents[start : start + 200] = b"\xa5" * 200
    else:
        contents = bytearray(b"this is another file altogether" * 100)
    path.write_bytes(contents)
