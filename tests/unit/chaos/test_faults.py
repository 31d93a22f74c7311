"""Faults that overlap leave everything whole, and strike and heal in the order of the schedule."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract, load_compiled
from local.chaos.faults import (
    NARROW_LINE,
    Fault,
    InjectionError,
    Injector,
    at_once,
    changed,
    contract_change,
    freeze,
    impaired,
    kill,
    malformed,
    reconnect_storm,
)
from local.chaos.load import MOTION, WINDOW, Load, Sender, TimedLog
from local.chaos.schedule import PlannedFault
from local.home import Home
from local.mosquitto import Broker
from local.network import UNIMPAIRED, Impairment
from local.ports import free_port
from local.process import Child, Restarter, Supervisor
from tests.eventually import eventually
from tests.plane import shipped_contract

CONTRACT = shipped_contract()
OTHER = changed(CONTRACT, "batching_delay_ms", 100)
FORWARDER = """
import pathlib, signal, sys
if not pathlib.Path(sys.argv[1]).read_bytes().endswith(b"}"):
    sys.exit(78)
signal.signal(signal.SIGHUP, lambda *_: print("told to reload", flush=True))
print("it stands", flush=True)
while True:
    signal.pause()
"""
"""Like ours it refuses a broken contract at its start, and takes SIGHUP only then."""


class FakeLine:
    def __init__(self) -> None:
        self.is_cut = False
        self.impairment = UNIMPAIRED

    def cut(self) -> None:
        self.is_cut = True

    def heal(self) -> None:
        self.is_cut = False

    def drop(self) -> None:
        """All that a storm does."""

    def impair(self, impairment: Impairment) -> None:
        self.impairment = impairment


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with Supervisor(tmp_path_factory.mktemp("run")) as supervisor:
        yield supervisor


@pytest.fixture
def home(supervisor: Supervisor) -> Iterator[Home]:
    folder = supervisor.run_dir
    contract = folder / "contract.json"
    contract.write_bytes(CONTRACT.canonical)
    command = ["env", "--ignore-signal=HUP", sys.executable, "-ISc", FORWARDER, str(contract)]
    forwarder = supervisor.start("forwarder-home-1", command, ready="it stands")
    broker = Broker(0, supervisor.start("mosquitto-home-1", ["sleep", "600"]))
    line: Any = FakeLine()
    yield Home("home-1", broker, forwarder, line, folder / "spool.db", contract, None, None)
    forwarder.kill()
    broker.child.kill()


def test_a_forwarder_that_comes_back_to_a_broken_contract_runs_in_the_end(home: Home) -> None:
    killed, change = kill(home.forwarder), change_contract(home, [CONTRACT])
    with Restarter(home.children, pause_s=0.0) as restarter:
        killed.start()
        change.start()
        heal(killed)
        assert eventually(lambda: bool(home.forwarder.ends))
        heal(change)
        assert eventually(lambda: serves(home))
        assert {(end.name, end.status) for end in restarter.ends} == {("forwarder-home-1", os.EX_CONFIG)}


def test_a_reload_before_the_forwarder_listens_does_not_end_it(home: Home) -> None:
    killed, change = kill(home.forwarder), change_contract(home, [CONTRACT])
    for _ in range(5):
        killed.start()
        heal(killed)
        heal(change)
    assert eventually(lambda: serves(home))
    assert not home.forwarder.ends


def test_after_any_two_faults_all_is_whole(home: Home) -> None:
    faults = {
        "forwarder-kill": kill(home.forwarder),
        "forwarder-stop": freeze(home.forwarder),
        "mosquitto-kill": kill(home.broker.child),
        "mosquitto-stop": freeze(home.broker.child),
        "line-cut": Fault(home.link.cut, home.link.heal),
        "narrow-line": impaired(home.link, NARROW_LINE),
        "reconnect-storm": reconnect_storm(home.link),
        "contract-change": change_contract(home, [CONTRACT, OTHER]),
    }
    with Restarter(home.children, pause_s=0.0):
        for one, two in permutations(faults, 2):
            for first, second in ((one, two), (two, one)):
                faults[one].start()
                faults[two].start()
                heal(faults[first])
                heal(faults[second])
                assert eventually(lambda: all(goes_on(child) for child in home.children)), (one, two, first)
                assert not home.link.is_cut, (one, two, first)
                assert home.link.impairment == UNIMPAIRED, (one, two, first)  # type: ignore[attr-defined]
                load_compiled(home.contract.read_bytes(), f"{one}, {two}, {first}")
        assert eventually(lambda: serves(home))


def heal(fault: Fault) -> None:
    assert fault.heal
    fault.heal()


def change_contract(home: Home, versions: list[Contract]) -> Fault:
    return contract_change(home, versions, lambda _: None)


def serves(home: Home) -> bool:
    """Whether the forwarder is past where it refuses its contract: it takes a reload."""
    told = home.forwarder.log.read_text().count("told to reload")
    heal(change_contract(home, [CONTRACT]))
    return eventually(lambda: home.forwarder.log.read_text().count("told to reload") > told, 0.2)


def goes_on(child: Child) -> bool:
    """Whether it runs and does not stand still."""
    return child.running and Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"


def test_malformed_messages_wait_for_no_room() -> None:
    """The thread that sends them has to heal what keeps the window full."""
    sent = TimedLog(CONTRACT)
    with Sender("home-1", free_port(), CONTRACT, sent, Load(0, 1.0)) as sender:
        for number in range(WINDOW):
            sender.send_number(MOTION, number)
        strike = threading.Thread(target=malformed(sender).start, daemon=True)
        strike.start()
        strike.join(10)
        assert not strike.is_alive()
        assert sent.malformed_sent > 0


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
    strikes = [PlannedFault(0.0, 0.04, "a", 0), PlannedFault(0.02, 0.06, "b", 1)]
    faults = {("a", 0): noted("a", log), ("b", 1): noted("b", log)}
    with Injector(strikes, ["one", "two"], faults) as injector:
        injector.join()
    assert log == ["a began", "b began", "a ended", "b ended"]
    assert [(each.kind, each.home) for each in injector.struck] == [("a", "one"), ("b", "two")]
    assert all(each.began < each.ended for each in injector.struck)


def test_an_early_end_heals_what_is_broken_and_breaks_nothing_more() -> None:
    log: list[str] = []
    broken = PlannedFault(0.0, 600.0, "a", 0)
    has_begun = threading.Event()
    fault = noted("a", log, has_begun)
    with Injector([broken, PlannedFault(500.0, 600.0, "b", 0)], ["one"], {("a", 0): fault}):
        assert has_begun.wait(10)
    assert log == ["a began", "a ended"]


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
