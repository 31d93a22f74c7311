"""Faults strike and are mended in the order of the schedule, also when the run ends early."""

import threading

import pytest

from local.chaos.faults import Fault, Moment
from local.chaos.injector import InjectionError, Injector
from local.chaos.schedule import Strike


class Noted(Fault):
    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log
        self.has_begun = threading.Event()

    def start(self) -> None:
        self._log.append(f"{self._name} began")
        self.has_begun.set()

    def heal(self) -> None:
        self._log.append(f"{self._name} ended")


class Stuck(Fault):
    def start(self) -> None:
        raise OSError("no such thing")


def test_every_step_is_done_in_its_turn() -> None:
    log: list[str] = []
    strikes = [Strike(0.0, 0.04, "a", 0), Strike(0.02, 0.06, "b", 1)]
    faults = {("a", 0): Noted("a", log), ("b", 1): Noted("b", log)}
    with Injector(strikes, ["one", "two"], faults) as injector:
        injector.join()
    assert log == ["a began", "b began", "a ended", "b ended"]
    assert [(each.kind, each.home) for each in injector.struck] == [("a", "one"), ("b", "two")]
    assert all(each.began < each.ended for each in injector.struck)


def test_an_early_end_mends_what_is_broken_and_breaks_nothing_more() -> None:
    log: list[str] = []
    broken = Strike(0.0, 600.0, "a", 0)
    fault = Noted("a", log)
    with Injector([broken, Strike(500.0, 600.0, "b", 0)], ["one"], {("a", 0): fault}):
        assert fault.has_begun.wait(10)
    assert log == ["a began", "a ended"]


def test_a_fault_that_cannot_be_made_fails_the_run_by_name() -> None:
    injector = Injector([Strike(0.0, 0.0, "stuck", 0)], ["one"], {("stuck", 0): Stuck()})
    with pytest.raises(InjectionError, match="stuck at one: no such thing"), injector:
        injector.join()


def test_what_found_nothing_to_strike_has_not_struck() -> None:
    fault = Moment(lambda: 0)
    with Injector([Strike(0.0, 0.01, "kill", 0)], ["one"], {("kill", 0): fault}) as injector:
        injector.join()
    assert not injector.struck
