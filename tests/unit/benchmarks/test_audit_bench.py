"""What the audit's benchmark counts: accesses beneath a folder, the processor's time of Spark's tasks."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.audit.accesses import watched
from benchmarks.audit.bench import task_seconds


def test_only_what_is_listed_and_opened_counts_and_each_once(tmp_path: Path) -> None:
    for name in ("day=1/a", "day=1/b", "day=2/c"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with watched(tmp_path) as accesses:
        for _ in range(2):
            list((tmp_path / "day=1").iterdir())
            (tmp_path / "day=1" / "b").read_bytes()
        (tmp_path / "day=2" / "c").stat()
    assert accesses.listed == {Path("day=1")}
    assert accesses.opened == {Path("day=1/b")}
    assert accesses.objects_listed() == 2


def test_tasks_are_summed_by_what_their_stage_did(tmp_path: Path) -> None:
    events = [
        {"Event": "SparkListenerStageSubmitted", "Stage Info": {"Stage ID": 1, "Stage Name": "collect at a"}},
        {"Event": "SparkListenerStageSubmitted", "Stage Info": {"Stage ID": 2, "Stage Name": "save at b"}},
        *(
            {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Metrics": {"Executor CPU Time": 10**9}}
            for stage in (1, 2, 1)
        ),
        {"Event": "SparkListenerTaskEnd", "Stage ID": 1},
    ]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, events)))
    assert task_seconds(tmp_path) == {"collect": 2.0, "save": 1.0}
