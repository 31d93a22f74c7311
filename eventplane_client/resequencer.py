"""Puts events in the order of their source's own numbers, and says which did not come. No clock, no I/O.

The numbers are those of the `sequence` attribute when it has digits only. A source belongs to one sender:
what others send in its name changes nothing. A source whose numbers are not known yet (a new reader) is held
for one gap timeout and then begins with its lowest, unless that is 1.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from eventplane.envelope import Envelope
from eventplane.whole_numbers import whole_number
from eventplane_client.notices import SequenceGap

T = TypeVar("T")

Stream = tuple[str, str]
"""A source: its sender and its `source`."""

MOST_HELD = 1_000
"""Events that are held; one more ends the oldest wait early."""

MOST_SOURCES = 10_000
"""Sources whose next number is remembered, those heard of last."""

_FIRST = 1
_MOST = 10**18 - 1


def stream_of(event: Envelope) -> Stream:
    """Return the source that the event is numbered in."""
    sender, source, _ = event.key
    return sender, source


def number_of(event: Envelope) -> int | None:
    """The event's place in its source, None when it has none."""
    try:
        return whole_number(event.attributes.get("sequence"), _MOST)
    except ValueError:
        return None


class Resequencer(Generic[T]):
    """Holds what came too early for at most `gap_timeout_s` seconds; gaps go to `on_gap`."""

    def __init__(self, gap_timeout_s: float, on_gap: Callable[[SequenceGap], None]) -> None:
        self._gap_timeout_s = gap_timeout_s
        self._on_gap = on_gap
        self._next: OrderedDict[Stream, int] = OrderedDict()
        self._held: dict[Stream, dict[int, list[T]]] = {}
        self._since: OrderedDict[Stream, float] = OrderedDict()  # since when each waits, the oldest first
        self._count = 0

    def add(self, source: Stream, number: int, item: T, now: float) -> list[T]:
        """The items that may go now, in order: `item` and what waited for it, or none."""
        expected = self._next.get(source, _FIRST)
        if number < expected:
            return [item]  # late, or a repetition: holding it back helps nobody
        self._held.setdefault(source, {}).setdefault(number, []).append(item)
        self._count += 1
        self._since.setdefault(source, now)
        out: list[T] = []
        if number == expected:
            out = self._follow(source, expected)
            self._wait_anew(source, now)
        if self._count > MOST_HELD:
            out += self._give_up(next(iter(self._since)), now)
        return out

    def due(self, now: float) -> list[T]:
        """The items whose predecessors did not come in time."""
        out: list[T] = []
        while self._since and now >= self._oldest():
            out += self._give_up(next(iter(self._since)), now)
        return out

    def deadline(self) -> float | None:
        """When `due` has something to give, None for never."""
        return self._oldest() if self._since else None

    def rewind(self, source: Stream, number: int) -> None:
        """What has `number` comes again: nothing after it may go before."""
        self._next[source] = number

    def drain(self) -> list[T]:
        """Everything that is held, which nobody waits for any more."""
        held = [item for source in self._held.values() for items in source.values() for item in items]
        self._held.clear()
        self._since.clear()
        self._count = 0
        return held

    def _oldest(self) -> float:
        return next(iter(self._since.values())) + self._gap_timeout_s

    def _give_up(self, source: Stream, now: float) -> list[T]:
        first = min(self._held[source])
        known = self._next.get(source)
        if known is not None and first > known:
            self._on_gap(SequenceGap(*source, known, first - 1))
        out = self._follow(source, first)
        self._wait_anew(source, now)
        return out

    def _wait_anew(self, source: Stream, now: float) -> None:
        """The next gap has a time of its own."""
        if source in self._since:
            self._since[source] = now
            self._since.move_to_end(source)

    def _follow(self, source: Stream, number: int) -> list[T]:
        held, out = self._held[source], []
        while number in held:
            items = held.pop(number)
            self._count -= len(items)
            out += items
            number += 1
        self._next[source] = number
        self._next.move_to_end(source)
        while len(self._next) > MOST_SOURCES:
            self._next.popitem(last=False)
        if not held:
            del self._held[source]
            del self._since[source]
        return out
