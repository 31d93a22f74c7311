"""Power cuts under the client library's state: nothing that was claimed is forgotten, nothing is lost."""

import json
from collections.abc import Sequence

import pytest

from eventplane_client.notices import Notice, StateHealed, StateLost
from eventplane_client.ports import Verdict
from eventplane_client.sqlite_filter import SqliteFilter
from lab.benchmarks.power.cuts import leftovers
from lab.benchmarks.power.disk import Call, Print, Sync, record
from lab.benchmarks.power.programs import key
from lab.benchmarks.power.workload import NAME

STEPS = 40
CUTS = 300


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Call]:
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
def test_no_cut_forgets_what_was_handed_out_or_calls_for_healing(run: Sequence[Call]) -> None:
    assert sum(isinstance(each, Print) for each in run) == STEPS
    assert findings(run, CUTS) == []


def test_a_disk_that_never_syncs_is_detected(run: Sequence[Call]) -> None:
    careless = [each for each in run if not isinstance(each, Sync)]
    assert len(findings(careless, 50)) > 10
