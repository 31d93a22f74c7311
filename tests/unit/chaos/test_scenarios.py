"""A part of a scenario is as long as was said."""

from collections import Counter

import pytest

from contract import load_contract
from local.chaos.scenarios import PAPER, PAPER_BEST_EFFORT, SCENARIOS


@pytest.mark.source("P16")
def test_the_papers_test_is_repeated_with_its_numbers() -> None:
    for each in (PAPER, PAPER_BEST_EFFORT):
        assert (each.load.events, each.load.per_s) == (100_000, 1_000)
        strikes = each.plan(0, each.kinds, 1, 100)
        assert Counter(strike.kind for strike in strikes) == {"forwarder-kill": 10, "router-kill": 10}
        assert [strike.at_s for strike in strikes if strike.kind == "router-kill"] == [*range(10, 101, 10)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_contract_of_a_scenario_compiles(name: str) -> None:
    assert SCENARIOS[name].contract(load_contract()).version
