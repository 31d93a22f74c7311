"""The first histories break no promise: the whole plane under faults, in each run of the tests."""

from __future__ import annotations

import pytest

from local.histories.search import story_of, told
from tests.examples import sampled
from tests.plane import shipped_contract


@pytest.mark.parametrize("seed", sampled(range(10)))
def test_a_history_breaks_no_promise(seed: int) -> None:
    assert told(story_of(seed), shipped_contract()).findings == []
