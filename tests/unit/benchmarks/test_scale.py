"""The model behind docs/explanation/scale.md, where its answer is known."""

from __future__ import annotations

import json

import pytest

from benchmarks.scale.model import figures, published
from benchmarks.scale.tables import regimes
from tools.figures import KEPT


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
