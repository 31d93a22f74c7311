import errno
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest

from edge import durable, reports
from edge.errors import SpoolCorruptError, SpoolError, SpoolFullError, SpoolUnavailableError
from edge.spool import BEFORE_EVERYTHING, Delivery, Discard, tables
from edge.spool.recovery import read_backlog
from edge.spool.store import Spool
from edge.spool.tables import MOST_RANGES
from edge.system import SYSTEM, Uptime, system_uptime
from eventplane.device_reports import KEY_BYTES, SHA256_EVENT, event_digest
from eventplane.reasons import Outcome
from tests.golden_digests import DIGESTS
from tests.unit.edge.builders import CLOUD, HOME, arrival, cloud, device_state, fill, key, waiting

KEPT_KEYS = 1_024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "spool.db"


@pytest.mark.source("F6")
def test_a_new_file_is_a_new_epoch(tmp_path: Path) -> None:
    with Spool(tmp_path / "a", SYSTEM) as first, Spool(tmp_path / "b", SYSTEM) as second:
        assert first.epoch != second.epoch
        assert len(first.epoch) == 16


@pytest.mark.source("P5")
def test_a_commit_is_all_or_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with Spool(path, SYSTEM) as spool:
        spool.commit([arrival(1)], uptime_ms=0)
        with monkeypatch.context() as broken:
            broken.setattr("edge.spool.database.DeviceRow.write", fail)
            with pytest.raises(SpoolError, match="disk is full"):
                spool.commit([arrival(2, to=("new.inbox",))], [Delivery(CLOUD, 1, 1)], uptime_ms=0)
        assert spool.backlog() == {CLOUD: 1}
        assert spool.next_sequence == 2
        assert spool.newest("new.inbox", 1) == BEFORE_EVERYTHING
        spool.commit([arrival(2, to=("new.inbox",))], uptime_ms=0)
        assert spool.backlog() == {CLOUD: 1, "new.inbox": 1}


@pytest.mark.parametrize("stored", [0, 1, 15, 16, 40])
def test_a_commit_that_failed_leaves_no_key(path: Path, monkeypatch: pytest.MonkeyPatch, stored: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "disk I/O error")

    with Spool(path, SYSTEM) as spool:
        fill(spool, stored, a_commit=7)
        for size in (5, 20):
            with monkeypatch.context() as broken:
                broken.setattr("edge.spool.database.DeviceRow.write", fail)
                with pytest.raises(SpoolUnavailableError):
                    fill(spool, size)
        fill(spool, 9, a_commit=4)
        expected = [key(n) for n in range(1, stored + 10)]
        assert spool.recent_keys(100) == expected
    with Spool(path, SYSTEM) as spool:
        assert spool.recent_keys(100) == expected


def test_a_file_has_one_writer(path: Path) -> None:
    with Spool(path, SYSTEM), pytest.raises(SpoolError, match=f"{path}.*another forwarder"):
        Spool(path, SYSTEM)
    Spool(path, SYSTEM).close()


@pytest.mark.source("P5")
def test_it_syncs_every_commit(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        assert spool._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert spool._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_backlog_can_be_read_afterwards_and_not_before(path: Path) -> None:
    with pytest.raises(SpoolError, match="cannot be read"):
        read_backlog(path)
    with Spool(path, SYSTEM) as spool:
        spool.commit([arrival(1, 0, (HOME, CLOUD)), arrival(2)], uptime_ms=0)
    assert read_backlog(path) == {HOME: 1, CLOUD: 2}


@pytest.mark.source("N5")
def test_counters_are_known_after_a_restart(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        spool.commit([arrival(1, 0, (HOME, CLOUD)), arrival(2), arrival(3)], uptime_ms=50)
        spool.commit([arrival(4)], [cloud(2), cloud(2), cloud(99)], uptime_ms=60)
    with Spool(path, SYSTEM) as spool:
        assert [spool.pending(CLOUD, rank) for rank in range(3)] == [1, 2, 0]
        assert [spool.newest(CLOUD, rank) for rank in range(3)] == [1, 4, BEFORE_EVERYTHING]
        assert spool.pending(HOME, 0) == 1
        assert spool.oldest_stored_ms(CLOUD, 1) == 50
        assert spool.oldest_stored_ms(CLOUD, 2) is None
        assert spool.destinations() == [HOME, CLOUD]
        spool.commit([], [cloud(3)], uptime_ms=70)
        assert spool.oldest_stored_ms(CLOUD, 1) == 60


def test_the_digest_of_a_manifest_is_a_sum_without_its_carry(path: Path) -> None:
    total = sum(int(digest, 16) for digest in DIGESTS.values())
    assert total >> 8 * KEY_BYTES
    with Spool(path, SYSTEM) as spool:
        events = [arrival(number)._replace(json=text) for number, text in enumerate(DIGESTS, 1)]
        spool.commit(events, uptime_ms=0)
    with Spool(path, SYSTEM) as spool:
        (stated,) = spool.manifests()
        assert (stated.count, stated.digest) == (len(DIGESTS), total % (1 << 8 * KEY_BYTES))


def test_old_digests_are_not_stated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier, Spool(path, SYSTEM) as spool:
        earlier.setattr("edge.spool.deliveries._DIGEST_BYTES", KEY_BYTES)
        spool.commit([arrival(1), arrival(2, to=(HOME,))], uptime_ms=0)
        spool.commit([], uptime_ms=0, close_manifests=True)
        spool.commit([arrival(3)], uptime_ms=0)
    for start in (1, 2):
        with Spool(path, SYSTEM) as spool:
            assert spool.origin.kind == "resumed"
            spool.commit([arrival(3 + start)], uptime_ms=0)
            before = spool.manifests()
            spool.commit([], uptime_ms=0, close_manifests=start == 2)
    with Spool(path, SYSTEM) as spool:
        spool.commit([arrival(6), arrival(7, to=(HOME,))], uptime_ms=0)
        now = spool.manifests()
    assert [(each.count, each.digest) for each in before] == [(3, None)]
    assert [each.digest for each in now] == 2 * [int.from_bytes(event_digest(b"{}"), "big")]
    heading = reports.Heading("thing", "e", 1, "2026-03-01T12:00:00Z")
    rules = [reports.manifest(heading, each, {}, 1).data().get("key_digest") for each in (before, now)]
    assert rules == [None, SHA256_EVENT]


def test_a_range_of_discards_that_is_no_number_is_damage(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        spool.commit([arrival(n) for n in (1, 2, 3)], uptime_ms=0)
        spool.commit([], [], [Discard(cloud(1), Outcome.EXPIRED, "ttl")], uptime_ms=0)
        spool._db.execute("UPDATE discard SET last = 'no number'")
        with pytest.raises(SpoolCorruptError):
            spool.commit([], [], [Discard(cloud(2), Outcome.EXPIRED, "ttl")], uptime_ms=0)
    with Spool(path, SYSTEM) as spool:
        assert waiting(spool) == ["{}"] * 2


def test_a_very_long_list_of_discards_comes_in_parts(path: Path) -> None:
    numbers = range(1, 2 * MOST_RANGES + 201, 2)
    with Spool(path, SYSTEM) as spool:
        spool.commit([arrival(n) for n in range(1, numbers[-1] + 1)], uptime_ms=0)
        spool.commit([], [], [Discard(cloud(n), Outcome.DROPPED, "old") for n in numbers], uptime_ms=0)
        (first,) = spool.loss_reports()
        spool.commit([], uptime_ms=0, close_loss_reports=True)
        (second,) = spool.loss_reports()
        assert [*first.ranges, *second.ranges] == [(n, n) for n in numbers]
        assert (first.count, second.count) == (MOST_RANGES, 100)
        spool.commit([], uptime_ms=0, close_loss_reports=True)
        assert spool.loss_reports() == []


def test_the_keys_of_the_last_events_outlive_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RECENT_EVENTS", KEPT_KEYS)
    monkeypatch.setattr(tables, "_SLOTS", KEPT_KEYS // tables._BLOCK_KEYS + 1)
    with Spool(path, SYSTEM) as spool:
        for first in range(1, KEPT_KEYS + 200, 100):
            spool.commit([arrival(n) for n in range(first, first + 100)], uptime_ms=0)
            spool.commit([], [cloud(n) for n in range(first, first + 100)], uptime_ms=0)
        spool.commit([arrival(spool.next_sequence)], uptime_ms=0)
        last = spool.next_sequence - 1
    with Spool(path, SYSTEM) as spool:
        assert spool.recent_keys(3) == [key(n) for n in (last - 2, last - 1, last)]
        assert spool.recent_keys(10**6) == [key(n) for n in range(last - KEPT_KEYS + 1, last + 1)]


def test_the_spools_origin_is_created_until_something_is_stored(path: Path) -> None:
    kinds = []
    for _ in range(3):
        with Spool(path, SYSTEM) as spool:
            kinds.append(spool.origin.kind)
            if len(kinds) == 2:
                fill(spool, 1)
    assert kinds == ["created", "created", "resumed"]


@pytest.mark.parametrize("without_room", ["", ".owner", ".commits"])
def test_a_spool_of_another_is_kept(path: Path, without_room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, full = durable.write, {without_room}

    def write_some(file: Path, content: bytes) -> None:
        if file.suffix in full:
            raise OSError(errno.ENOSPC, "no space left on device")
        write(file, content)

    with Spool(path, SYSTEM, thing="home-1") as spool:
        spool.commit([arrival(1)], uptime_ms=0)
        epoch = spool.epoch
    monkeypatch.setattr(durable, "write", write_some)
    for _ in range(5 if without_room else 0):
        with pytest.raises(SpoolFullError):
            Spool(path, SYSTEM, thing="home-2")
    full.clear()
    with Spool(path, SYSTEM, thing="home-2") as spool:
        assert spool.epoch != epoch
        assert (spool.next_sequence, waiting(spool), spool.recent_keys(9)) == (1, [], [])
        assert "of 'home-1'" in spool.origin.damage
        spool.commit([arrival(1)], uptime_ms=0)
    full.add(".owner")
    for own in ("home-2", None, "home-3"):
        with Spool(path, SYSTEM, thing=own) as spool:
            assert (spool.origin.kind, len(waiting(spool))) == ("resumed", 1)
        path.with_name("spool.db.owner").unlink(missing_ok=True)  # as an earlier version left it
    (aside,) = path.parent.glob("*.damaged-*Z")
    assert read_backlog(aside) == {CLOUD: 1}


@pytest.mark.parametrize(
    "damage", [b"", b"\0" * 9, b"\xff\0\xfe", b"\xef\xbb\xbfhome-1\n", b"\0\nx", b"home 1\n", b"x\r"]
)
def test_a_damaged_owner_costs_nothing(path: Path, damage: bytes) -> None:
    with Spool(path, SYSTEM, thing="x") as spool:
        spool.commit([arrival(1)], uptime_ms=0)
    path.with_name("spool.db.owner").write_bytes(damage)
    with Spool(path, SYSTEM, thing="x") as spool:
        assert (spool.origin.kind, len(waiting(spool))) == ("resumed", 1)
    assert path.with_name("spool.db.owner").read_bytes() in (b"x\n", damage)


def test_a_power_cut_while_a_spool_is_set_aside_leaves_its_log_beside_it(path: Path, tmp_path: Path) -> None:
    with Spool(path, SYSTEM, thing="home-1") as spool:
        spool.commit([arrival(1)], uptime_ms=0)
        cut = shutil.copytree(path.parent, tmp_path / "cut") / path.name
    Path(f"{cut}-wal").rename(f"{cut}.damaged-0001-20260101T000000Z-wal")
    Spool(cut, SYSTEM, thing="home-2").close()
    (aside,) = cut.parent.glob("*.damaged-*Z")
    assert read_backlog(aside) == {CLOUD: 1}


def test_the_uptime_clock_runs_during_a_boot_and_stops_without_power(path: Path) -> None:
    with Spool(path, SYSTEM._replace(uptime=lambda: Uptime("a", 100))) as spool:
        assert spool.clock() == 0
        spool.commit([arrival(1)], uptime_ms=40)
    with Spool(path, SYSTEM._replace(uptime=lambda: Uptime("a", 350))) as spool:
        assert spool.clock() == 290
        spool.commit([], uptime_ms=300)
    with Spool(path, SYSTEM._replace(uptime=lambda: Uptime("b", 999_999))) as spool:
        assert spool.clock() == 300
        spool.commit([], uptime_ms=1)  # never back
    for ms in (5, 1):  # of one boot: it never goes back, whatever was stored
        with Spool(path, SYSTEM._replace(uptime=lambda ms=ms: Uptime("c", ms))) as spool:
            assert spool.clock() == 300
            spool.commit([], uptime_ms=300)


def test_a_start_reads_the_same_whatever_waits(path: Path) -> None:
    reads = []
    for _ in range(2):
        with Spool(path, SYSTEM) as spool:
            fill(spool, 100 if not reads else 4_000, a_commit=100)
        before = _read_bytes()
        Spool(path, SYSTEM).close()
        reads.append(_read_bytes() - before)
    assert reads[1] < 1.5 * reads[0]  # forty times as much waits; a tree is a little higher


@pytest.mark.source("P17")
def test_what_goes_into_ordered_inboxes_is_counted_with_the_commit(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        for number in (1, 2):
            spool.commit([arrival(number)._replace(positions={"desk/normal/0123abcd": number})], uptime_ms=0)
        assert spool.counted == {"desk/normal/0123abcd": 2}
    with Spool(path, SYSTEM) as spool:
        assert spool.counted == {"desk/normal/0123abcd": 2}


class TestWithoutDisk:
    def test_it_refuses_events_and_states_and_nothing_else(self, path: Path) -> None:
        with Spool(path, SYSTEM, on_disk=False) as spool:
            assert not path.parent.exists()
            assert (spool.is_on_disk, spool.origin.kind, spool.space.pressure) == (False, "without_disk", 1.0)
            with pytest.raises(SpoolFullError):
                spool.commit([arrival(1)], uptime_ms=0)
            with pytest.raises(SpoolFullError):
                spool.commit([], uptime_ms=0, states=[device_state("a/b/c")])
            # What a spool on the disk has handed out ends elsewhere.
            spool.commit([], [cloud(7)], [Discard(cloud(8), Outcome.EXPIRED, "ttl")], uptime_ms=5)
            assert (spool.read(CLOUD, 1, BEFORE_EVERYTHING, 10), spool.backlog()) == ([], {})
            assert (spool.manifests(), spool.loss_reports(), spool.recent_keys(10)) == ([], [], [])
            assert (spool.device_state("state", "a/b/c"), spool.next_sequence) == (None, 1)
            assert not spool.tidy()
            assert spool.space.pressure == 1.0

    def test_the_one_on_the_disk_goes_on_where_it_was(self, path: Path) -> None:
        with Spool(path, SYSTEM) as spool:
            fill(spool, 3)
            epoch = spool.epoch
        with Spool(path, SYSTEM, on_disk=False) as other:
            assert other.epoch != epoch
        with Spool(path, SYSTEM) as spool:
            assert (spool.epoch, spool.origin.kind, len(waiting(spool))) == (epoch, "resumed", 3)


def test_numbers_have_to_go_on(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        for wrong in ([arrival(2)], [arrival(1), arrival(3)], [arrival(1), arrival(1)]):
            with pytest.raises(ValueError, match="numbered on from 1"):
                spool.commit(wrong, uptime_ms=0)
        assert spool.backlog() == {}


def test_the_files_are_for_their_owner_alone(path: Path) -> None:
    with Spool(path, SYSTEM) as spool:
        fill(spool, 3)
        modes = {
            each.name: stat.S_IMODE(each.stat().st_mode) for each in (path.parent, *path.parent.iterdir())
        }
    assert modes.pop("state") == 0o700
    assert set(modes.values()) == {0o600}, modes


class TestHoldings:
    def test_states_stay_when_room_is_made(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("edge.spool.states.MOST_KEYS", 3)
        with Spool(path, SYSTEM) as spool:
            for n in range(5):
                spool.commit([], uptime_ms=0, states=[device_state(f"s/t/{n}")])
            gone = [device_state("s/t/0", 2, "", deleted=True), device_state("c/d/e", 1, "", kind="command")]
            spool.commit([], uptime_ms=0, states=gone)
            for n in range(2):
                spool.commit([], uptime_ms=0, states=[device_state(f"x/y/{n}", 2, "", deleted=True)])
            assert spool.device_state("state", "s/t/0") is None
            assert spool.device_state("command", "c/d/e") is not None
            assert spool.device_state("state", "x/y/1") is not None
            assert spool.state_count() == 4

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("text", bytes(100)),
            *(
                (each, "no number")
                for each in ("text", "checksum", "reset", "version", "deleted", "sequence")
            ),
            *((each, b"") for each in ("sender", "source")),
        ],
    )
    def test_a_wrong_row_is_damaged(self, path: Path, column: str, value: bytes | str) -> None:
        with Spool(path, SYSTEM) as spool:
            states = [device_state(each, json="x" * 100) for each in ("a/b/c", "a/b/d")]
            spool.commit([], uptime_ms=0, states=states)
            spool._db.execute(f"UPDATE device_state SET {column} = ? WHERE key = 'a/b/c'", (value,))  # noqa: S608
            with pytest.raises(SpoolCorruptError):
                spool.device_state("state", "a/b/c")
        with Spool(path, SYSTEM) as spool:
            assert spool.device_state("state", "a/b/c") is None
            assert spool.device_state("state", "a/b/d") is not None


def _read_bytes() -> int:
    line = Path("/proc/self/io").read_text().splitlines()[0]
    return int(line.removeprefix("rchar: "))


def test_the_systems_uptime_has_one_boot_and_goes_forward() -> None:
    first, second = system_uptime(), system_uptime()
    assert first.boot == second.boot
    assert len(first.boot) == 36
    assert 0 < first.ms <= second.ms
