"""A part of a scenario is as long as was said."""

from collections import Counter

import pytest

from contract import load_contract
from local.chaos.scenarios import SCENARIOS, paper, paper_best_effort, singly


def test_half_of_the_seconds_is_half_of_the_load() -> None:
    whole = singly()
    half = whole.within(whole.seconds / 2, None)
    assert (half.seconds, half.load.events) == (whole.seconds / 2, whole.load.events / 2)
    assert whole.within(None, None) == whole
    assert whole.within(None, 7).load.events == 7
    few = whole.within(20, 100).load
    assert (few.events, few.per_s) == (100, 5)


def test_where_the_sending_ends_the_faults_it_is_the_sending_that_lasts() -> None:
    whole = paper()
    part = whole.within(100, None)
    assert part.load.events == 100 * whole.load.per_s == whole.load.events
    assert part.seconds == whole.seconds


@pytest.mark.source("P16")
def test_the_papers_test_is_repeated_with_its_numbers() -> None:
    for each in (paper(), paper_best_effort()):
        assert (each.load.events, each.load.per_s) == (100_000, 1_000)
        strikes = each.plan(0, each.kinds, 1, 100)
        assert Counter(strike.kind for strike in strikes) == {"forwarder-kill": 10, "router-kill": 10}
        assert [strike.at_s for strike in strikes if strike.kind == "router-kill"] == [*range(10, 101, 10)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_contract_of_a_scenario_compiles(name: str) -> None:
    assert SCENARIOS[name]().contract(load_contract()).version
