"""Power cuts under the spool: a few hundred here, ten thousand in `make crash-test`."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from benchmarks.power.cuts import NAME, cut_everywhere, leftovers, record_run
from benchmarks.power.damaged import recovered
from benchmarks.power.recording import Call, Say, Sync, Write, record

COMMITS = 60
CUTS = 400


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Call]:
    return record_run(tmp_path_factory.mktemp("power") / "device", 20240501, COMMITS)


@pytest.mark.source("C-W3", "F-W2", "P5")
def test_no_cut_loses_revives_or_breaks_anything(run: Sequence[Call]) -> None:
    assert sum(isinstance(each, Write) for each in run) > 10 * COMMITS
    findings = cut_everywhere(run, CUTS, 1)
    assert findings.first == []
    assert findings.cuts == CUTS


def test_a_disk_that_never_syncs_is_found_out(run: Sequence[Call]) -> None:
    careless = [each for each in run if not isinstance(each, Sync)]
    findings = cut_everywhere(careless, 50, 1)
    assert findings.lost + findings.failed > 10


@pytest.mark.source("F-W2")
def test_a_recovery_can_be_cut_off_anywhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("recovery") / "device"
    calls = record(directory, "benchmarks.power.damaged", str(directory / NAME))
    damaged, end = (place for place, each in enumerate(calls) if isinstance(each, Say))
    expected = json.loads(calls[end].line)
    assert 10 < len(expected) < 20
    opened = 0
    for place, _, path in leftovers(calls, CUTS, 1):
        if damaged < place <= end:
            assert recovered(path) == expected
            opened += 1
    assert opened > 50
