"""All homes of a plan, each by itself, in as many processes as there is room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields
from multiprocessing import active_children, get_context
from signal import SIG_IGN, SIGINT, signal
from typing import Any, Final

from eventplane.contract import load_compiled
from parts.simulate.errors import SimulationError, TooManyEventsError
from parts.simulate.one_home import HomeRecord, Simulation, run_home

MOST_EVENTS: Final = 20_000_000
"""Of all homes. Ours: some three hours of two cores."""

_TOLD_S: Final = 5.0
"""Between two reports of progress."""

Told = Callable[[float], object]
"""Hears the share that is done."""

_at_hand: Any = None
"""In a process of the pool: the plan, and the share of each home that is done."""


def run_homes(plan: Simulation, homes: int, processes: int, told: Told = lambda _: None) -> list[HomeRecord]:
    """Simulate all homes, and return their records in order.

    Raises `TooManyEventsError`, `SimulationError`.
    """
    if (events := sum(plan.expected(f"home-{number}") for number in range(1, homes + 1))) > MOST_EVENTS:
        raise TooManyEventsError(events, MOST_EVENTS)
    if min(processes, homes) <= 1:
        return [
            run_home(plan, number, lambda share, at=number: told((at - 1 + share) / homes))  # type: ignore[misc]
            for number in range(1, homes + 1)
        ]
    # A forked process has the locks of threads that it has not.
    context = get_context("spawn")
    shares = context.Array("d", homes, lock=False)
    given = (
        shares,
        plan.contract.canonical,
        {each.name: getattr(plan, each.name) for each in fields(plan)[1:]},
    )
    with ProcessPoolExecutor(min(processes, homes), context, _begin, given) as pool:
        works = [pool.submit(_run, number) for number in range(1, homes + 1)]
        try:
            left: Any = works
            while left:
                _, left = wait(left, _TOLD_S, FIRST_COMPLETED)
                told(sum(shares) / homes)
            return [each.result() for each in works]
        except BrokenProcessPool as error:
            raise SimulationError from error
        except BaseException:
            # Who interrupts it does not want to wait for the homes that are in work.
            for child in active_children():
                child.terminate()
            raise


def _begin(shares: Sequence[float], contract: bytes, more: Mapping[str, Any]) -> None:
    global _at_hand
    signal(SIGINT, SIG_IGN)  # the process that waits for this one ends it
    _at_hand = Simulation(load_compiled(contract, "the contract"), **more), shares


def _run(number: int) -> HomeRecord:
    plan, shares = _at_hand

    def told(share: float) -> None:
        shares[number - 1] = share

    return run_home(plan, number, told)
