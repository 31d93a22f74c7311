"""What a run needs to know of its cloud: `local.chaos.stand_in` and `local.chaos.emulated` are two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from eventplane.contract import Contract
from local.chaos.alarms import Watched
from local.chaos.arrivals import Arrivals
from local.chaos.faults import Fault
from local.process import Child
from local.things import Thing


class Cloud(Protocol):
    """A cloud with the plane in it."""

    @property
    def description(self) -> str:
        """What is real in it, in a few words."""

    @property
    def patience_s(self) -> float:
        """How long nothing may come of it before what is missing counts as lost."""

    @property
    def contract(self) -> Contract:
        """The contract that it began with."""

    @property
    def rule(self) -> str:
        """The ingest rule that devices publish into."""

    def thing(self, home: str, directory: Path) -> Thing:
        """Provision a device called `home`."""

    def faults(self) -> Mapping[str, Fault]:
        """What can break in it, by kind."""

    @property
    def children(self) -> Sequence[Child]:
        """Its processes that are started again when they end by themselves."""

    def put_contract(self, contract: Contract) -> None:
        """Put another contract in force."""

    def wait_for(self, homes: Sequence[str]) -> bool:
        """Return when it knows that `homes` are connected; False: when that does not change any more."""

    def tell(self, text: str) -> None:
        """Put an event into the outbox of the carers."""

    def arrivals(self, service: str) -> Arrivals:
        """What the cloud service receives."""

    def is_idle(self) -> bool:
        """Whether it is known that no event is on its way any more."""

    def settle(self) -> bool:
        """Return when everything that it accepted is handled, nothing new comes; False: or stands still."""

    def watched(self) -> Watched | None:
        """Its alarms and what they watch, recorded until now; None where nothing is recorded."""

    def close(self) -> None:
        """End what is no process of the supervisor's."""

    def fetch_archive(self) -> Path:
        """The archive, as a folder."""
