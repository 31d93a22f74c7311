"""Power cuts under the spool and the client's state: a few hundred here, more in `make crash-test`."""

import json
from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise, product
from pathlib import Path
from random import Random
from shutil import rmtree

import pytest

from edge.spool.files import log_of, note_of
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane_client.notices import Notice, StateHealed, StateLost
from eventplane_client.ports import Verdict
from eventplane_client.sqlite_duplicates import SqliteFilter
from lab.benchmarks.power.cuts import cut_everywhere, in_memory, leftovers, record_run
from lab.benchmarks.power.disk import KEPT, Call, Print, Sync, TracedDisk, Write, record
from lab.benchmarks.power.workload import NAME, key, recovered, state
from tests.examples import examples, sampled

COMMITS = 60
CUTS = 400
KILLS = 12


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that is synced at no cost."""
    with in_memory() as directory:
        yield directory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Call]:
    return record_run(tmp_path_factory.mktemp("power") / "device", 20240501, COMMITS)


@pytest.mark.source("C-W3", "F-W2", "P5")
def test_no_cut_loses_revives_or_breaks_anything(run: Sequence[Call]) -> None:
    assert sum(isinstance(each, Write) for each in run) > 10 * COMMITS
    findings = cut_everywhere(run, examples(CUTS), 1)
    assert findings.first == []
    assert findings.cuts == examples(CUTS)


def test_a_disk_that_never_syncs_is_detected(run: Sequence[Call]) -> None:
    careless = [each for each in run if not isinstance(each, Sync)]
    findings = cut_everywhere(careless, 50, 1)
    assert findings.lost + findings.failed > 10


@pytest.mark.source("F-W2")
def test_a_recovery_can_be_cut_off_anywhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("recovery") / "device"
    calls = record(directory, "recover", str(directory / NAME))
    damaged, end = (place for place, each in enumerate(calls) if isinstance(each, Print))
    expected = json.loads(calls[end].line)
    assert 10 < len(expected) < 20
    opened = 0
    for place, _, path in leftovers(calls, examples(CUTS), 1):
        if damaged < place <= end:
            assert recovered(path) == expected
            opened += 1
    assert opened > examples(CUTS) / 8


def left(disk: TracedDisk, directory: Path, random: Random, kept: str) -> Path:
    """Return the spool in the new `directory` as a power cut leaves it; `kept` "all" is as a kill does."""
    directory.mkdir()
    for name, content in disk.cut(random, kept).items():
        (directory / name).write_bytes(content)
    return directory / NAME


@pytest.mark.source("F-W2")
def test_the_first_start_can_be_cut_off_anywhere(run: Sequence[Call], scratch: Path) -> None:
    first = next(place for place, each in enumerate(run) if isinstance(each, Print))
    assert first > 20
    random, disk, tried = Random(1), TracedDisk(), sampled(range(first))
    for place, call in enumerate(run[:first]):
        disk.apply(call)
        for kept in KEPT if place in tried else ():
            path = left(disk, scratch / f"{place}-{kept}", random, kept)
            with Spool(path, SYSTEM) as spool:
                assert (spool.origin.kind, spool.next_sequence) == ("created", 1)
            rmtree(path.parent)


def gone(path: Path) -> None:
    path.unlink(missing_ok=True)


def garbled(path: Path) -> None:
    path.write_bytes(b"\xa5" * (path.stat().st_size if path.exists() else 600))


@pytest.mark.source("F-W1", "C-W3")
def test_lost_note_and_log_are_found_out(run: Sequence[Call], scratch: Path) -> None:
    random, disk, saved = Random(1), TracedDisk(), None
    damages = cycle(product((gone, garbled), repeat=2))
    tried = set(sampled(range(600)))
    for place, call in enumerate(run[:600]):
        disk.apply(call)
        if isinstance(call, Print):
            saved = json.loads(call.line).get("state", saved)
        if saved is None or place not in tried:
            continue
        path = left(disk, scratch / f"{place}", random, random.choice(("all", "nothing")))
        for damage, file in zip(next(damages), (note_of(path), log_of(path)), strict=True):
            damage(file)
        with Spool(path, SYSTEM) as spool:
            assert (spool.origin.kind, spool.origin.lost) == ("recovered", None)
        rmtree(path.parent)
    assert saved


@pytest.mark.source("C-W3", "P5")
def test_what_a_start_after_a_kill_has_read_survives_a_power_cut(run: Sequence[Call], scratch: Path) -> None:
    """A process is killed when its commit is written but not synced; the next one finds it, and uses it."""
    random = Random(1)
    unsynced = [
        place
        for place, (one, other) in enumerate(pairwise(run), 1)
        if isinstance(one, Write) and isinstance(other, Sync) and one.file == other.file
    ]
    for place in random.sample(unsynced, examples(KILLS)):
        disk = TracedDisk()
        for call in run[:place]:
            disk.apply(call)
        (directory,) = {Path(name).parent for name in disk.files()}
        rmtree(directory)
        path = left(disk, directory, random, "all")
        *calls, said = record(directory, "restart", str(path), files=disk.files())
        assert isinstance(said, Print)
        for call in calls:
            disk.apply(call)
        for kept in KEPT:
            with Spool(left(disk, scratch / f"{place}-{kept}", random, kept), SYSTEM) as spool:
                assert state(spool) == json.loads(said.line)["state"]


STEPS = 40
CLIENT_CUTS = 300


@pytest.fixture(scope="module")
def client_run(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Call]:
    directory = tmp_path_factory.mktemp("power") / "device"
    return record(directory, "claim", str(directory / NAME), "7", str(STEPS))


def findings(calls: Sequence[Call], cuts: int) -> list[str]:
    wrong = []
    for place, kept, path in leftovers(calls, cuts, 1):
        told = [json.loads(each.line) for each in calls[:place] if isinstance(each, Print)]
        notices: list[Notice] = []
        filter = SqliteFilter(path, on_notice=notices.append)
        claimed = [each["claimed"] for each in told]
        done = {number for each in told for number in each["done"]}
        verdicts = dict(zip(claimed, filter.claim([key(each) for each in claimed]), strict=True))
        filter.close()
        allowed = {True: (Verdict.DONE,), False: (Verdict.DOUBT, Verdict.DONE)}
        wrong += [
            f"call {place}, {kept} kept: {number} is {verdict}"
            for number, verdict in verdicts.items()
            if verdict not in allowed[number in done]
        ]
        # Only of the first commit, which is made in one file after the other, a copy may be missing.
        wrong += [str(each) for each in notices if told and isinstance(each, StateLost | StateHealed)]
    return wrong


@pytest.mark.source("F6", "F-W2")
def test_no_cut_forgets_what_was_handed_out_or_calls_for_healing(
    client_run: Sequence[Call],
) -> None:
    assert sum(isinstance(each, Print) for each in client_run) == STEPS
    assert findings(client_run, CLIENT_CUTS) == []


def test_a_disk_that_never_syncs_loses_claims(client_run: Sequence[Call]) -> None:
    careless = [each for each in client_run if not isinstance(each, Sync)]
    assert len(findings(careless, 50)) > 10
