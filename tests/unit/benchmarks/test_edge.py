"""The forwarder's benchmark: what it sends, what its sink counts, and how it judges late alarms."""

from __future__ import annotations

import pytest

from benchmarks.edge import attacks
from benchmarks.edge.sink import EARLIEST_NS, Sink, event


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
