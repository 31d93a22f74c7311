"""The scenarios: how many homes, what they send, what breaks when, in which cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from eventplane.contract import Contract
from lab.chaos.clouds import ChaosCloud, Emulated, Faulty, Redeployable, StandIn
from lab.chaos.faults import changed, with_order
from lab.chaos.load import ALARMS, FAMILY, READINGS, Load
from lab.chaos.schedule import KINDS, PlannedFault, Spread, Tempo, cloud_faults_plan, every, schedule
from lab.machine import ArmUserland, ThisMachine
from lab.process import Supervisor

Plan = Callable[[int, Sequence[str], int, float], Sequence[PlannedFault]]
"""Plan the strikes for a seed, kinds of faults, a number of homes and of seconds."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run: its faults go on for `seconds`, or end with the last sending if it `ends_with_load`.

    `kinds` are those of the faults, or empty for all that are possible. It `loses` if losses are what is
    measured. If it `tells`, carers send messages to the homes meanwhile. `contract` may change the contract.
    """

    name: str
    homes: int
    load: Load
    plan: Plan
    cloud: Callable[[Supervisor, Contract], ChaosCloud]
    seconds: float
    kinds: Sequence[str] = ()
    ends_with_load: bool = False
    loses: bool = False
    tells: bool = False
    contract: Callable[[Contract], Contract] = lambda contract: contract
    disk_mib: int = 64
    machine: ThisMachine = field(default_factory=ThisMachine)

    def within(self, seconds: float | None, events: int | None) -> Scenario:
        """Return a run that fits `seconds`, with `events` of each home; None leaves either as it is.

        With both, the events are spread evenly over the seconds.
        """
        load, faults_s = self.load, self.seconds
        if seconds and self.ends_with_load:  # the sending decides how long it lasts, at the cloud's pace
            load = replace(load, events=round(seconds * load.per_s))
        elif seconds:
            load, faults_s = replace(load, events=round(load.events * seconds / faults_s)), seconds
        if events:
            per_s = events / seconds if seconds and not self.ends_with_load else load.per_s
            load = replace(load, events=events, per_s=per_s)
        return replace(self, load=load, seconds=faults_s)


_STEADY: Final = Tempo(1.0, 4.0, 3.0)


_BRISK_PAIRS: Final = partial(schedule, mode=Spread.PAIRS, pace=Tempo(0.5, 1.0, 0.5))
_PAIRS: Final = partial(schedule, mode=Spread.PAIRS, pace=_STEADY)
_SINGLY: Final = partial(schedule, mode=Spread.SINGLY, pace=_STEADY)
_TOGETHER: Final = partial(schedule, mode=Spread.TOGETHER, pace=_STEADY)
_CALMLY: Final = partial(schedule, mode=Spread.SINGLY, pace=Tempo(1.0, 3.0, 15.0))


def _each(period_s: float) -> Plan:
    return lambda _seed, kinds, _homes, seconds: every(seconds, kinds, period_s, 0.5)


SHORT: Final = Scenario("short", 2, Load(1_500, 75, 25), _BRISK_PAIRS, StandIn, seconds=20)
"""Part of `make test`: every kind once or so, in pairs, in half a minute with its audit."""

SINGLY: Final = Scenario("singly", 2, Load(14_000, 100, 50), _SINGLY, StandIn, seconds=140)
"""Every kind by itself, with time to recover: the recovery figures."""

PAIRS: Final = Scenario("pairs", 3, Load(30_000, 50, 50), _PAIRS, StandIn, seconds=600)
"""Every pair of kinds."""

TOGETHER: Final = Scenario("together", 2, Load(6_000, 100, 50), _TOGETHER, StandIn, seconds=60)
"""All at once, again and again."""

PAPER: Final = Scenario(
    "paper",
    1,
    Load(100_000, 1_000, 0),
    _each(10.0),
    Emulated,
    seconds=3_600,
    kinds=("forwarder-kill", "router-kill"),
    ends_with_load=True,
    contract=lambda contract: with_order(contract, (ALARMS, READINGS, FAMILY)),
    disk_mib=512,
)
"""The source paper's test: an event a millisecond, forwarder and router killed every 10 s."""

PAPER_BEST_EFFORT: Final = replace(
    PAPER,
    name="paper-best-effort",
    load=replace(PAPER.load, best_effort=True),
    loses=True,
    contract=lambda contract: changed(contract, "delivery_guarantee", "best_effort"),
)
"""The same events and kills at best effort, over the channel and from the services."""

MILLION: Final = Scenario("million", 2, Load(500_000, 1_500, 500), _PAIRS, StandIn, seconds=330, disk_mib=512)
"""A million events under pairs of faults, about what two cores carry: alarms pass what waits."""

CLOUD: Final = Scenario("cloud", 2, Load(7_000, 50, 50), _SINGLY, Emulated, seconds=140)
"""Singly, in the deployed plane: functions and consumers are killed as well."""

DEPLOYMENT: Final = Scenario(
    "deployment",
    3,
    Load(5_400, 30, 25),
    _each(90.0),
    Redeployable,
    seconds=180,
    kinds=("deployment", "restart-storm"),
)
"""The plane is deployed again in the middle of traffic, and all homes come back at one moment."""

CLOUD_FAULTS: Final = Scenario(
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
"""The services of AWS fail beneath the deployed plane, each in every way, in pairs, and for minutes."""

DEVICE: Final = Scenario(
    "device", 1, Load(1_200, 10, 50), _SINGLY, StandIn, seconds=120, machine=ArmUserland()
)
"""The device's forwarder on its processor, emulated."""

SOAK: Final = Scenario("soak", 1, Load(60_000, 100, 100), _CALMLY, StandIn, seconds=600)
"""Single faults, for a long time with --seconds, to measure growth of memory and disk."""

SCENARIOS: Final = {
    each.name: each
    for each in (
        SHORT,
        SINGLY,
        PAIRS,
        TOGETHER,
        CLOUD,
        DEPLOYMENT,
        PAPER,
        PAPER_BEST_EFFORT,
        MILLION,
        CLOUD_FAULTS,
        DEVICE,
        SOAK,
    )
}
