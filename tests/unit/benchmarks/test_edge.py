"""The forwarder's benchmark: what it sends, what its sink counts, and how it judges late alarms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.edge import attacks, memory_limit, wire
from benchmarks.edge.events import EARLIEST_NS, event
from benchmarks.edge.memory_limit import MemoryLimit
from benchmarks.edge.sink import Sink


@pytest.mark.parametrize("size", [349, 512, 92_160])
def test_an_event_has_the_size_that_was_asked_for(size: int) -> None:
    text = event(7, size)
    assert len(text) == size
    assert json.loads(text)["id"] == "7"


def test_a_message_without_a_packet_id_is_qos_0() -> None:
    first, body = next(wire.Packets().feed(wire.publish("t", b"payload")))
    assert (wire.kind(first), first & 6) == (wire.PUBLISH, 0)
    assert body == b"\0\x01tpayload"


def test_a_sink_for_alarms_counts_nothing_else_as_expected() -> None:
    sink = Sink(expect=1, quota=False, sent_after=EARLIEST_NS)
    sink.count(event(5, 349))
    assert not sink.is_done()
    sink.count(event(EARLIEST_NS + 1, 349))
    assert sink.is_done()
    assert sink.report()["events"] == 2


def test_an_alarm_that_did_not_arrive_counts_as_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "ALARMS", 100)
    second = 10**9
    # 90 arrive after half a second, one of them twice; the rest not at all.
    arrivals = [(number + second // 2, [number]) for number in range(EARLIEST_NS, EARLIEST_NS + 90)]
    arrivals.append((EARLIEST_NS + 9 * second, [EARLIEST_NS]))
    figure = attacks.alarm_figure("flood", {"arrivals": arrivals}, "in a test")
    assert figure.value == attacks.PATIENCE_S
    assert not figure.met
    assert "median 0.5 s; 10 had not arrived" in figure.note


def test_a_machine_without_memory_cgroups_measures_without_a_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory_limit, "V1", tmp_path / "none")
    monkeypatch.setattr(memory_limit, "V2", tmp_path / "none")
    with MemoryLimit("test", 64) as limit:
        assert not limit.command
        assert limit.kills == 0
        assert "without a memory limit" in limit.note


def test_a_memory_limit_of_cgroup_v2_counts_the_kernels_kills(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory_limit, "V1", tmp_path / "none")
    monkeypatch.setattr(memory_limit, "V2", tmp_path)
    with MemoryLimit("test", 64) as limit:
        (folder,) = tmp_path.iterdir()
        assert (folder / "memory.max").read_text() == str(64 * 1024**2)
        (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
        assert limit.command[-1] == str(folder / "cgroup.procs")
        assert limit.note == "in a memory cgroup of 64 MiB, killed 2 times"
