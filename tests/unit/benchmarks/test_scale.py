"""The model behind docs/explanation/scale.md, where its answer is known."""

from __future__ import annotations

import json

import pytest

from benchmarks.scale.model import Router, figures, published, simulate
from benchmarks.scale.tables import regimes
from tools.figures import KEPT

ROUTER = Router(servers=2, batch=10, invocation_s=0.02, event_s=0.001)


def test_an_idle_router_takes_single_messages_at_once_and_a_busy_one_full_batches() -> None:
    idle = simulate(ROUTER, 0.01, messages=1_000)
    assert idle.fill == 1
    assert idle.p99_s == pytest.approx(0.021)
    busy = simulate(ROUTER, 1e6, messages=1_000)
    assert busy.fill > 9.7  # all but the first
    assert busy.busy == pytest.approx(2, rel=0.01)
    # 100 batches of 30 ms, two at a time.
    assert busy.p99_s == pytest.approx(1.5, rel=0.05)


def test_each_regime_is_compared_with_eventbridge_as_it_was_measured() -> None:
    results = json.loads(KEPT.read_text())["bench/cost"]["figures"]
    head, rows = regimes(published())
    column = head.index("over EventBridge")
    alarms = next(row for row in rows if row[0].startswith("alarms alone"))
    measured = next(each for each in results if each["name"] == "alarm_total")
    assert alarms[column] == f"{measured['peer_value']:.2f}"


@pytest.mark.source("B8")
def test_the_published_figures_of_fleets_follow_from_those_that_were_measured() -> None:
    results = json.loads(KEPT.read_text())["bench/scale"]["figures"]
    assert results == [each.document() for each in figures(published())]
