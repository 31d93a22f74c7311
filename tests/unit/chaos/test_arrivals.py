"""Arrivals are recorded before they are acknowledged, and read back by the run."""

from pathlib import Path

import pytest

from eventplane.device_reports import MANIFEST
from eventplane.envelope import write_event
from lab.chaos.arrivals import Arrivals, ArrivalWriter


def event(id: str, type: str = "org.eventplane.activity.motion.v1") -> str:
    return write_event({"id": id, "source": "/homes/a/s", "type": type}, {}).json


@pytest.mark.source("P-W9")
def test_each_event_counts_once_and_a_torn_line_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "care.jsonl"
    arrivals = Arrivals(path)
    ArrivalWriter(path).write([event("1"), event("1"), event("m", MANIFEST), event("2")])
    path.write_bytes(path.read_bytes()[:-5])
    ArrivalWriter(path).write([event("3")])
    arrivals.refresh()
    assert list(arrivals.first) == [("/homes/a/s", "1"), ("/homes/a/s", "3")]
    assert (arrivals.duplicates, arrivals.again) == (1, {("/homes/a/s", "1"): 1})
    assert list(arrivals.arrived.reports) == [("/homes/a/s", "m")]
