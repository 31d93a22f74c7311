"""The circuit breaker of a peer that does not answer."""

from __future__ import annotations

import pytest

from eventplane.conversation.open_requests import Circuit, CircuitBreaker


@pytest.mark.source("C7")
def test_it_opens_after_ten_unanswered_requests_in_a_row() -> None:
    breaker = CircuitBreaker()
    for _ in range(9):
        assert breaker.admits()
        breaker.timed_out(is_probe=False)
    assert breaker.state is Circuit.CLOSED
    breaker.answered(is_probe=False)
    for _ in range(10):
        assert breaker.admits()
        breaker.timed_out(is_probe=False)
    assert breaker.state is Circuit.OPEN
    assert not breaker.admits()


@pytest.mark.source("C7")
def test_once_heard_it_lets_one_probe_pass_which_decides() -> None:
    breaker = CircuitBreaker()
    for _ in range(10):
        breaker.timed_out(is_probe=False)
    breaker.heard()
    assert breaker.state is Circuit.HALF_OPEN
    assert [breaker.admits(), breaker.admits()] == [True, False]
    breaker.timed_out(is_probe=True)
    assert breaker.state is Circuit.OPEN
    breaker.heard()
    assert breaker.admits()
    breaker.answered(is_probe=True)
    assert breaker.state is Circuit.CLOSED
