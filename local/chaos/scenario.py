"""A scenario: how many homes, what they send, what breaks when, in which cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from eventplane.contract import Contract
from local.chaos.cloud import Cloud
from local.chaos.load import Load
from local.chaos.machine import Machine, ThisMachine
from local.chaos.schedule import Strike
from local.process import Supervisor

Plan = Callable[[int, Sequence[str], int, float], Sequence[Strike]]
"""The strikes for a seed, the kinds that can be made, so many homes and so many seconds."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`loses`: losses are what is measured. `contract` may change that of the homes and the cloud."""

    name: str
    homes: int
    load: Load
    plan: Plan
    cloud: Callable[[Supervisor, Contract], Cloud]
    seconds: float
    """How long the faults go on."""
    kinds: Sequence[str] = ()
    """Of faults; empty for all that can be made."""
    ends_with_load: bool = False
    """The last sending ends the faults too, or (False) they go on for all of `seconds`."""
    loses: bool = False
    tells: bool = False
    """Carers send messages to the homes meanwhile."""
    contract: Callable[[Contract], Contract] = lambda contract: contract
    disk_mib: int = 64
    machine: Machine = field(default_factory=ThisMachine)

    def within(self, seconds: float | None, events: int | None) -> Scenario:
        """As much of it as fits `seconds`, with `events` of each home if they are said; None leaves it.

        With both, the events are sent evenly over the seconds.
        """
        load, faults_s = self.load, self.seconds
        if seconds and self.ends_with_load:  # the sending is what lasts, and slows down with the cloud
            load = replace(load, events=round(seconds * load.per_s))
        elif seconds:
            load, faults_s = replace(load, events=round(load.events * seconds / faults_s)), seconds
        if events:
            per_s = events / seconds if seconds and not self.ends_with_load else load.per_s
            load = replace(load, events=events, per_s=per_s)
        return replace(self, load=load, seconds=faults_s)
