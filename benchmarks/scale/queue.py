"""A queue, its pollers and the functions behind them, message by message."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Router:
    """`servers` run at a time and take up to `batch` messages each.

    A batch takes `invocation_s`, and `event_s` more for each of its events. It starts when a server and a
    message are there; with `window_s` it waits so long for more, or until it is full.
    """

    servers: int
    batch: int
    invocation_s: float
    event_s: float
    window_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """`fill` messages a batch; `busy` servers on average; delays from arrival to the end of the batch."""

    fill: float
    busy: float
    p50_s: float
    p99_s: float


def simulate(router: Router, messages_per_s: float, *, events: float = 1, messages: int = 50_000) -> Found:
    """What becomes of so many `messages` of so many `events` each, which come at random."""
    dice = random.Random(SEED)
    now = 0.0
    arrivals = [now := now + dice.expovariate(messages_per_s) for _ in range(messages)]
    free = [0.0] * router.servers
    delays: list[float] = []
    first = batches = 0
    worked = 0.0
    while first < messages:
        start = max(heapq.heappop(free), arrivals[first])
        if router.window_s:
            full = arrivals[min(first + router.batch, messages) - 1]
            start = max(start, min(arrivals[first] + router.window_s, full))
        last = first
        while last < messages and last - first < router.batch and arrivals[last] <= start:
            last += 1
        time = router.invocation_s + router.event_s * events * (last - first)
        delays += [start + time - arrivals[each] for each in range(first, last)]
        heapq.heappush(free, start + time)
        worked += time
        batches += 1
        first = last
    cuts = quantiles(delays, n=100)
    return Found(messages / batches, worked / max(free), cuts[49], cuts[98])
