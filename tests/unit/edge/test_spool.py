from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edge.errors import SpoolError
from edge.spool import BEFORE_EVERYTHING, READ_CHARACTERS, Arrival, Delivery, Spool, Waiting, read_backlog

CLOUD, HOME = "device.outbox", "call.inbox"


def key(sequence: int) -> bytes:
    return sequence.to_bytes(16, "big")


def arrival(sequence: int, rank: int = 1, to: tuple[str, ...] = (CLOUD,), json: str = "{}") -> Arrival:
    return Arrival(sequence, rank, json, dict.fromkeys(to), key(sequence))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "spool.db"


def test_events_wait_for_each_destination_apart(path: Path) -> None:
    with Spool(path) as spool:
        spool.commit([arrival(1, 0, (HOME, CLOUD)), arrival(2)], life_ms=0)
        assert spool.read(HOME, 0, 0, 10) == [Waiting(Delivery(HOME, 0, 1), "{}", None, 0)]
        spool.commit([], [Delivery(HOME, 0, 1)], life_ms=0)
        assert spool.backlog() == {HOME: 0, CLOUD: 2}
        assert [each.delivery.sequence for each in spool.read(CLOUD, 0, 0, 10)] == [1]
        spool.commit([], [Delivery(CLOUD, 0, 1), Delivery(CLOUD, 1, 2)], life_ms=0)
        assert spool.backlog() == {HOME: 0, CLOUD: 0}
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT COUNT(*) FROM event").fetchone() == (0,)
    db.close()


def test_a_number_is_never_used_again_and_the_epoch_stays(path: Path) -> None:
    with Spool(path) as spool:
        epoch = spool.epoch
        spool.commit([arrival(1), arrival(2)], life_ms=0)
        spool.commit([], [Delivery(CLOUD, 1, 1), Delivery(CLOUD, 1, 2)], life_ms=0)
    with Spool(path) as spool:
        assert spool.epoch == epoch
        assert spool.next_sequence == 3


def test_a_new_file_is_a_new_epoch(tmp_path: Path) -> None:
    with Spool(tmp_path / "a") as first, Spool(tmp_path / "b") as second:
        assert first.epoch != second.epoch
        assert len(first.epoch) == 16


def test_a_commit_is_all_or_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with Spool(path) as spool:
        spool.commit([arrival(1)], life_ms=0)
        with monkeypatch.context() as broken:
            broken.setattr(Spool, "_write_device", fail)
            with pytest.raises(SpoolError, match="disk is full"):
                spool.commit([arrival(2, to=("new.inbox",))], [Delivery(CLOUD, 1, 1)], life_ms=0)
        assert spool.backlog() == {CLOUD: 1}
        assert spool.next_sequence == 2
        assert spool.newest("new.inbox", 1) == BEFORE_EVERYTHING
        spool.commit([arrival(2, to=("new.inbox",))], life_ms=0)
        assert spool.backlog() == {CLOUD: 1, "new.inbox": 1}


def test_reading_goes_on_behind_a_sequence_and_stops_at_the_limit_or_the_size(path: Path) -> None:
    large = "x" * (READ_CHARACTERS // 2)
    with Spool(path) as spool:
        spool.commit(
            [arrival(n) for n in range(1, 6)] + [arrival(n, json=large) for n in range(6, 9)], life_ms=0
        )
        assert [each.delivery.sequence for each in spool.read(CLOUD, 1, 2, 2)] == [3, 4]
        assert [each.delivery.sequence for each in spool.read(CLOUD, 1, 5, 10)] == [6, 7]
        assert spool.read("unknown", 1, 0, 10) == []


def test_the_newest_is_known_after_a_restart(path: Path) -> None:
    with Spool(path) as spool:
        spool.commit([arrival(1), arrival(2, 0)], life_ms=0)
    with Spool(path) as spool:
        assert [spool.newest(CLOUD, rank) for rank in range(3)] == [2, 1, BEFORE_EVERYTHING]


def test_what_was_not_committed_is_not_there(path: Path) -> None:
    with Spool(path) as spool:
        spool.commit([arrival(1)], life_ms=0)
        spool._db.execute("BEGIN")
        spool._insert([arrival(2)], 0)
    with Spool(path) as spool:
        assert spool.backlog() == {CLOUD: 1}
        assert spool.next_sequence == 2


def test_a_file_has_one_writer(path: Path) -> None:
    with Spool(path), pytest.raises(SpoolError, match="another forwarder"):
        Spool(path)
    Spool(path).close()


def test_it_syncs_every_commit(path: Path) -> None:
    with Spool(path) as spool:
        assert spool._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert spool._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_file_of_another_format_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 7")
    db.close()
    with pytest.raises(SpoolError, match="format is 7"):
        Spool(path)


def test_a_file_that_is_no_database_is_an_error_with_a_remedy(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(SpoolError, match="not a database"):
        Spool(path)


def test_anybody_may_look_at_the_backlog_meanwhile_and_afterwards(path: Path) -> None:
    with pytest.raises(SpoolError, match="cannot be read"):
        read_backlog(path)
    with Spool(path) as spool:
        assert read_backlog(path) == {}
        spool.commit([arrival(1, 0, (HOME, CLOUD)), arrival(2)], life_ms=0)
        assert read_backlog(path) == {HOME: 1, CLOUD: 2}
    assert read_backlog(path) == {HOME: 1, CLOUD: 2}
