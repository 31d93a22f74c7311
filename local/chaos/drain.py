"""Waiting until everything that was sent has arrived, or nothing moves any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import Event
from time import monotonic
from typing import Final

from local.chaos.arrivals import Arrivals
from local.chaos.load import Sender
from local.home import Home

PATIENCE_S: Final = 240.0
"""How long nothing may move before a wait is given up and the verdict is drawn from what is there."""

_POLL_S: Final = 0.2


def wait_until_nothing_waits(remaining: Callable[[], int], patience_s: float = PATIENCE_S) -> bool:
    """Ask `remaining` until it says 0; False when its answer stayed the same for `patience_s`."""
    pause = Event()
    before, since = remaining(), monotonic()
    while before:
        pause.wait(_POLL_S)  # spools and files of other processes tell nobody when they change
        now = remaining()
        if now != before:
            before, since = now, monotonic()
        elif monotonic() - since > patience_s:
            return False
    return True


def in_homes(homes: Iterable[Home], senders: Iterable[Sender]) -> int:
    """Messages without a receipt, deliveries that wait in spools, and discarded ones not yet reported."""
    return sum(sender.waiting for sender in senders) + sum(home.backlog + home.untold for home in homes)


def missing(arrivals: Mapping[str, Arrivals], expected: Mapping[str, int]) -> int:
    """How many events the cloud's services still have to get, by number."""
    for each in arrivals.values():
        each.refresh()
    return sum(max(0, expected.get(name, 0) - len(each.first)) for name, each in arrivals.items())
