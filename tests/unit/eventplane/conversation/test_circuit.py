"""When nobody waits any more for a peer that never answers."""

from __future__ import annotations

import pytest

from eventplane.conversation.open_requests import Circuit, CircuitBreaker


@pytest.mark.source("C7")
def test_it_opens_after_ten_unanswered_requests_in_a_row() -> None:
    breaker = CircuitBreaker()
    for _ in range(9):
        assert breaker.admits()
        breaker.left_unanswered(is_probe=False)
    assert (breaker.state, breaker.unanswered) == (Circuit.CLOSED, 9)
    breaker.answered(is_probe=False)
    for unanswered in range(1, 11):
        assert breaker.admits()
        breaker.left_unanswered(is_probe=False)
        assert breaker.unanswered == unanswered
    assert breaker.state is Circuit.OPEN
    assert not breaker.admits()


@pytest.mark.source("C7")
def test_once_heard_it_lets_one_probe_pass_which_decides() -> None:
    breaker = CircuitBreaker()
    for _ in range(10):
        breaker.left_unanswered(is_probe=False)
    breaker.heard()
    assert breaker.state is Circuit.HALF_OPEN
    assert [breaker.admits(), breaker.admits()] == [True, False]
    breaker.left_unanswered(is_probe=True)
    assert breaker.state is Circuit.OPEN
    breaker.heard()
    assert breaker.admits()
    breaker.answered(is_probe=True)
    assert (breaker.state, breaker.unanswered) == (Circuit.CLOSED, 0)
