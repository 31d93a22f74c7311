"""The runner of benchmarks: what it writes, and when it fails."""

import json
from pathlib import Path

import pytest

from lab.benchmarks.results import Figure, none
from lab.benchmarks.runner import Benchmark

BENCHMARK = Benchmark(
    "spools",
    {
        "cuts": lambda options: [Figure("cuts", options.cuts, "cuts")],
        "losses": lambda options: [none("lost", options.cuts - 5, "events")],
    },
    options={"--cuts": {"type": int, "default": 5}},
)


def test_a_missed_required_aim_fails(tmp_path: Path) -> None:
    assert BENCHMARK.main(["--cuts", "6"], tmp_path) == 1
    document = json.loads((tmp_path / "spools.json").read_text())
    assert document["figures"][1]["met"] is False
    assert document["command"].endswith(" --cuts 6")


@pytest.mark.parametrize(
    ("unit", "value", "met", "ratio"), [("events/s", 4.0, True, 2.0), ("ms", 4.0, False, 0.5)]
)
def test_of_rates_more_is_better_and_of_times_less(unit: str, value: float, met: bool, ratio: float) -> None:
    figure = Figure("x", value, unit, aim=3.0, peer="other", peer_value=2.0)
    assert (figure.met, figure.ratio) == (met, ratio)
