"""When which fault strikes which home. Pure: the same seed gives the same schedule, to the millisecond."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from random import Random
from typing import Final, NoReturn

from lab.chaos.fault_proxy import Outage
from lab.errors import LocalError


class Spread(StrEnum):
    """The number of faults at a time."""

    SINGLY = "singly"
    PAIRS = "pairs"
    TOGETHER = "together"


class ScheduleError(LocalError):
    """No schedule fits what was asked for."""


class UnknownKindError(ScheduleError):
    """Faults of these `kinds` cannot be made here; `possible` are those that can."""

    def __init__(self, kinds: Collection[str], possible: Collection[str]) -> None:
        self.kinds, self.possible = tuple(sorted(kinds)), tuple(sorted(possible))
        super().__init__(
            f"no faults here of kind {', '.join(self.kinds)}; there are {', '.join(self.possible)}"
        )


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Fault `kind` strikes home number `home` at `at_s`, and is over at `until_s`: seconds of the run."""

    at_s: float
    until_s: float
    kind: str
    home: int


@dataclass(frozen=True, slots=True)
class Tempo:
    """Seconds: a fault lasts from `shortest_s` to `longest_s`, and `calm_s` pass before the next ones."""

    shortest_s: float
    longest_s: float
    calm_s: float


def chosen(kinds: Sequence[str], possible: Collection[str]) -> Sequence[str]:
    """Return `kinds`, or all that are `possible` if there are none. Raises `UnknownKindError`."""
    if unknown := set(kinds) - set(possible):
        raise UnknownKindError(unknown, possible)
    return kinds or sorted(possible)


def schedule(
    seed: int, kinds: Sequence[str], homes: int, seconds: float, mode: Spread, pace: Tempo
) -> tuple[PlannedFault, ...]:
    """Return the strikes of a run of `seconds`, by their time; the last one is over before the run is.

    Every group of kinds (one, two, or all, by `mode`) strikes once in an order given by the seed, then all
    again in another order, for as long as there is time. The faults of a group strike one home and begin
    within the first half of the shortest duration. Raises `ScheduleError` for fewer kinds than the mode
    needs, or if not even one group fits into `seconds`.
    """
    random = Random(seed)
    groups = _groups(kinds, mode)
    strikes: list[PlannedFault] = []
    clock = pace.calm_s
    while True:
        for group in random.sample(groups, len(groups)):
            struck = list(_group(random, group, random.randrange(homes), clock, pace))
            over = max(strike.until_s for strike in struck)
            if over > seconds:
                if not strikes:
                    _no_room(seconds)
                return tuple(sorted(strikes, key=lambda strike: (strike.at_s, strike.kind)))
            strikes += struck
            clock = over + pace.calm_s


def every(seconds: float, kinds: Sequence[str], period_s: float, outage_s: float) -> tuple[PlannedFault, ...]:
    """Return strikes of all `kinds` at home 0 in each `period_s`, evenly spaced, for `outage_s` each.

    Raises `ScheduleError`: not even one fits into `seconds`.
    """
    offset = period_s / len(kinds)
    strikes = tuple(
        PlannedFault(at, at + outage_s, kind, 0)
        for number in range(int(seconds / period_s * len(kinds)))
        for at, kind in [((number + 1) * offset, kinds[number % len(kinds)])]
    )
    return strikes or _no_room(seconds)


def _no_room(seconds: float) -> NoReturn:
    raise ScheduleError(f"a run of {seconds:g} s has no room for one fault; make it longer")


def _groups(kinds: Sequence[str], mode: Spread) -> list[tuple[str, ...]]:
    size = {Spread.SINGLY: 1, Spread.PAIRS: 2, Spread.TOGETHER: len(kinds)}[mode]
    groups = list(combinations(kinds, size))
    if not groups or not size:
        raise ScheduleError(f"faults in mode {mode} need more than {len(kinds)} kinds; name more")
    return groups


def _group(
    random: Random, group: tuple[str, ...], home: int, clock: float, pace: Tempo
) -> Iterator[PlannedFault]:
    for kind in group:
        at = round(clock + random.uniform(0, pace.shortest_s / 2), 3)
        yield PlannedFault(at, round(at + random.uniform(pace.shortest_s, pace.longest_s), 3), kind, home)


SERVICES: Final = ("s3", "dynamodb", "sqs", "inbox", "iot")
"""The services of AWS that can fail: SQS as a whole, or (`inbox`) one inbox queue."""

LONG: Final = ("s3-stalled", "dynamodb-stalled", "inbox-unavailable")
"""The failures that last for minutes."""

KILL: Final = "router-kill"
"""In an outage, so that a router starts cold in it."""

KINDS: Final = (
    *(f"{service}-{failure}" for service in SERVICES for failure in Outage if failure != Outage.SWALLOWED),
    KILL,
)

_LONG: Final = 4
"""How many slots a long outage takes."""

_OUTAGE: Final = 0.55
"""Share of a slot that the outage takes; what it delayed arrives in the rest."""


def cloud_faults_plan(seed: int, kinds: Sequence[str], _homes: int, seconds: float) -> Sequence[PlannedFault]:
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
    strikes: list[PlannedFault] = []
    clock = 0.0
    for group, size in groups:
        began, ended = clock + rest, clock + size * slot
        # A kill is over at once: it strikes when the other one has begun.
        strikes += [
            PlannedFault(began + (slot / 20 if kind == KILL else 0.0), ended, kind, 0)
            for kind in sorted(group)
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
