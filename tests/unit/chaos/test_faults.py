"""Faults that overlap leave everything whole, and strike and heal in the order of the schedule."""

from __future__ import annotations

import pytest

from local.chaos.faults import (
    Fault,
    InjectionError,
    Injector,
    at_once,
)
from local.chaos.schedule import PlannedFault


def fail() -> None:
    raise OSError("no such thing")


def test_a_fault_that_cannot_be_made_fails_the_run_by_name() -> None:
    injector = Injector(
        [PlannedFault(0.0, 0.0, "stuck", 0)], ["one"], {("stuck", 0): Fault(fail, lambda: None)}
    )
    with pytest.raises(InjectionError, match="stuck at one: no such thing"), injector:
        injector.join()


def test_what_found_nothing_to_strike_has_not_struck() -> None:
    fault = at_once(lambda: 0)
    with Injector([PlannedFault(0.0, 0.01, "kill", 0)], ["one"], {("kill", 0): fault}) as injector:
        injector.join()
    assert not injector.struck
