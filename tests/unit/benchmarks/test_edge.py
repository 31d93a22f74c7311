"""The forwarder's benchmark: how it judges late alarms."""

from __future__ import annotations

import pytest

from benchmarks.edge import attacks
from benchmarks.edge.sink import EARLIEST_NS


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
