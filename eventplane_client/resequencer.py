"""Puts events into the order in which their sender counted them, and reports which did not come. No I/O.

The next number of a stream is known from the reader's state, which moves with each acknowledgement: so a
reader that was restarted, or another one beside it, goes on where the last one stopped. A stream that nobody
knows begins with 1; where something later came, it is held for a gap timeout and then begins with its lowest.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from eventplane.ordering import Stream
from eventplane_client.notices import SequenceGap

T = TypeVar("T")

GAP_TIMEOUT_S: Final = 240.0
"""How long an event waits for those before it by default, seconds: what a router had in hand when it died
comes again after 180 s (`stacks/config.py`), and has a minute to be routed."""

MOST_HELD: Final = 10_000
"""Events that are held by default; one more ends the longest wait early. About 5 KB each."""

MOST_STREAMS: Final = 10_000
"""Streams whose next number is kept in memory, those heard of last; the others are asked for again."""

_FIRST: Final = 1
_FIRST_LOOK_S: Final = 0.25
_LAST_LOOK_S: Final = 5.0


@dataclass(slots=True)
class _Line(Generic[T]):
    """One stream: the `next` number to hand out, what is `held` behind a gap `since` when, and what is `out`.

    `passed` are numbers behind `next` that were handed out already: something before them was given back.
    `stored` is the position that the reader's state has.
    """

    next: int = _FIRST
    is_known: bool = False
    stored: int = _FIRST
    held: dict[int, list[T]] = field(default_factory=dict)
    out: set[int] = field(default_factory=set)
    lowest_out: list[int] = field(default_factory=list)
    passed: set[int] = field(default_factory=set)
    since: float = 0.0
    look_at: float = 0.0
    look_s: float = _FIRST_LOOK_S

    @property
    def position(self) -> int:
        """The first number that is not done."""
        while self.lowest_out and self.lowest_out[0] not in self.out:
            heapq.heappop(self.lowest_out)
        return min(self.next, self.lowest_out[0]) if self.lowest_out else self.next


class Resequencer(Generic[T]):
    """Holds what came too early for at most `gap_timeout_s` seconds; gaps go to `on_gap`.

    `position` gives the next number of a stream as the reader's state has it, None where it has none.
    """

    def __init__(
        self,
        gap_timeout_s: float,
        on_gap: Callable[[SequenceGap], None],
        position: Callable[[Stream], int | None] = lambda _: None,
        most_held: int = MOST_HELD,
    ) -> None:
        self._gap_timeout_s = gap_timeout_s
        self._on_gap = on_gap
        self._position = position
        self._most_held = most_held
        self._lines: OrderedDict[Stream, _Line[T]] = OrderedDict()
        self._waiting: OrderedDict[Stream, None] = OrderedDict()  # those with a gap, the oldest wait first
        self._count = 0

    def add(self, stream: Stream, number: int, item: T, now: float) -> list[T]:
        """Return the items that may go now, in order: `item` and what waited for it, or none."""
        line = self._line(stream)
        if number > line.next and not line.held:
            self._look(stream, line)  # another reader may have gone on meanwhile
        if number < line.next or number in line.passed:
            return [item]  # late, or a repetition: holding it back helps nobody
        line.held.setdefault(number, []).append(item)
        self._count += 1
        out = self._follow(stream, line, now)
        if line.held and stream not in self._waiting:
            self._wait_anew(stream, line, now)
        if self._count > self._most_held:
            out += self._give_up(next(iter(self._waiting)), now)
        return out

    def add_last(self, stream: Stream, number: int, item: T, now: float) -> list[T]:
        """Return the items that may go now where `item` will not come again: it and what waited before it."""
        out = self.add(stream, number, item, now)
        while number in self._line(stream).held:
            out += self._give_up(stream, now)
        return out

    def due(self, now: float) -> list[T]:
        """Return the items that another reader made way for, or whose predecessors did not come in time."""
        out: list[T] = []
        for stream in [each for each in self._waiting if now >= self._lines[each].look_at]:
            line = self._lines[stream]
            out += [*self._look(stream, line), *self._follow(stream, line, now)]
            line.look_s = min(2 * line.look_s, _LAST_LOOK_S)
            line.look_at = now + line.look_s
        while self._waiting and now >= self._ends():
            out += self._give_up(next(iter(self._waiting)), now)
        return out

    def deadline(self) -> float | None:
        """Return when `due` has something to do, None for never."""
        if not self._waiting:
            return None
        return min(self._ends(), *(self._lines[each].look_at for each in self._waiting))

    def rewind(self, stream: Stream, number: int, behind: Set[int] = frozenset()) -> None:
        """Let nothing after `number`, which comes again, go before it; `behind` are put back with it."""
        line = self._line(stream)
        if number not in line.out:
            return  # it came late: those after it have gone long ago
        again = {number, *behind}
        line.out -= again
        line.passed = (line.passed | set(range(number, line.next))) - again
        line.next = min(number, line.next)

    def done(self, stream: Stream, number: int) -> int:
        """Note that `number` is done. Return the first one that is not."""
        line = self._line(stream)
        line.out.discard(number)
        return line.position

    def is_in_hand(self, stream: Stream, number: int) -> bool:
        """Return whether `number` was handed out, and is neither done nor given back."""
        return number in self._line(stream).out

    def comes_again(self, stream: Stream, numbers: Set[int]) -> None:
        """Note that `numbers`, which are done, come again in their turn."""
        self._line(stream).passed -= numbers

    def is_news(self, stream: Stream, position: int) -> bool:
        """Return whether the reader's state has an earlier position of `stream`."""
        return position > self._line(stream).stored

    def stored(self, stream: Stream, position: int) -> None:
        """Note that the reader's state has `position`."""
        self._line(stream).stored = position

    def drain(self) -> list[T]:
        """Return everything that is held, which nobody waits for any more."""
        held = [item for each in self._waiting for items in self._lines[each].held.values() for item in items]
        for each in self._waiting:
            self._lines[each].held.clear()
        self._waiting.clear()
        self._count = 0
        return held

    def _line(self, stream: Stream) -> _Line[T]:
        line = self._lines.get(stream)
        if line is None:
            line = self._lines[stream] = _Line()
            self._look(stream, line)
            self._forget()
        self._lines.move_to_end(stream)
        return line

    def _forget(self) -> None:
        """Forget the streams that were heard of longest ago, but for those with something in hand."""
        if len(self._lines) > MOST_STREAMS:
            idle = [key for key, line in self._lines.items() if not (line.held or line.out)]
            for each in idle[: len(self._lines) - MOST_STREAMS]:
                del self._lines[each]

    def _look(self, stream: Stream, line: _Line[T]) -> list[T]:
        """Learn how far other readers have come, or this one before its restart; return what is late then."""
        position = self._position(stream)
        if position is None:
            return []
        line.is_known = True
        line.stored = max(line.stored, position)
        if position <= line.next:
            return []
        line.next = position
        line.passed = {each for each in line.passed if each >= position}
        late = sorted(each for each in line.held if each < position)
        return [item for each in late for item in self._taken(line, each)]

    def _ends(self) -> float:
        return self._lines[next(iter(self._waiting))].since + self._gap_timeout_s

    def _give_up(self, stream: Stream, now: float) -> list[T]:
        line = self._lines[stream]
        before = line.next
        out = self._look(stream, line)
        if line.next == before:
            first = min(line.held)
            if line.is_known:
                self._on_gap(SequenceGap(*stream, line.next, first - 1))
            line.next = first
        out += self._follow(stream, line, now)
        if stream in self._waiting:
            self._wait_anew(stream, line, now)
        return out

    def _wait_anew(self, stream: Stream, line: _Line[T], now: float) -> None:
        """The next gap has a time of its own."""
        line.since = now
        line.look_s = _FIRST_LOOK_S
        line.look_at = now + line.look_s
        self._waiting[stream] = None
        self._waiting.move_to_end(stream)

    def _follow(self, stream: Stream, line: _Line[T], now: float) -> list[T]:
        """Return what follows without a gap."""
        out: list[T] = []
        before = line.next
        while True:
            if line.next in line.passed:
                line.passed.discard(line.next)
            elif line.next in line.held:
                out += self._taken(line, line.next)
                line.out.add(line.next)
                heapq.heappush(line.lowest_out, line.next)
                line.is_known = True
            else:
                break
            line.next += 1
        if not line.held:
            self._waiting.pop(stream, None)
        elif line.next > before and stream in self._waiting:
            self._wait_anew(stream, line, now)
        return out

    def _taken(self, line: _Line[T], number: int) -> list[T]:
        items = line.held.pop(number)
        self._count -= len(items)
        return items
