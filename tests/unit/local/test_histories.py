"""The first histories break no promise: the whole plane under faults, in each run of the tests."""

from __future__ import annotations

import pytest

from local.histories.search import story_of, told
from tests.plane import shipped_contract

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", range(10))
def test_a_history_breaks_no_promise(seed: int) -> None:
    assert told(story_of(seed), shipped_contract()).findings == []
