"""Faults strike and are mended in the order of the schedule, also when the run ends early."""

import threading

import pytest

from local.chaos.faults import Fault, InjectionError, Injector, at_once
from local.chaos.schedule import Strike


def noted(name: str, log: list[str], has_begun: threading.Event | None = None) -> Fault:
    def start() -> None:
        log.append(f"{name} began")
        if has_begun:
            has_begun.set()

    return Fault(start, lambda: log.append(f"{name} ended"))


def fail() -> None:
    raise OSError("no such thing")


def test_every_step_is_done_in_its_turn() -> None:
    log: list[str] = []
    strikes = [Strike(0.0, 0.04, "a", 0), Strike(0.02, 0.06, "b", 1)]
    faults = {("a", 0): noted("a", log), ("b", 1): noted("b", log)}
    with Injector(strikes, ["one", "two"], faults) as injector:
        injector.join()
    assert log == ["a began", "b began", "a ended", "b ended"]
    assert [(each.kind, each.home) for each in injector.struck] == [("a", "one"), ("b", "two")]
    assert all(each.began < each.ended for each in injector.struck)


def test_an_early_end_mends_what_is_broken_and_breaks_nothing_more() -> None:
    log: list[str] = []
    broken = Strike(0.0, 600.0, "a", 0)
    has_begun = threading.Event()
    fault = noted("a", log, has_begun)
    with Injector([broken, Strike(500.0, 600.0, "b", 0)], ["one"], {("a", 0): fault}):
        assert has_begun.wait(10)
    assert log == ["a began", "a ended"]


def test_a_fault_that_cannot_be_made_fails_the_run_by_name() -> None:
    injector = Injector([Strike(0.0, 0.0, "stuck", 0)], ["one"], {("stuck", 0): Fault(fail, lambda: None)})
    with pytest.raises(InjectionError, match="stuck at one: no such thing"), injector:
        injector.join()


def test_what_found_nothing_to_strike_has_not_struck() -> None:
    fault = at_once(lambda: 0)
    with Injector([Strike(0.0, 0.01, "kill", 0)], ["one"], {("kill", 0): fault}) as injector:
        injector.join()
    assert not injector.struck
