"""Virtual time: what happens, happens at a moment of one clock, and in one order.

Nothing sleeps and no thread runs, so an hour takes as long as the work in it, and each run of the same
story is the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

START_S: Final = 1_767_225_600.0
"""The moment at which every history begins: 2026-01-01T00:00:00Z, Unix seconds."""


@dataclass(frozen=True, slots=True)
class Note:
    """An entry on a `lane` of a history's page at a moment."""

    at_s: float
    lane: str
    text: str
    is_fault: bool = False


class Killed(BaseException):
    """The program that runs has ended at this very step."""


class Wakeup:
    """Something that happens `at_s`, unless it `is_off` by then."""

    __slots__ = ("act", "at_s", "is_off")

    def __init__(self, at_s: float, act: Callable[[], object]) -> None:
        self.at_s = at_s
        self.act = act
        self.is_off = False


class Timeline:
    """The clock, and what is due. Seconds since the beginning."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.notes: list[Note] = []
        self._due: list[tuple[float, int, Wakeup]] = []
        self._until_s = 0.0
        self._numbers = count()

    def note(self, lane: str, text: str, *, is_fault: bool = False) -> None:
        """Take down what happened."""
        self.notes.append(Note(round(self.now_s, 3), lane, text, is_fault))

    @property
    def now_ms(self) -> int:
        """The wall clock of AWS, Unix milliseconds."""
        return round(1_000 * (START_S + self.now_s))

    def at(self, moment_s: float, act: Callable[[], object]) -> Wakeup:
        """Let `act` happen at a moment; at once if it is over."""
        at_s = max(moment_s, self.now_s)
        due = Wakeup(at_s, act)
        heapq.heappush(self._due, (at_s, next(self._numbers), due))
        return due

    def after(self, seconds: float, act: Callable[[], object]) -> Wakeup:
        """Let `act` happen in `seconds`."""
        return self.at(self.now_s + seconds, act)

    def every(self, seconds: float, act: Callable[[], object], first_s: float = 0.0) -> None:
        """Let `act` happen again and again, for the first time in `first_s`."""

        def again() -> None:
            act()
            self.after(seconds, again)

        self.after(first_s, again)

    def run(self, until_s: float) -> None:
        """Let happen what is due until a moment."""
        due, self._until_s = self._due, until_s
        while due and due[0][0] <= until_s:
            at_s, _, each = heapq.heappop(due)
            if not each.is_off:
                self.now_s = at_s
                each.act()
        self.now_s = max(self.now_s, until_s)


Draws = Random
"""A generator of random numbers; there is one for each question, so that no answer depends on another's."""


def draws(*names: object) -> Draws:
    """Return the generator of what `names` say; the same names draw the same numbers, on every machine."""
    return Random("/".join(map(str, names)))  # noqa: S311 - repeatable, not secret
