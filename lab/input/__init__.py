"""The input of the demo: events of homes, simulated or real, in time order.

`open_input` chooses the homes that are played, and how many events of each: a fair, repeatable choice.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from operator import attrgetter
from pathlib import Path

from lab.input.datasets import OPENSMARTHOME, TIHM, opensmarthome_homes, tihm_homes
from lab.input.model import HomeInput, InputBoundError, InputEvent, InputMissingError
from lab.input.simulator import simulated_homes

DEFAULT_HOMES = 5
DEFAULT_EVENTS = 2_000
ALL = "all"


@dataclass(frozen=True)
class Input:
    """The chosen `homes` and how many events each plays (`quotas`). Iterating gives them in time order."""

    homes: tuple[HomeInput, ...]
    quotas: tuple[int, ...]

    @property
    def total(self) -> int:
        """The number of events."""
        return sum(self.quotas)

    def __iter__(self) -> Iterator[InputEvent]:
        streams = (islice(home.events(), quota) for home, quota in zip(self.homes, self.quotas, strict=True))
        return heapq.merge(*streams, key=attrgetter("at"))


def open_input(
    data: Path | None = None,
    homes: int | None = DEFAULT_HOMES,
    events: int | None = DEFAULT_EVENTS,
    seed: int = 1,
) -> Input:
    """The input of a run: the data sets in the folder `data`, or the simulator's homes of `seed` without one.

    At most `homes` homes and `events` events are chosen; None means all. Raises `InputError`.
    """
    if data is None:
        if homes is None or events is None:
            name = "HOMES" if homes is None else "EVENTS"
            raise InputBoundError(name, ALL, "the simulator never ends; give a number, or DATA")
        chosen = simulated_homes(homes, seed)
    else:
        chosen = choose_homes(_sources(data), homes)
    return Input(tuple(chosen), tuple(fair_quotas([home.size for home in chosen], events)))


def read_bound(name: str, text: str) -> int | None:
    """The bound that `text` states: a number from 1, or `all` (None). Raises `InputBoundError`."""
    if text == ALL:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputBoundError(name, text, "give a number from 1, or all")
    return int(text)


def choose_homes(sources: Sequence[Sequence[HomeInput]], count: int | None) -> list[HomeInput]:
    """At most `count` homes, one of each source in turn, so that a small choice has every kind of home."""
    in_turn = [home for home in chain.from_iterable(zip_longest(*sources)) if home is not None]
    return in_turn[:count]


def fair_quotas(sizes: Sequence[int | None], total: int | None) -> list[int]:
    """Return the number of events that each home plays so that all play `total`; None is endless, or all.

    The first `total` events of all homes would be those of 2017 alone: one data set ends two years before
    the other begins. So every home gets an equal share, and what a small home leaves over goes to the rest.
    """
    if total is None:
        return [size for size in sizes if size is not None]
    left = total
    limits = [total if size is None else size for size in sizes]
    quotas = [0] * len(sizes)
    # From the smallest on: whatever it leaves over makes the share of all that follow larger.
    for done, index in enumerate(sorted(range(len(sizes)), key=limits.__getitem__)):
        quotas[index] = min(limits[index], left // (len(sizes) - done))
        left -= quotas[index]
    return quotas


def _sources(data: Path) -> list[list[HomeInput]]:
    readers = {TIHM: tihm_homes, OPENSMARTHOME: opensmarthome_homes}
    sources = [read(data / folder) for folder, read in readers.items() if (data / folder).is_dir()]
    if not sources:
        raise InputMissingError(data / TIHM, f"DATA must name the folder of {' or '.join(readers)}")
    return sources
