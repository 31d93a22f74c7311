"""Random damage at rest: a few hundred here, two thousand in `make crash-test`."""

import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.errors import SpoolCorruptError
from edge.spool import store
from edge.spool.files import CommitNote
from eventplane.device_reports import STARTED
from eventplane.envelope import Envelope
from lab.benchmarks.power.cuts import DiskSnapshot, read_files, snapshots
from lab.benchmarks.power.damage import DAMAGES, damage_at_random, kind_of, serve_damaged
from lab.benchmarks.power.workload import NAME
from tests.examples import examples
from tests.scratch import SCRATCH
from tests.unit.edge.fakes import READING, Device, event

pytestmark = pytest.mark.source("F-W1", "C-W3")

LOG = f"{NAME}-wal"
SPOOLS = 4


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> list[DiskSnapshot]:
    directory = tmp_path_factory.mktemp("spools")
    return [each for n in range(SPOOLS) for each in snapshots(directory / str(n), n)]


@pytest.fixture
def directory() -> Iterator[Callable[[], Path]]:
    """Return a new directory at each call, where a sync costs nothing."""
    numbers = count()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        yield lambda: Path(folder) / str(next(numbers))


def test_what_is_not_damaged_is_as_it_was(taken: list[DiskSnapshot], directory: Callable[[], Path]) -> None:
    for each in taken:
        files = {name: bytearray(content) for name, content in each.files.items()}
        outcome = serve_damaged(each, files, directory(), Random(1))
        assert (outcome.fault, outcome.lost, outcome.recovered) == (None, 0, False)


def test_nothing_is_lost_silently_and_nothing_is_invented() -> None:
    number = examples(300)
    findings = damage_at_random(range(number))
    assert findings.faults == []
    assert findings.sum("lossless") + findings.sum("reported") == number
    unknown = {kind for kind, name in findings.counts if name == "without a number"}
    counted = {kind for kind in unknown if findings.counts[kind, "without a number"]}
    # Only a damaged note of the last commit leaves the number of the lost ones open.
    assert counted <= {"side files", "two damages"}


def test_pairs_of_damages_that_lost_events_silently_are_found_out() -> None:
    """The note was lost, and the log before the first commit was in the database."""
    for seed in (31695, 31927, 33871):
        findings = damage_at_random([seed])
        assert findings.faults == []
        assert findings.sum("without a number") == 1


@given(
    st.integers(0, 1 << 16),
    st.sampled_from((NAME, LOG)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=600)), max_size=3),
    st.floats(0, 1),
)
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_loses_events_silently(
    taken: list[DiskSnapshot],
    directory: Callable[[], Path],
    which: int,
    name: str,
    writes: list[tuple[float, bytes]],
    kept: float,
) -> None:
    snapshot = taken[which % len(taken)]
    files = {each: bytearray(content) for each, content in snapshot.files.items()}
    content = files.get(name) or files[NAME]
    for place, data in writes:
        start = int(place * len(content))
        end = min(len(content), start + len(data))
        content[start:end] = data[: end - start]
    del content[int(kept * len(content)) :]
    outcome = serve_damaged(snapshot, files, directory(), Random(1))
    assert outcome.fault is None
    assert outcome.reported is not None
    assert outcome.lost <= outcome.reported


@pytest.mark.parametrize("kind", sorted(DAMAGES.keys() - {"older blocks", "two damages"}))
def test_the_forwarder_goes_on(taken: list[DiskSnapshot], directory: Callable[[], Path], kind: str) -> None:
    stored = device_of(directory())
    stored.connect()
    sent = [event(f"e{n}", READING, pad="x" * 700) for n in range(60)]
    for start in range(0, len(sent), 6):
        stored.send(*sent[start : start + 6], after=1.0)
    assert sum(stored.spool.backlog().values()) >= len(sent)
    files, epoch = read_files(stored.path), stored.spool.epoch
    stored.crash()
    for n in range(examples(20)):
        damaged = {name: bytearray(content) for name, content in files.items()}
        DAMAGES[kind](damaged, taken[0], Random(n))
        path = directory()
        path.mkdir()
        for name, content in damaged.items():
            (path / name).write_bytes(content)
        device = device_of(path)
        delivered = drained(device)
        missing = {each.id for each in sent} - delivered.keys()
        assert all(delivered[each.id].data() == each.data() for each in sent if each.id in delivered)
        reports = [each.data()["lost"] for each in delivered.values() if each.type == STARTED]
        assert None in reports or len(missing) <= sum(reports)
        assert not missing or device.spool.epoch != epoch
        device.crash()


def device_of(directory: Path) -> Device:
    directory.mkdir(exist_ok=True)
    return Device(directory / NAME, settled=False)


def drained(device: Device) -> dict[str, Envelope]:
    """Connect, acknowledge all that comes, and return it."""
    device.connect()
    found: dict[str, Envelope] = {}
    answered = 0
    for _ in range(300):
        if device.cloud.last.published[answered:]:
            mid, _, payload = device.cloud.last.published[answered]
            answered += 1
            found |= {each.id: each for each in device.unpacked(payload)}
            device.turn(device.puback(mid), after=0.1)
        elif device.spool.backlog().get("device.outbox"):
            device.turn(after=1.0)
        else:
            return found
    raise AssertionError(f"{device.spool.backlog()} is left")


def test_rows_whose_checksums_are_not_compared_are_found_out() -> None:
    class EqualToAll(int):
        """Equal to each checksum."""

        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    seeds = [seed for seed in range(examples(400)) if kind_of(seed) == "bit flips"]
    with (
        patch("edge.spool.deliveries.checksum", lambda *_: EqualToAll(0)),
        patch("edge.spool.deliveries.zlib.crc32", lambda *_: EqualToAll(0)),
    ):
        findings = damage_at_random(seeds)
    assert findings.sum("invented")


def test_a_log_that_nobody_compares_with_the_note_is_found_out() -> None:
    def unchecked(*_: object) -> None:
        pass

    seeds = [seed for seed in range(200) if kind_of(seed) == "truncation"]
    with (
        patch.object(store, "_check_commits", unchecked),
        patch("edge.spool.log.check_log_header", unchecked),
        patch("edge.spool.log.check_log_end", unchecked),
    ):
        findings = damage_at_random(seeds)
    assert findings.sum("silent") + findings.sum("invented") > 3


def test_a_recovery_that_reports_no_losses_is_found_out() -> None:
    def nothing(_self: object, _note: CommitNote) -> tuple[int, list[tuple[int, int]]]:
        return 0, []

    with patch("edge.spool.salvage.Salvage._lost", nothing):
        findings = damage_at_random(range(examples(200)))
    assert findings.sum("silent") > examples(200) / 20


def test_a_spool_that_does_not_recover_is_found_out() -> None:
    def refuse(path: Path, damage: str, _clock: object) -> None:
        raise SpoolCorruptError(path, damage)

    with patch("edge.spool.recovery.recover", refuse):
        findings = damage_at_random(range(50))
    assert findings.sum("failed") > 10
