"""A full disk, a full spool, and the space that is given back."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.errors import SpoolError, SpoolFullError, SpoolUnavailableError
from edge.spool import BEFORE_EVERYTHING
from edge.spool.files import KEPT_FREE_BYTES, RESERVE_BYTES
from edge.spool.store import Spool
from edge.system import SYSTEM
from tests.unit.edge.builders import CLOUD, arrival, beside, cloud, fill, noise, waiting
from tests.unit.edge.disks import (
    DISK_BYTES,
    KIB,
    SmallDisk,
    breaking_disk_at,
    fill_the_rest,
    limited_files,
    read_only_disk_at,
)

LARGE = noise(20 * KIB)


def fill_up(spool: Spool) -> int:
    """Store large events until there is no room. The number of the last one."""
    for _ in range(2 * DISK_BYTES // len(LARGE)):
        try:
            spool.commit([arrival(spool.next_sequence, json=LARGE)], uptime_ms=0)
        except SpoolFullError:
            return spool.next_sequence - 1
    pytest.fail("the disk was never full")


def drain(spool: Spool, last: int) -> None:
    for sequence in range(1, last + 1):
        spool.commit([], [cloud(sequence)], uptime_ms=0)


def check_it_survives(path: Path, make_room: Callable[[], None]) -> None:
    with Spool(path, SYSTEM) as spool:
        last = fill_up(spool)
        assert last > 10
        assert spool.space.pressure >= 1.0
        assert waiting(spool) == [LARGE] * last
        drain(spool, last - 1)  # ending deliveries works, all of them, one by one
        assert spool.pending(CLOUD, 1) == 1
        make_room()
        while spool.tidy():
            pass
        assert spool.space.pressure < 1.0
        spool.commit([arrival(last + 1, json="new")], uptime_ms=0)
        assert waiting(spool) == [LARGE, "new"]
        assert beside(path, ".reserve") == [path.with_name(path.name + ".reserve")]
    with Spool(path, SYSTEM) as spool:
        assert waiting(spool) == [LARGE, "new"]
        assert spool.origin.kind == "resumed"


def test_a_disk_that_is_really_full(small_disk: SmallDisk) -> None:
    check_it_survives(small_disk.path, small_disk.enlarge)


def test_a_damaged_spool_on_a_full_disk_starts_and_keeps_what_fits(small_disk: SmallDisk) -> None:
    path, events = small_disk.path, small_disk.events
    with Spool(path, SYSTEM) as spool:
        fill(spool, events, a_commit=500)
    fill_the_rest(path.with_name("other"))
    path.with_name("spool.db.damaged").touch()
    with Spool(path, SYSTEM) as spool:
        assert spool.origin.kind == "recovered"
        assert 1_000 < spool.origin.salvaged == spool.pending(CLOUD, 1) <= events
        assert (spool.origin.salvaged < events) == ("ended early" in spool.origin.damage)
        after = BEFORE_EVERYTHING
        while rows := spool.read(CLOUD, 1, after, 500):
            spool.commit([], [each.delivery for each in rows], uptime_ms=0)
            after = rows[-1].delivery.sequence
        assert spool.pending(CLOUD, 1) == 0
    assert len(beside(path, ".damaged-")) == 2  # with its log


def test_a_disk_that_others_have_filled(small_disk: SmallDisk) -> None:
    path, other = small_disk.path, small_disk.path.with_name("other")

    with Spool(path, SYSTEM) as spool:
        fill(spool, 100)
        fill_the_rest(other)
        last = fill_up(spool)
        drain(spool, last)
        assert spool.backlog() == {CLOUD: 0}
        other.unlink()
        small_disk.enlarge()
        while spool.tidy():
            pass
        assert spool.space.pressure < 1.0
        fill(spool, 100)
    fill_the_rest(other)
    with Spool(path, SYSTEM) as spool:  # also a start on a full disk
        assert spool.pending(CLOUD, 1) == 100


def test_the_spool_survives_a_limit_of_the_file_size(tmp_path: Path) -> None:
    with limited_files(512 * KIB) as lift:
        check_it_survives(tmp_path / "spool.db", lift)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_read_only_disk_is_no_damage(tmp_path: Path, is_new: bool) -> None:
    path = tmp_path / "spool.db"

    def prepare() -> None:
        if not is_new:
            with Spool(path, SYSTEM) as spool:
                fill(spool, 10)

    with read_only_disk_at(tmp_path, prepare):
        files = beside(path, "")
        for _ in range(2):
            with pytest.raises(SpoolUnavailableError, match="see that the disk works"):
                Spool(path, SYSTEM)
        assert beside(path, "") == files


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_a_disk_that_breaks_is_no_damage_and_its_spool_goes_on_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "disk" / "spool.db"
    path.parent.mkdir()
    with breaking_disk_at(path.parent, tmp_path / "image") as (shut_down, bring_back):
        with Spool(path, SYSTEM) as spool:
            fill(spool, 10)
            shut_down()
            with pytest.raises(SpoolUnavailableError):
                fill(spool, 10)
        with pytest.raises(SpoolUnavailableError):
            Spool(path, SYSTEM)
        bring_back()
        with Spool(path, SYSTEM) as spool:
            assert (spool.origin.kind, len(waiting(spool))) == ("resumed", 10)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EROFS, SpoolUnavailableError),
        (errno.EIO, SpoolUnavailableError),
        (errno.ENOSPC, SpoolFullError),
        (errno.EDQUOT, SpoolFullError),
    ],
)
def test_a_failing_disk_and_a_full_disk_raise_different_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[SpoolError]
) -> None:
    """SQLite has one error for all of them."""

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with Spool(tmp_path / "spool.db", SYSTEM) as spool:
        with limited_files(8 * KIB), monkeypatch.context() as broken:
            broken.setattr("edge.spool.database.os.pwrite", fail)
            with pytest.raises(SpoolError) as raised:
                fill(spool, 100, a_commit=100)
        assert type(raised.value) is expected
        assert waiting(spool) == []
    with Spool(tmp_path / "spool.db", SYSTEM) as spool:
        fill(spool, 100)


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.EROFS, SpoolUnavailableError), (errno.ENOSPC, SpoolFullError)]
)
def test_a_disk_that_does_not_take_the_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[SpoolError]
) -> None:
    """A start without it could not tell later what was lost; a commit goes on with an older one."""
    path = tmp_path / "spool.db"

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr("edge.durable.os.fsync", fail)
        with pytest.raises(expected):
            Spool(path, SYSTEM)
        assert not path.exists()
    with Spool(path, SYSTEM) as spool:
        fill(spool, 10)
        with monkeypatch.context() as broken:
            broken.setattr("edge.spool.files.os.pwrite", fail)
            fill(spool, 10)
    with monkeypatch.context() as broken:
        broken.setattr("edge.spool.files.os.pwrite", fail)
        with pytest.raises(expected):
            Spool(path, SYSTEM)
    with Spool(path, SYSTEM) as spool:
        assert (spool.origin.kind, len(waiting(spool))) == ("resumed", 20)


@pytest.mark.source("N4")
def test_the_capacity_limits_new_events_only(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    with Spool(path, SYSTEM, capacity_bytes=1024 * KIB) as spool:
        last = fill_up(spool)
        assert 0.9 < spool.space.used_bytes / spool.space.capacity_bytes <= 1.0
        assert path.stat().st_size <= 1024 * KIB
        drain(spool, last)
        spool.tidy()
        assert spool.space.pressure < 0.1
        fill(spool, 100)


def test_a_smaller_capacity_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    with Spool(path, SYSTEM) as spool:
        fill(spool, 100)
    with Spool(path, SYSTEM, capacity_bytes=10 * KIB) as spool:
        assert spool.space.pressure > 5
        assert len(waiting(spool)) == 100
        drain(spool, 100)
        assert waiting(spool) == []


def test_the_log_stays_small_and_space_is_given_back_in_bounded_steps(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    with Spool(path, SYSTEM) as spool:
        fill(spool, 20_000, a_commit=200)
        assert path.with_name("spool.db-wal").stat().st_size < 5 * KIB * KIB
        assert spool.space.used_bytes > 20_000 * 400
        for first in range(1, 20_001, 1000):
            spool.commit([], [cloud(n) for n in range(first, first + 1000)], uptime_ms=0)
        steps = 1
        while spool.tidy():
            steps += 1
        assert steps > 10
        assert spool.space.used_bytes < 1024 * KIB  # of it the ring of the recent keys
    assert path.stat().st_size < 2 * KEPT_FREE_BYTES
    assert sum(each.stat().st_size for each in beside(path, "")) < 2 * KEPT_FREE_BYTES + RESERVE_BYTES


def test_a_backlog_that_drains_moves_no_page(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    with Spool(path, SYSTEM) as spool:
        fill(spool, 10_000, a_commit=200)
        spool.space.measure()
        pages = spool.space.used_bytes
        assert not spool.tidy()
        for first in range(1, 8_001, 1000):
            spool.commit([], [cloud(n) for n in range(first, first + 1000)], uptime_ms=0)
            spool.tidy()
            assert spool.space.used_bytes + spool.space._free_bytes >= pages
        while spool.tidy():
            pass
        assert spool.space.used_bytes + spool.space._free_bytes < 0.6 * pages
        assert len(waiting(spool)) == 2_000


@pytest.mark.source("F-W4")
def test_it_counts_what_it_writes(tmp_path_factory: pytest.TempPathFactory) -> None:
    # On a disk: the kernel counts no bytes of files in memory.
    with Spool(tmp_path_factory.mktemp("disk") / "spool.db", SYSTEM) as spool:
        before = spool.written_bytes
        fill(spool, 1000)
        assert spool.written_bytes - before >= 1000 * 500
