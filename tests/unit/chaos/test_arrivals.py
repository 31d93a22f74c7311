"""Arrivals are recorded before they are acknowledged, and read back by the run."""

from pathlib import Path

import pytest

from eventplane.device_reports import MANIFEST
from eventplane.envelope import write_event
from local.chaos.arrivals import Arrivals, ArrivalWriter


def event(id: str, type: str = "org.eventplane.activity.motion.v1") -> str:
    return write_event({"id": id, "source": "/homes/a/s", "type": type}, {}).json


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "care.jsonl"


@pytest.mark.source("P-W9")
def test_each_event_counts_once_and_its_repetition_as_one(path: Path) -> None:
    writer, arrivals = ArrivalWriter(path), Arrivals(path)
    arrivals.refresh()
    assert not arrivals.first
    writer.write([event("1"), event("2")])
    arrivals.refresh()
    writer.write([event("1"), event("m", MANIFEST)])
    arrivals.refresh()
    assert list(arrivals.first) == [("/homes/a/s", "1"), ("/homes/a/s", "2")]
    assert arrivals.duplicates == 1
    assert arrivals.again == {("/homes/a/s", "1"): 1}
    assert list(arrivals.arrived.reports) == [("/homes/a/s", "m")]


def test_a_torn_line_counts_for_nothing_and_is_cut_off_by_the_next_writer(path: Path) -> None:
    ArrivalWriter(path).write([event("1"), event("2")])
    path.write_bytes(path.read_bytes()[:-5])
    arrivals = Arrivals(path)
    arrivals.refresh()
    assert len(arrivals.first) == 1
    ArrivalWriter(path).write([event("3")])
    arrivals.refresh()
    assert [id for _, id in arrivals.first] == ["1", "3"]
    assert not arrivals.duplicates
