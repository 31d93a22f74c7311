"""The model behind docs/explanation/scale.md, where its answer is known."""

import pytest

from lab.benchmarks.scale.model import figures, published
from lab.tools.figures import kept


@pytest.mark.source("B8")
def test_fleet_figures_follow_from_measured_ones() -> None:
    results = kept()["bench/scale"]["figures"]
    assert results == [each.document() for each in figures(published())]
