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
from itertools import islice
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from eventplane.ordering import Stream
from eventplane_client.notices import SequenceGap

T = TypeVar("T")

GAP_TIMEOUT_S: Final = 240.0
"""How long an event waits for those before it by default, seconds: what a router had in hand when it died
comes again after 180 s (`stacks/environments.toml`), and has a minute to be routed."""

MOST_HELD: Final = 10_000
"""Events that are held by default; one more ends the longest wait early. About 5 KB each."""

MOST_STREAMS: Final = 10_000
"""Streams whose next number is kept in memory, those heard of last; the others are asked for again."""

MOST_LOOKS: Final = 10
"""Streams that `due` asks the reader's state for in one call: the rest has its turn after the next reception,
so that many streams with gaps, of one sender or of a fleet, do not keep the reader from its queue."""

_FIRST: Final = 1
_FIRST_LOOK_S: Final = 0.25
_LAST_LOOK_S: Final = 5.0


class _Held(NamedTuple, Generic[T]):
    """The copies of one event that are held, `since` the first came."""

    since: float
    items: list[T]


@dataclass(slots=True)
class _Line(Generic[T]):
    """One stream: the `next` number that never had its turn, what is `held` behind a gap, and what is `out`.

    `again` are numbers before `next` that come again and have their turn first. `stored` is the position that
    the reader's state has. The wait of what is held began when it came, or when the line last `moved` without
    a gap, whichever was later; the longest began at `since`.
    """

    next: int = _FIRST
    is_known: bool = False
    stored: int = _FIRST
    held: dict[int, _Held[T]] = field(default_factory=dict)
    out: set[int] = field(default_factory=set)
    lowest_out: list[int] = field(default_factory=list)
    again: set[int] = field(default_factory=set)
    moved: float = -inf
    since: float = 0.0
    look_at: float = 0.0
    look_s: float = _FIRST_LOOK_S

    @property
    def turn(self) -> int:
        """The number that may be handed out now."""
        return min(self.again) if self.again else self.next

    @property
    def position(self) -> int:
        """The first number that is not done."""
        while self.lowest_out and self.lowest_out[0] not in self.out:
            heapq.heappop(self.lowest_out)
        return min(self.turn, self.lowest_out[0]) if self.lowest_out else self.turn


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
        self._waiting: OrderedDict[Stream, None] = OrderedDict()  # with a gap; looked at last at the end
        self._count = 0

    def add(self, stream: Stream, number: int, item: T, now: float, since: float | None = None) -> list[T]:
        """Return the items that may go now, in order: `item` and what waited for it, or none.

        `since` is when the wait of `item` began, if it was before `now`.
        """
        line = self._line(stream)
        if number > line.turn and not line.held:
            self._look(stream, line)  # another reader may have gone on meanwhile
        if number < line.next and number not in line.again:
            return [item]  # late, or a repetition: holding it back helps nobody
        held = line.held.setdefault(number, _Held(now if since is None else since, []))
        held.items.append(item)
        self._count += 1
        out = self._follow(stream, line, now)
        if stream in self._waiting:
            line.since = min(line.since, max(line.moved, held.since))
        elif line.held:
            self._wait(stream, line, now)
        if self._count > self._most_held:
            longest = min(self._waiting, key=lambda each: self._lines[each].since)
            out += self._give_up(longest, now, min(self._lines[longest].held))
        return out

    def add_last(
        self, stream: Stream, number: int, item: T, now: float, since: float | None = None
    ) -> list[T]:
        """Return the items that may go now where `item` will not come again: it and what waited before it."""
        out = self.add(stream, number, item, now, since)
        if number in self._line(stream).held:
            out += self._give_up(stream, now, number)
        return out

    def due(self, now: float) -> list[T]:
        """Return items that another reader made way for, or whose predecessors did not come in time.

        Where many streams have a gap it returns those of some, and `deadline` is not after `now`.
        """
        out: list[T] = []
        for stream in self._first(lambda line: now >= line.look_at):
            line = self._lines[stream]
            line.look_s = min(2 * line.look_s, _LAST_LOOK_S)
            line.look_at = now + line.look_s
            self._waiting.move_to_end(stream)
            out += self._catch_up(stream, line, now)
        for stream in self._first(lambda line: now >= line.since + self._gap_timeout_s):
            out += self._give_up(stream, now)
        return out

    def deadline(self) -> float | None:
        """Return when `due` has something to do, None for never."""
        if not self._waiting:
            return None
        waiting = [self._lines[each] for each in self._waiting]
        return min(min(each.since + self._gap_timeout_s, each.look_at) for each in waiting)

    def rewind(self, stream: Stream, number: int, behind: Set[int] = frozenset()) -> None:
        """Let nothing after `number`, which comes again, go before it; `behind` are put back with it."""
        line = self._line(stream)
        if number not in line.out:
            return  # it came late: those after it have gone long ago
        again = {number, *behind}
        line.out -= again
        line.again |= again

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
        line = self._line(stream)
        turn = line.turn
        line.again |= {each for each in numbers if turn < each < line.next}

    def is_news(self, stream: Stream, position: int) -> bool:
        """Return whether the reader's state has an earlier position of `stream`."""
        return position > self._line(stream).stored

    def stored(self, stream: Stream, position: int) -> None:
        """Note that the reader's state has `position`."""
        self._line(stream).stored = position

    def drain(self) -> list[T]:
        """Return everything that is held, which nobody waits for any more."""
        lines = [self._lines[each] for each in self._waiting]
        held = [item for line in lines for each in line.held.values() for item in each.items]
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
        if position <= line.turn:
            return []
        line.next = max(line.next, position)
        line.again = {each for each in line.again if each >= position}
        late = sorted(each for each in line.held if each < position)
        return [item for each in late for item in self._taken(line, each)]

    def _first(self, is_due: Callable[[_Line[T]], bool]) -> list[Stream]:
        return list(islice((each for each in self._waiting if is_due(self._lines[each])), MOST_LOOKS))

    def _catch_up(self, stream: Stream, line: _Line[T], now: float) -> list[T]:
        """Return what other readers made way for."""
        before = line.turn
        out = self._look(stream, line)
        return out + self._follow(stream, line, now, has_moved=line.turn > before)

    def _give_up(self, stream: Stream, now: float, until: int = 0) -> list[T]:
        """Return what is held up to the number `until`, whatever is missing before it, and what follows.

        Without a number, up to the last that has waited long enough: for all gaps before it at once.
        """
        line = self._lines[stream]
        out = self._catch_up(stream, line, now)
        for each, held in line.held.items():
            if now >= max(line.moved, held.since) + self._gap_timeout_s:
                until = max(until, each)
        for first in sorted(each for each in line.held if each <= until):
            if first not in line.held:
                continue  # it followed the one before
            if line.is_known:
                self._on_gap(SequenceGap(*stream, line.turn, first - 1))
            line.next = max(line.next, first)
            line.again = {each for each in line.again if each >= first}
            out += self._taken_in_turn(line)
        self._rest(stream, line, now)
        return out

    def _wait(self, stream: Stream, line: _Line[T], now: float) -> None:
        line.look_s = _FIRST_LOOK_S
        line.look_at = now + line.look_s
        line.since = max(line.moved, min(each.since for each in line.held.values()))
        self._waiting[stream] = None

    def _rest(self, stream: Stream, line: _Line[T], now: float) -> None:
        self._waiting.pop(stream, None)
        if line.held:
            self._wait(stream, line, now)

    def _follow(self, stream: Stream, line: _Line[T], now: float, *, has_moved: bool = False) -> list[T]:
        """Return what follows without a gap."""
        out = self._taken_in_turn(line)
        if out or has_moved:
            line.moved = now
            self._rest(stream, line, now)
        return out

    def _taken_in_turn(self, line: _Line[T]) -> list[T]:
        out: list[T] = []
        while (number := line.turn) in line.held:
            out += self._taken(line, number)
            line.again.discard(number)
            line.next = max(line.next, number + 1)
            line.out.add(number)
            heapq.heappush(line.lowest_out, number)
            line.is_known = True
        return out

    def _taken(self, line: _Line[T], number: int) -> list[T]:
        items = line.held.pop(number).items
        self._count -= len(items)
        return items
