"""The scenarios by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from eventplane.contract import Contract
from local.chaos.cloud_faults import KINDS
from local.chaos.cloud_faults import plan as cloud_faults_plan
from local.chaos.emulated import Emulated
from local.chaos.faulty import Faulty
from local.chaos.kinds import changed, with_order
from local.chaos.load import Load
from local.chaos.machine import ArmUserland
from local.chaos.scenario import Plan, Scenario
from local.chaos.schedule import Mode, Pace, Strike, every, schedule
from local.chaos.stand_in import StandIn
from local.chaos.verdict import ALARMS, FAMILY, READINGS

_HOUR_S: Final = 3_600.0
_KILLS: Final = ("forwarder-kill", "router-kill")
_CALM: Final = Pace(1.0, 3.0, 15.0)
_BRISK: Final = Pace(0.5, 1.0, 0.5)
_STEADY: Final = Pace(1.0, 4.0, 3.0)


def _seeded(mode: Mode, pace: Pace) -> Plan:
    def plan(seed: int, kinds: Sequence[str], homes: int, seconds: float) -> Sequence[Strike]:
        return schedule(seed, kinds, homes, seconds, mode, pace)

    return plan


def short() -> Scenario:
    """Part of `make test`: every kind once or so, in pairs, in half a minute with its audit."""
    return Scenario("short", 2, Load(1_500, 75, 25), _seeded(Mode.PAIRS, _BRISK), StandIn, seconds=20)


def singly() -> Scenario:
    """Every kind by itself, with time to recover: the recovery figures."""
    return Scenario("singly", 2, Load(14_000, 100, 50), _seeded(Mode.SINGLY, _STEADY), StandIn, seconds=140)


def pairs() -> Scenario:
    """Every pair of kinds."""
    return Scenario("pairs", 3, Load(30_000, 50, 50), _seeded(Mode.PAIRS, _STEADY), StandIn, seconds=600)


def together() -> Scenario:
    """All at once, again and again."""
    return Scenario("together", 2, Load(6_000, 100, 50), _seeded(Mode.TOGETHER, _STEADY), StandIn, seconds=60)


def paper() -> Scenario:
    """The source paper's test: an event a millisecond, forwarder and router killed every 10 s."""
    return Scenario(
        "paper",
        1,
        Load(100_000, 1_000, 0),
        _every_ten_seconds,
        Emulated,
        seconds=_HOUR_S,
        kinds=_KILLS,
        ends_with_load=True,
        contract=_ordered,
        disk_mib=512,
    )


def paper_best_effort() -> Scenario:
    """The same events and kills over a channel that promises nothing, from services that wait for nothing."""
    at_least_once = paper()
    return replace(
        at_least_once,
        name="paper-best-effort",
        load=replace(at_least_once.load, is_careless=True),
        loses=True,
        contract=_best_effort,
    )


def _every_ten_seconds(_seed: int, kinds: Sequence[str], _homes: int, seconds: float) -> Sequence[Strike]:
    return every(seconds, kinds, 10.0, 0.5)


def _best_effort(contract: Contract) -> Contract:
    return changed(contract, "delivery_guarantee", "best_effort")


def _ordered(contract: Contract) -> Contract:
    return with_order(contract, (ALARMS, READINGS, FAMILY))


def million() -> Scenario:
    """A million events under pairs of faults."""
    return Scenario(
        "million",
        2,
        Load(500_000, 1_500, 500),
        _seeded(Mode.PAIRS, _STEADY),
        StandIn,
        seconds=330,
        disk_mib=512,
    )


def cloud() -> Scenario:
    """Singly, in the deployed plane: functions and consumers die as well."""
    return Scenario("cloud", 2, Load(7_000, 50, 50), _seeded(Mode.SINGLY, _STEADY), Emulated, seconds=140)


def cloud_faults() -> Scenario:
    """The services of AWS fail beneath the deployed plane, each in every way, in pairs, and for minutes."""
    return Scenario(
        "cloud-faults",
        2,
        Load(25_000, 14, 7),
        cloud_faults_plan,
        Faulty,
        seconds=1_785,
        kinds=KINDS,
        tells=True,
        disk_mib=256,
    )


def device() -> Scenario:
    """The forwarder as the device has it, on its processor, emulated."""
    return Scenario(
        "device",
        1,
        Load(1_200, 10, 50),
        _seeded(Mode.SINGLY, _STEADY),
        StandIn,
        seconds=120,
        machine=ArmUserland(),
    )


def soak() -> Scenario:
    """Single faults for as long as is said (--seconds): what grows?"""
    return Scenario("soak", 1, Load(60_000, 100, 100), _seeded(Mode.SINGLY, _CALM), StandIn, seconds=600)


SCENARIOS: Final[dict[str, Callable[[], Scenario]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        short,
        singly,
        pairs,
        together,
        cloud,
        paper,
        paper_best_effort,
        million,
        cloud_faults,
        device,
        soak,
    )
}
