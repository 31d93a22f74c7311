"""The scenario of the paper."""

from collections import Counter

import pytest

from local.chaos.scenarios import PAPER, PAPER_BEST_EFFORT


@pytest.mark.source("P16")
def test_the_papers_test_is_repeated_with_its_numbers() -> None:
    for each in (PAPER, PAPER_BEST_EFFORT):
        assert (each.load.events, each.load.per_s) == (100_000, 1_000)
        strikes = each.plan(0, each.kinds, 1, 100)
        assert Counter(strike.kind for strike in strikes) == {"forwarder-kill": 10, "router-kill": 10}
        assert [strike.at_s for strike in strikes if strike.kind == "router-kill"] == [*range(10, 101, 10)]
