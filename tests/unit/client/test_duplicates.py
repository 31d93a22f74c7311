"""Message filters: what each of them keeps, and the file of SQLite's."""

import errno
import sqlite3
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from shutil import copyfile
from threading import Event, RLock, Thread
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from eventplane_client import sqlite_duplicates
from eventplane_client.dynamodb_duplicates import DynamoDbFilter
from eventplane_client.errors import StateError
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.notices import Notice, StateCreated, StateHealed, StateLost
from eventplane_client.ports import MessageFilter, Verdict
from eventplane_client.sqlite_duplicates import SqliteFilter
from eventplane_client.sqlite_file import copy_of
from tests.fakes.faults import FailingClient
from tests.unit.client.worlds import READER, create_filter_table

LEASE_S = 30
SHARED = ("memory", "dynamodb")
"""Filters of several readers. The file of `sqlite` has one, and its lock is the lease."""


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Readers:
    """Readers that share what one kind of filter remembers, and a clock."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.now = 1_700_000_000.0
        self.lease_s: float = LEASE_S
        self.kind = kind
        self._file = directory / "state.db"
        self._memory = Memory()
        self._alive: list[Any] = []
        if kind == "dynamodb":
            self.dynamodb: Any = boto3.client("dynamodb")
            create_filter_table(self.dynamodb, "filters")

    def open(self) -> Any:
        """One reader more."""
        self._alive.append(self._open())
        return self._alive[-1]

    def kill(self) -> None:
        """All of them end without a word, and their leases too."""
        for each in self._alive:
            each.close()  # what the system does for a process that ends
        self._alive.clear()
        self.now += LEASE_S + 1

    def _open(self) -> MessageFilter:
        times: Any = {"lease": lambda: self.lease_s, "clock": lambda: self.now}
        if self.kind == "memory":
            return MemoryFilter(self._memory, **times)
        if self.kind == "sqlite":
            return SqliteFilter(self._file, on_notice=lambda _: None)
        return DynamoDbFilter(self.dynamodb, "filters", READER, **times)


@pytest.fixture(params=[*SHARED, "sqlite"])
def readers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Readers]:
    if request.param == "dynamodb":
        request.getfixturevalue("fake_aws")
    it = Readers(request.param, tmp_path)
    yield it
    it.kill()


shared = pytest.mark.parametrize("readers", SHARED, indirect=True)


@pytest.mark.source("P14")
def test_an_event_is_new_once_and_done_for_ever(readers: Readers) -> None:
    reader = readers.open()
    assert reader.claim([key(1), key(2)]) == [Verdict.NEW] * 2
    assert reader.claim([key(1)]) == [Verdict.MINE]
    assert reader.claim([key(1), key(3)], [key(1)]) == [Verdict.DONE, Verdict.NEW]
    readers.kill()
    assert readers.open().claim([key(1), key(4)]) == [Verdict.DONE, Verdict.NEW]


@pytest.mark.source("P14")
def test_a_killed_readers_claim_is_in_doubt(readers: Readers) -> None:
    readers.open().claim([key(1)])
    readers.kill()
    reader = readers.open()
    assert reader.claim([key(1), key(2)]) == [Verdict.DOUBT, Verdict.NEW]
    assert reader.claim([key(1)], force=True) == [Verdict.DOUBT]
    assert reader.claim([key(1)]) == [Verdict.MINE]
    readers.kill()
    assert readers.open().claim([key(1)]) == [Verdict.DOUBT]


def test_what_is_given_back_is_new_to_the_next_reader(readers: Readers) -> None:
    reader = readers.open()
    reader.claim([key(1), key(2)])
    reader.release([key(1)])
    assert reader.claim([key(1)]) == [Verdict.NEW]
    reader.release([key(1)])
    readers.kill()
    assert readers.open().claim([key(1), key(2)]) == [Verdict.NEW, Verdict.DOUBT]


def test_what_is_done_cannot_be_given_back(readers: Readers) -> None:
    reader = readers.open()
    reader.claim([key(1)])
    reader.claim([], [key(1)])
    reader.release([key(1)])
    assert reader.claim([key(1)]) == [Verdict.DONE]


def test_the_epoch_before_is_told_once(readers: Readers) -> None:
    reader = readers.open()
    assert [reader.epoch("/homes/1", each) for each in ("one", "one", "two", "two")] == [
        None,
        None,
        "one",
        None,
    ]
    readers.kill()
    assert readers.open().epoch("/homes/1", "three") == "two"


@shared
def test_a_claim_is_busy_for_others_until_its_lease_ends(readers: Readers) -> None:
    one, two = readers.open(), readers.open()
    one.claim([key(1), key(2)])
    assert two.claim([key(1), key(3)]) == [Verdict.BUSY, Verdict.NEW]
    assert two.claim([key(1)], force=True) == [Verdict.BUSY]
    readers.now += LEASE_S - 1
    one.renew([key(1)])
    readers.now += LEASE_S - 1
    assert two.claim([key(1)]) == [Verdict.BUSY]
    readers.now += LEASE_S
    assert two.claim([key(1)]) == [Verdict.DOUBT]


@shared
def test_each_claim_has_the_lease_that_its_reader_has_then(readers: Readers) -> None:
    one, two = readers.open(), readers.open()
    readers.lease_s = 900
    one.claim([key(1)])
    readers.now += 600
    readers.lease_s = 10
    assert two.claim([key(1), key(2)]) == [Verdict.BUSY, Verdict.NEW]
    readers.now += 11
    assert readers.open().claim([key(2)]) == [Verdict.DOUBT]
    readers.now += 300
    assert two.claim([key(1)]) == [Verdict.DOUBT]


@shared
@pytest.mark.source("P14")
def test_what_was_taken_over_is_anothers(readers: Readers) -> None:
    one, two = readers.open(), readers.open()
    one.claim([key(1)])
    readers.now += LEASE_S + 1
    two.claim([key(1)], force=True)
    one.release([key(1)])
    one.renew([key(1)])
    assert readers.open().claim([key(1)]) == [Verdict.BUSY]
    readers.now += LEASE_S + 1
    assert readers.open().claim([key(1)]) == [Verdict.DOUBT]


items = pytest.mark.parametrize("readers", ["dynamodb"], indirect=True)


@items
def test_a_claim_whose_answer_was_lost_is_no_claim(readers: Readers) -> None:
    reader = readers.open()
    reader.claim([key(1)])
    reader._in_hand.clear()
    assert reader.claim([key(1)]) == [Verdict.NEW]


@items
def test_one_of_two_takers_has_a_claim(readers: Readers) -> None:
    readers.now += 0.2
    readers.open().claim([key(1)])
    readers.now += LEASE_S
    found: list[Verdict] = []
    for _ in range(2):
        readers.now += 0.2
        reader = readers.open()
        found += reader.claim([key(1)]) + reader.claim([key(1)], force=True)
    assert found == [Verdict.DOUBT, Verdict.DOUBT, Verdict.BUSY, Verdict.BUSY]


@items
def test_a_doubtful_claim_given_back_is_free(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = readers.open(), readers.open()
    one.claim([key(1)])
    readers.now += LEASE_S + 1
    read = two._claims.read

    def given_back(*names: str) -> Any:
        found = read(*names)
        one.release([key(1)])
        return found

    monkeypatch.setattr(two._claims, "read", given_back)
    assert two.claim([key(1)], force=True) == [Verdict.DOUBT]
    assert readers.open().claim([key(1)]) == [Verdict.BUSY]


@items
@pytest.mark.lost_answers
def test_what_is_written_counts(readers: Readers) -> None:
    reader = readers.open()
    assert reader.claim([key(1), key(2)]) == [Verdict.NEW] * 2
    assert reader.claim([key(1)]) == [Verdict.MINE]
    reader.release([key(1)])
    assert reader.claim([key(1)], [key(2)]) == [Verdict.NEW]
    assert readers.open().claim([key(1), key(2)]) == [Verdict.BUSY, Verdict.DONE]


@items
def test_a_lost_renewal_answer_keeps_a_claim(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = readers.open(), readers.open()
    one.claim([key(1), key(2)])
    write = one._claims.write

    def unanswered(claim: Any) -> None:
        write(claim)
        raise ClientError({"Error": {"Code": "Throttling"}}, "PutItem")

    with monkeypatch.context() as losing:
        losing.setattr(one._claims, "write", unanswered)
        for each in (key(1), key(2)):
            with pytest.raises(StateError):
                one.renew([each])
    for _ in range(3):
        readers.now += LEASE_S - 1
        one.renew([key(1)])
    assert two.claim([key(1)]) == [Verdict.BUSY]
    one.release([key(1), key(2)])
    assert two.claim([key(1), key(2)]) == [Verdict.NEW] * 2


class WatchedLock:
    """A reentrant lock that sets `is_met` when a thread has to wait for it."""

    def __init__(self) -> None:
        self.is_met = Event()
        self._lock = RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.is_met.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@items
def test_what_is_given_back_is_not_renewed(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    one, lock = readers.open(), WatchedLock()
    one.claim([key(1)])
    write = one._claims.write

    def give_back() -> None:
        one.release([key(1)])
        lock.is_met.set()  # it did not wait for the renewal

    releasing = Thread(target=give_back)

    def slow(claim: Any) -> Any:
        stored = write(claim)
        releasing.start()
        assert lock.is_met.wait(10)
        return stored

    monkeypatch.setattr(one, "_lock", lock)
    monkeypatch.setattr(one._claims, "write", slow)
    one.renew([key(1)])
    releasing.join()
    monkeypatch.undo()
    assert not one._in_hand
    assert readers.open().claim([key(1)]) == [Verdict.NEW]


@items
def test_what_aws_refuses_is_a_named_error_and_no_claim(readers: Readers) -> None:
    readers.dynamodb = refusing = FailingClient(readers.dynamodb, "put_item")
    reader = readers.open()
    with pytest.raises(StateError, match="filters"):
        reader.claim([key(1)])
    refusing.end()
    assert reader.claim([key(1)]) == [Verdict.NEW]


def digest(number: int) -> bytes:
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
    with_state.claim([], [digest(number) for number in range(20)])
    with_state.claim([digest(20)])
    with_state.close()
    return lambda: SqliteFilter(path, on_notice=notices.append)


def remembers(filter: SqliteFilter) -> bool:
    verdicts = filter.claim([digest(number) for number in range(21)])
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
    assert filter.claim([digest(0)]) == [Verdict.NEW]
    filter.close()
    assert isinstance(notices[-1], StateLost)
    assert path.with_name("state.db.damaged").exists()


def test_an_older_copy_that_comes_back_does_not_count(
    reopened: Callable[[], SqliteFilter], path: Path, tmp_path: Path, notices: list[Notice]
) -> None:
    copyfile(path, tmp_path / "old")
    filter = reopened()
    filter.claim([], [digest(20), digest(21)])
    filter.claim([], [digest(22)])
    filter.close()
    copyfile(tmp_path / "old", path)
    filter = reopened()
    assert filter.claim([digest(20), digest(21), digest(22)]) == [Verdict.DONE] * 3
    filter.close()
    assert isinstance(notices[-1], StateHealed)


def test_damage_while_it_works_is_healed(path: Path, notices: list[Notice]) -> None:
    filter = SqliteFilter(path, on_notice=notices.append)
    filter.claim([], [digest(number) for number in range(2_000)])
    filter._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    filter._db.execute("PRAGMA main.shrink_memory")
    filter._db.execute("PRAGMA main.cache_size = 1")
    hurt(path, "middle")
    assert set(filter.claim([digest(number) for number in range(2_000)])) == {Verdict.DONE}
    assert filter.claim([digest(5_000)]) == [Verdict.NEW]
    filter.close()
    assert any(isinstance(each, StateHealed) for each in notices)


def test_healing_is_retried(path: Path, notices: list[Notice], monkeypatch: pytest.MonkeyPatch) -> None:
    filter = SqliteFilter(path, on_notice=notices.append)
    filter.claim([], [digest(1)])

    def damaged(_: object, __: object) -> Verdict:
        error = sqlite3.DatabaseError("malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    def full(_: object, __: object) -> sqlite3.Connection:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(filter, "_verdict", damaged)
        patch.setattr(sqlite_duplicates, "open_copies", full)
        with pytest.raises(StateError, match="no space"):
            filter.claim([digest(1)])
    assert filter.claim([digest(1)]) == [Verdict.DONE]
    filter.close()


def test_a_claim_that_failed_is_no_claim(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filter = SqliteFilter(path, on_notice=lambda _: None)
    filter._write([digest(1)], [])  # stands in the file, but nobody was told
    assert filter.claim([digest(1)]) == [Verdict.NEW]
    assert filter.claim([digest(1)]) == [Verdict.MINE]
    filter.release([digest(1)])
    assert filter.claim([digest(1)]) == [Verdict.NEW]
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
        filter.claim([], [digest(each) for each in range(number, number + 10)])
    assert filter.claim([digest(2_899), digest(2_950)]) == [Verdict.NEW, Verdict.DONE]
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
