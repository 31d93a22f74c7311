"""The faults that a demo injects: a cut network, a killed forwarder, a killed broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Final, NamedTuple, Self

from lab.chaos.faults import ChaosFault
from lab.home import Home
from lab.process import Child

CUT_SECONDS: Final = 3.0
"""How long a home stays without network: longer than a reconnect takes, short enough for a demo."""


@dataclass(frozen=True, slots=True)
class RepairedFault:
    """One fault that was injected: `kind` at `home` after `after_events` events, repaired after `seconds`."""

    kind: str
    home: str
    after_events: int
    seconds: float


class _Planned(NamedTuple):
    """A `kind` of fault, the part of all events that goes before, and how long it lasts, seconds."""

    kind: str
    at: float
    outage_s: float
    of: Callable[[Home], ChaosFault]


_PLAN = (
    _Planned("network cut", 0.25, CUT_SECONDS, lambda home: ChaosFault(home.link.cut, home.link.heal)),
    _Planned("forwarder killed (-9)", 0.5, 0, lambda home: _killed(home.forwarder)),
    _Planned("Mosquitto killed (-9)", 0.75, 0, lambda home: _killed(home.broker.child)),
)


def _killed(child: Child) -> ChaosFault:
    # Unlike those of `lab.chaos` it is over when the process is ready again.
    return ChaosFault(child.kill, child.start)


class Faults:
    """Injects the planned faults as events are sent, and repairs them as a supervisor or a provider would.

    A fault strikes the home that has just sent, each fault another home as long as there are enough. All that
    are left strike at the last event. Use it in a `with` block, whose end waits for all repairs.
    """

    def __init__(self, homes: Mapping[str, Home], total_events: int) -> None:
        self._homes = homes
        self._total = total_events
        self._planned = list(_PLAN)
        self._struck: set[str] = set()
        self._repairs: list[Future[RepairedFault]] = []
        self._workers = ThreadPoolExecutor(max_workers=len(_PLAN), thread_name_prefix="repair")
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._ending.set()  # an interrupted run does not sit through an outage
        self._workers.shutdown()

    def passed(self, events: int, home: str) -> None:
        """Inject the faults that are due once `events` events were sent, the last one by `home`."""
        while self._planned and events >= self._planned[0].at * self._total:
            if home in self._struck and len(self._struck) < len(self._homes) and events < self._total:
                return
            planned, began = self._planned.pop(0), monotonic()
            self._struck.add(home)
            fault = planned.of(self._homes[home])
            fault.start()
            self._repairs.append(self._workers.submit(self._repair, planned, fault, home, events, began))

    def injected(self) -> list[RepairedFault]:
        """Return all faults, once they are repaired. Raises the error of a failed repair."""
        return [repair.result() for repair in self._repairs]

    def _repair(
        self, planned: _Planned, fault: ChaosFault, home: str, events: int, began: float
    ) -> RepairedFault:
        self._ending.wait(planned.outage_s)  # the outage itself, not a wait for something
        if fault.heal:
            fault.heal()
        return RepairedFault(planned.kind, home, events, round(monotonic() - began, 2))
