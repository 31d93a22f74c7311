"""When which fault strikes which home. Pure: the same seed gives the same schedule, to the millisecond."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from random import Random
from typing import NoReturn

from local.errors import LocalError


class Mode(StrEnum):
    """How many faults strike at a time."""

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
class Strike:
    """Fault `kind` strikes home number `home` at `at_s`, and is over at `until_s`: seconds of the run."""

    at_s: float
    until_s: float
    kind: str
    home: int


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: a fault lasts from `shortest_s` to `longest_s`, and `calm_s` pass before the next ones."""

    shortest_s: float
    longest_s: float
    calm_s: float


def chosen(kinds: Sequence[str], possible: Collection[str]) -> Sequence[str]:
    """`kinds`, or all that are `possible` if there are none. Raises `UnknownKindError`."""
    if unknown := set(kinds) - set(possible):
        raise UnknownKindError(unknown, possible)
    return kinds or sorted(possible)


def schedule(
    seed: int, kinds: Sequence[str], homes: int, seconds: float, mode: Mode, pace: Pace
) -> tuple[Strike, ...]:
    """The strikes of a run of `seconds`, by their time. The last one is over before the run is.

    Every group of kinds (one, two, or all at once, as `mode` says) gets its turn in an order of the seed's,
    then all again in another one, for as long as there is time. Faults that strike together strike one home
    and begin within the first half of the shortest.

    Raises:
        ScheduleError: fewer kinds than the mode needs, or not even one group fits into `seconds`.
    """
    random = Random(seed)
    groups = _groups(kinds, mode)
    strikes: list[Strike] = []
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


def every(seconds: float, kinds: Sequence[str], period_s: float, outage_s: float) -> tuple[Strike, ...]:
    """All `kinds` strike home 0 once every `period_s`, one after the other within it, for `outage_s` each.

    Raises `ScheduleError`: not even one fits into `seconds`.
    """
    offset = period_s / len(kinds)
    strikes = tuple(
        Strike(at, at + outage_s, kind, 0)
        for number in range(int(seconds / period_s * len(kinds)))
        for at, kind in [((number + 1) * offset, kinds[number % len(kinds)])]
    )
    return strikes or _no_room(seconds)


def _no_room(seconds: float) -> NoReturn:
    raise ScheduleError(f"a run of {seconds:g} s has no room for one fault; make it longer")


def _groups(kinds: Sequence[str], mode: Mode) -> list[tuple[str, ...]]:
    size = {Mode.SINGLY: 1, Mode.PAIRS: 2, Mode.TOGETHER: len(kinds)}[mode]
    groups = list(combinations(kinds, size))
    if not groups or not size:
        raise ScheduleError(f"faults in mode {mode} need more than {len(kinds)} kinds; name more")
    return groups


def _group(random: Random, group: tuple[str, ...], home: int, clock: float, pace: Pace) -> Iterator[Strike]:
    for kind in group:
        at = round(clock + random.uniform(0, pace.shortest_s / 2), 3)
        yield Strike(at, round(at + random.uniform(pace.shortest_s, pace.longest_s), 3), kind, home)
