"""The faults that a demo injects: a cut network, a killed forwarder, a killed broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Final, Self

from local.home import Home

CUT_SECONDS: Final = 3.0
"""How long a home stays without network: longer than a reconnect takes, short enough for a demo."""


@dataclass(frozen=True, slots=True)
class RepairedFault:
    """One fault that was injected: `kind` at `home` after `after_events` events, repaired after `seconds`."""

    kind: str
    home: str
    after_events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Planned:
    kind: str
    at: float  # the part of all events that goes before
    strike: Callable[[Home], None]
    repair: Callable[[Home], None]
    outage_seconds: float = 0.0


_PLAN = (
    _Planned("network cut", 0.25, lambda home: home.link.cut(), lambda home: home.link.heal(), CUT_SECONDS),
    _Planned(
        "forwarder killed (-9)", 0.5, lambda home: home.forwarder.kill(), lambda home: home.forwarder.start()
    ),
    _Planned(
        "Mosquitto killed (-9)",
        0.75,
        lambda home: home.broker.child.kill(),
        lambda home: home.broker.child.start(),
    ),
)


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._ending.set()  # an interrupted run does not sit through an outage
        self._workers.shutdown()

    def passed(self, events: int, home: str) -> None:
        """Inject the faults that are due once `events` events were sent, the last one by `home`."""
        while self._planned and events >= self._planned[0].at * self._total:
            if home in self._struck and len(self._struck) < len(self._homes) and events < self._total:
                return
            self._strike(self._planned.pop(0), home, events)

    def injected(self) -> list[RepairedFault]:
        """Return all faults, once they are repaired. Raises the error of a failed repair."""
        return [repair.result() for repair in self._repairs]

    def _strike(self, planned: _Planned, home: str, events: int) -> None:
        self._struck.add(home)
        began = monotonic()
        planned.strike(self._homes[home])
        self._repairs.append(self._workers.submit(self._repair, planned, home, events, began))

    def _repair(self, planned: _Planned, home: str, events: int, began: float) -> RepairedFault:
        self._ending.wait(planned.outage_seconds)  # the outage itself, not a wait for something
        planned.repair(self._homes[home])
        return RepairedFault(planned.kind, home, events, round(monotonic() - began, 2))
