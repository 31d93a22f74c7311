"""Faults strike the home that is sending, once each, and are repaired."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from local.demo import faults as module
from local.demo.faults import Faults


def recording_home(name: str, story: list[str], error: Exception | None = None) -> Any:
    """A home that only records what is done to it; `error` is raised when its forwarder starts."""

    def record(what: str) -> Callable[[], None]:
        return lambda: story.append(f"{name} {what}")

    def start_forwarder() -> None:
        if error:
            raise error
        record("start_forwarder")()

    return SimpleNamespace(
        forwarder=SimpleNamespace(kill=record("kill_forwarder"), start=start_forwarder),
        broker=SimpleNamespace(
            child=SimpleNamespace(kill=record("kill_broker"), start=record("start_broker"))
        ),
        link=SimpleNamespace(cut=record("cut_network"), heal=record("heal_network")),
    )


@pytest.fixture(autouse=True)
def _short_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tuple(
        module._Planned(each.kind, each.at, each.strike, each.repair, min(each.outage_seconds, 0.01))
        for each in module._PLAN
    )
    monkeypatch.setattr(module, "_PLAN", plan)


def strike_all(names: list[str], sender: Callable[[int], str]) -> tuple[list[str], Faults]:
    story: list[str] = []
    homes = {name: recording_home(name, story) for name in names}
    with Faults(homes, 100) as faults:
        for events in range(1, 101):
            faults.passed(events, sender(events))
    return story, faults


def test_each_fault_strikes_another_home_and_is_repaired() -> None:
    story, faults = strike_all(["a", "b", "c"], lambda events: "abc"[events % 3])
    steps = {
        "network cut": ("cut_network", "heal_network"),
        "forwarder killed (-9)": ("kill_forwarder", "start_forwarder"),
        "Mosquitto killed (-9)": ("kill_broker", "start_broker"),
    }
    injected = faults.injected()
    assert [fault.kind for fault in injected] == list(steps)
    assert {fault.home for fault in injected} == {"a", "b", "c"}
    assert len(story) == 6
    for fault in injected:
        strike, repair = steps[fault.kind]
        assert story.index(f"{fault.home} {strike}") < story.index(f"{fault.home} {repair}")


def test_a_single_home_takes_them_all() -> None:
    _, faults = strike_all(["only"], lambda _: "only")
    assert [(fault.home, fault.after_events) for fault in faults.injected()] == [
        ("only", 25),
        ("only", 50),
        ("only", 75),
    ]


def test_what_goes_wrong_in_a_repair_is_raised() -> None:
    broken = recording_home("a", [], OSError("it does not start"))
    with Faults({"a": broken}, 4) as faults:
        for events in range(1, 5):
            faults.passed(events, "a")
    with pytest.raises(OSError, match="does not start"):
        faults.injected()
