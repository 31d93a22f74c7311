"""When which service of AWS fails: each way by itself, in pairs, and some for minutes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Final

from local.chaos.fault_proxy import Trouble
from local.chaos.faulty import SERVICES
from local.chaos.schedule import ScheduleError, Strike

LONG: Final = ("s3-stalled", "dynamodb-stalled", "inbox-unavailable")
"""What fails for minutes."""

KILL: Final = "router-kill"
"""A router that is killed in an outage begins cold in it."""

KINDS: Final = (
    *(f"{service}-{trouble}" for service in SERVICES for trouble in Trouble if trouble != Trouble.SWALLOWED),
    KILL,
)

_LONG: Final = 4
"""How many slots a long outage takes."""

_OUTAGE: Final = 0.55
"""Share of a slot that the outage takes; what it delayed arrives in the rest."""


def plan(seed: int, kinds: Sequence[str], _homes: int, seconds: float) -> Sequence[Strike]:
    """Return the strikes of a run: `kinds` one by one, one pair of every two services, then the long ones.

    All take the same time but for the long ones. A seed decides the order, and which kinds make a pair.
    Raises `ScheduleError` for no kinds at all.
    """
    random = Random(seed)
    groups: list[tuple[tuple[str, ...], int]] = [
        ((kind,), 1) for kind in random.sample(list(kinds), len(kinds))
    ]
    groups += [(pair, 1) for pair in _pairs(random, kinds)]
    groups += [((kind,), _LONG) for kind in LONG if kind in kinds and len(kinds) > 1]
    if not groups:
        raise ScheduleError("no kinds of faults; name some")
    slot = seconds / sum(size for _, size in groups)
    rest = slot * (1 - _OUTAGE)
    strikes: list[Strike] = []
    clock = 0.0
    for group, size in groups:
        began, ended = clock + rest, clock + size * slot
        # A kill is over at once: it strikes when the other one has begun.
        strikes += [
            Strike(began + (slot / 20 if kind == KILL else 0.0), ended, kind, 0) for kind in sorted(group)
        ]
        clock = ended
    return tuple(sorted(strikes, key=lambda strike: strike.at_s))


def _pairs(random: Random, kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
    by_service: dict[str, list[str]] = {}
    for kind in kinds:
        by_service.setdefault(kind.partition("-")[0], []).append(kind)
    for first, second in combinations(sorted(by_service), 2):
        if {first, second} != {"inbox", "sqs"}:  # one is in the other
            yield random.choice(by_service[first]), random.choice(by_service[second])
