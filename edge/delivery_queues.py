"""The deliveries that have yet to be made: cursors over the spool, and queues of what is only in memory.

A destination has one `DeliveryCursor` for each priority and two `VolatileQueue`s: in front of the cursors the
urgent events that found no room in the spool, behind them what a channel delivers at best effort.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from heapq import merge
from itertools import chain, groupby, islice
from typing import NamedTuple

from edge.counts import Counts, NotStored
from edge.numbering import LatestKeys, why_expired
from edge.spool import BEFORE_EVERYTHING, Delivery, Discard, PendingDelivery, Size, StoredEvent
from edge.spool.store import READ_CHARACTERS, Spool
from edge.system import Uptime, UptimeClock
from eventplane.contract import Priority
from eventplane.device_reports import is_irreplaceable
from eventplane.reasons import Outcome
from eventplane.receipts import SPOOL_FULL

_MOST_READS = 4
"""Reads of one `peek` while all that it finds has expired. A backlog that expired as a whole takes many
turns then, and an alarm that comes meanwhile is not delayed."""

_READ_AHEAD = 100
"""Fewest deliveries that one read asks for: it costs little more than a read of one."""

_SLICE = 64
"""Deliveries that `unsent` reads at a time."""

_MOST_APPENDED = 500
_MOST_CHARACTERS_AHEAD = 256 * 1024
"""Most deliveries, and text, that a cursor keeps without having to read them: two batches of the uplink."""

BEST_EFFORT_RANK = 3
"""Behind the ranks of the contract's priorities: it uses only room that no promised delivery wants."""

UNSTORED_RANK = -1
"""In front of them: an urgent event that found no room. No delivery of these two ranks is in the spool."""

MOST_EVENTS = 1_000
"""Most events that wait in one volatile queue: what the connection sends in a few seconds."""

MOST_CHARACTERS = 512 * 1024
"""Most text that waits in one volatile queue: bounds memory for events of any size."""

OFFLINE = "offline"
OVERFLOW = "overflow"
UNCONFIRMED = "unconfirmed"
"""Why a volatile event was given up: there is no connection, the queue is full, or one that is not urgent was
sent and not confirmed in time."""

SENT_UNSTORED = "sent_unstored"
"""In reports: events that were delivered although they found no room in the spool."""

MOST_REMEMBERED = 4096
"""Deliveries of unstored events that are remembered; a repetition of an older one is sent once more."""


class DeliveryQueue(ABC):
    """The deliveries that come next to one destination at one rank; `added` counts all that ever came."""

    def __init__(self) -> None:
        self.added = 0
        self._ahead: deque[PendingDelivery] = deque()
        self._characters = 0

    @property
    def more(self) -> bool:
        """True if the spool may hold more than has been read ahead."""
        return False

    @property
    def empty(self) -> bool:
        """True if there is nothing to send."""
        return not self._ahead and not self.more

    def fill(self, count: int) -> int:  # noqa: ARG002 - a queue in memory has no more
        """Read ahead up to `count` deliveries; return how many come next, of which some may be over."""
        return len(self._ahead)

    def peek(self, count: int) -> Sequence[PendingDelivery]:
        """Return up to `count` deliveries that come next; fewer when they are large, over, or the last."""
        self.fill(count)
        return self.ahead(count)

    def ahead(self, count: int) -> Sequence[PendingDelivery]:
        """Return up to `count` deliveries that come next, of those read ahead."""
        return list(islice(self._ahead, count))

    def last(self, count: int) -> Iterable[PendingDelivery]:
        """Return the last `count` deliveries of those read ahead."""
        return islice(reversed(self._ahead), count)

    def take(self, count: int = 1) -> list[PendingDelivery]:
        """Remove the first `count` deliveries, which are in flight then."""
        taken = [self._ahead.popleft() for _ in range(count)]
        self._characters -= sum(len(each.json) for each in taken)
        return taken

    @abstractmethod
    def rewind(self) -> None:
        """Start again after the connection is gone."""

    def _add(self, pending: PendingDelivery) -> None:
        self._ahead.append(pending)
        self._characters += len(pending.json)
        self.added += 1


class DeliveryCursor(DeliveryQueue):
    """Reads the pending deliveries of one `destination` and `rank` from the spool, in order, a little ahead.

    After `rewind` it starts again from the oldest delivery that the spool still holds. Of what it has read
    `end_expired` returns what remains. While it `has_read_all`, what is stored next may be appended.
    """

    def __init__(
        self,
        spool: Spool,
        destination: str,
        rank: int,
        end_expired: Callable[[Iterable[PendingDelivery]], list[PendingDelivery]] = list,
    ) -> None:
        super().__init__()
        self._spool = spool
        self._destination = destination
        self._rank = rank
        self._end_expired = end_expired
        self.rewind()

    @property
    def more(self) -> bool:
        return self._spool.newest(self._destination, self._rank) > self._read_up_to

    def fill(self, count: int) -> int:
        if self._expires_ms is not None and self._expires_ms <= self._spool.clock():
            self._keep_ahead(self._end_expired(self._ahead))
        for _ in range(_MOST_READS):
            missing = count - len(self._ahead)
            # Each read is bounded by text; calls that repeat it must not add up to a window of large events.
            if missing > 0 and self.more and self._characters < READ_CHARACTERS:
                self._read(max(missing, _READ_AHEAD))
            if self._ahead or not self.more:
                break
        return len(self._ahead)

    def rewind(self) -> None:
        self._keep_ahead([])
        self._read_up_to = BEFORE_EVERYTHING
        self.has_read_all = not self.more

    def append(self, pending: PendingDelivery) -> None:
        """Add the delivery that was stored last, while all before it have been read and there is room."""
        size = self._characters + len(pending.json)
        self.has_read_all = len(self._ahead) < _MOST_APPENDED and size <= _MOST_CHARACTERS_AHEAD
        if self.has_read_all:
            self._read_up_to = pending.delivery.sequence
            self._add(pending)

    def unsent(self) -> Iterator[PendingDelivery]:
        """Yield what is not in flight, the oldest first."""
        after = self._ahead[0].delivery.sequence - 1 if self._ahead else self._read_up_to
        while found := self._spool.read(self._destination, self._rank, after, _SLICE):
            yield from found
            after = found[-1].delivery.sequence

    def drop(self, deliveries: Set[Delivery]) -> None:
        """Forget `deliveries`, which end without being sent."""
        self._keep_ahead([pending for pending in self._ahead if pending.delivery not in deliveries])

    def _keep_ahead(self, kept: list[PendingDelivery]) -> None:
        self._ahead.clear()
        self._characters = 0
        self._expires_ms: int | None = None  # of the first one ahead that expires, or earlier
        self.added -= len(kept)
        for each in kept:
            self._add(each)

    def _add(self, pending: PendingDelivery) -> None:
        super()._add(pending)
        if pending.expires_ms is not None:
            self._expires_ms = min(self._expires_ms or pending.expires_ms, pending.expires_ms)

    def _read(self, count: int) -> None:
        found = self._spool.read(self._destination, self._rank, self._read_up_to, count)
        for each in self._end_expired(found):
            self._add(each)
        cut_short = len(found) == count or sum(len(each.json) for each in found) >= READ_CHARACTERS
        # Otherwise this was all, even if the newest deliveries are done and gone.
        newest = self._spool.newest(self._destination, self._rank)
        self._read_up_to = found[-1].delivery.sequence if cut_short else newest
        self.has_read_all = not self.more


class VolatileEvent(NamedTuple):
    """An event for `destination` that is not stored; `key` as in the spool.

    `accepted` is set once it is queued: its lifetime goes on in the queue of another spool.
    """

    destination: str
    type: str
    json: str
    key: bytes
    rank: int = BEST_EFFORT_RANK
    accepted: Uptime | None = None


Ended = Callable[[VolatileEvent, str | None], None]
"""Called with each event that ended, and the reason if it was not delivered."""


class VolatileQueue(DeliveryQueue):
    """The events for `destination` at `rank` that are only in memory: bounded, the oldest go first."""

    def __init__(self, destination: str, rank: int, ended: Ended) -> None:
        super().__init__()
        self._destination = destination
        self._rank = rank
        self._ended = ended
        self._events: dict[Delivery, VolatileEvent] = {}
        self._in_flight: dict[Delivery, PendingDelivery] = {}

    def put(self, event: VolatileEvent, clock: UptimeClock) -> None:
        """Add `event`; drop the oldest ones when there are too many."""
        delivery = Delivery(self._destination, self._rank, self.added + 1)
        accepted = event.accepted or clock.uptime()
        self._events[delivery] = event._replace(accepted=accepted)
        self._add(PendingDelivery(delivery, event.json, None, clock.at(accepted)))
        while len(self._ahead) > MOST_EVENTS or self._characters > MOST_CHARACTERS:
            self._drop_first(OVERFLOW)

    def take(self, count: int = 1) -> list[PendingDelivery]:
        taken = super().take(count)
        self._in_flight.update((each.delivery, each) for each in taken)
        return taken

    def in_flight(self, delivery: Delivery) -> PendingDelivery | None:
        """Return a delivery that is in flight; None when it has ended."""
        return self._in_flight.get(delivery)

    def end(self, delivery: Delivery, reason: str | None = None) -> None:
        """End a delivery that was made, or that was given up for a `reason`."""
        if self._in_flight.pop(delivery, None):
            self._ended(self._events.pop(delivery), reason)

    def rewind(self) -> None:
        """Give up what is in flight, which is never sent twice, unless it is urgent: that is queued again."""
        if self._rank == UNSTORED_RANK:
            again, self._in_flight = list(self._in_flight.values()), {}
            self._ahead.extendleft(reversed(again))
            self._characters += sum(len(each.json) for each in again)
        for delivery in list(self._in_flight):
            self.end(delivery, UNCONFIRMED)

    def take_all(self) -> list[VolatileEvent]:
        """Remove all events, those in flight as well, and return them, the oldest first."""
        events = list(self._events.values())
        self._events.clear()
        self._in_flight.clear()
        self._ahead.clear()
        self._characters = 0
        return events

    def clear(self) -> None:
        """Give up everything, because the connection is gone, unless it is urgent."""
        self.rewind()
        while self._ahead and self._rank != UNSTORED_RANK:
            self._drop_first(OFFLINE)

    def _drop_first(self, reason: str) -> None:
        (first,) = super().take()
        self._ended(self._events.pop(first.delivery), reason)


class DeliveryQueues:
    """The queues of every destination over `spool`, and the deliveries that end without being made.

    `discards` are kept until the next commit counts them; how volatile events ended is counted in `counts`.
    A repetition of an unstored event is sent only to destinations that it has not reached, as far as this
    process remembers: its sender gets a refusal and repeats it.
    """

    def __init__(self, spool: Spool, counts: Counts) -> None:
        self.discards: dict[Delivery, Discard] = {}
        self.spool = spool
        self._counts = counts
        self._cursors: dict[tuple[str, int], DeliveryCursor] = {}
        self._volatile: dict[tuple[str, int], VolatileQueue] = {}
        self._sent_unstored = LatestKeys(MOST_REMEMBERED)
        self._stored_to = spool.next_sequence

    def open(self, destination: str) -> dict[int, DeliveryQueue]:
        """Return new queues of `destination` by rank, the most urgent first, best effort last."""
        for each in Priority:
            cursor = DeliveryCursor(self.spool, destination, each.rank, self.end_expired)
            self._cursors[destination, each.rank] = cursor
        for rank in (UNSTORED_RANK, BEST_EFFORT_RANK):
            self._volatile[destination, rank] = VolatileQueue(destination, rank, self._ended)
        queues: dict[tuple[str, int], DeliveryQueue] = {**self._cursors, **self._volatile}
        return {rank: queues[to, rank] for to, rank in sorted(queues) if to == destination}

    def retire(self, destination: str) -> list[VolatileEvent]:
        """Remove the queues of `destination`; its pending deliveries stay in the spool.

        Return its urgent events that are only in memory: they, or repetitions of them, may be sent again.
        """
        self.clear(destination)
        for priority in Priority:
            del self._cursors[destination, priority.rank]
        del self._volatile[destination, BEST_EFFORT_RANK]
        urgent = self._volatile.pop((destination, UNSTORED_RANK)).take_all()
        for each in urgent:
            self._sent_unstored.discard(_mark(each))
        return urgent

    def stored(self, arrivals: Sequence[StoredEvent], uptime_ms: int) -> None:
        """Queue what was just committed at `uptime_ms`, so that it need not be read from the spool."""
        if not arrivals:
            return
        if arrivals[0].sequence != self._stored_to:
            for cursor in self._cursors.values():
                cursor.has_read_all = False  # deliveries were stored that were not appended
        self._stored_to = arrivals[-1].sequence + 1
        for each in arrivals:
            for destination, expires_ms in each.destinations.items():
                found = self._cursors.get((destination, each.rank))
                if found is not None and found.has_read_all:
                    delivery = Delivery(destination, each.rank, each.sequence)
                    found.append(PendingDelivery(delivery, each.json, expires_ms, uptime_ms))

    def send_volatile(self, events: Iterable[VolatileEvent], is_up: Callable[[str], bool]) -> None:
        """Queue `events`; give up those of best effort whose destination has no connection.

        Urgent ones are kept without a connection, because they may not be stored anywhere else.
        """
        for event in events:
            if event.rank == UNSTORED_RANK:
                mark = _mark(event)
                if mark in self._sent_unstored:
                    continue
                self._sent_unstored.add(mark)
            if event.rank == UNSTORED_RANK or is_up(event.destination):
                self._volatile[event.destination, event.rank].put(event, self.spool.clock)
            else:
                self._ended(event, OFFLINE)

    def take_unstored(self) -> list[VolatileEvent]:
        """Remove the urgent events that are only in memory, those in flight as well, and return them."""
        queues = [each for (_, rank), each in self._volatile.items() if rank == UNSTORED_RANK]
        return [event for each in queues for event in each.take_all()]

    def clear(self, destination: str | None = None) -> None:
        """Give up the volatile events for `destination` (None: for all), whose connection is gone."""
        for (to, _), queue in self._volatile.items():
            if destination in (None, to):
                queue.clear()

    def delivered(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """End `deliveries`, which were made; return those that have to end in the spool."""
        stored = []
        for each in deliveries:
            if queue := self._volatile.get((each.destination, each.rank)):
                queue.end(each)
            else:
                stored.append(each)
        return stored

    def end_volatile(self, delivery: Delivery, reason: str) -> bool:
        """End a delivery that was not made if it is volatile; return whether it is."""
        queue = self._volatile.get((delivery.destination, delivery.rank))
        if queue is not None:
            queue.end(delivery, reason)
        return queue is not None

    def find(self, delivery: Delivery) -> PendingDelivery | None:
        """Return a delivery that has been sent, with its event's text; None when it has ended."""
        if queue := self._volatile.get((delivery.destination, delivery.rank)):
            return queue.in_flight(delivery)
        found = self.spool.read(delivery.destination, delivery.rank, delivery.sequence - 1, 1)
        return found[0] if found and found[0].delivery == delivery else None

    def end_expired(self, found: Iterable[PendingDelivery]) -> list[PendingDelivery]:
        """End with the next commit what of `found` has expired; return what is still to be sent."""
        now_ms, waiting = self.spool.clock(), [each for each in found if each.delivery not in self.discards]
        over = [each for each in waiting if each.expires_ms is not None and each.expires_ms <= now_ms]
        for each in over:
            self.discard(each.delivery, Outcome.EXPIRED, why_expired(each))
        return [each for each in waiting if each.delivery not in self.discards] if over else waiting

    def discard(self, delivery: Delivery, outcome: Outcome, reason: str) -> None:
        """End `delivery` with the next commit."""
        self.discards[delivery] = Discard(delivery, outcome, reason)

    def withdraw(self, deliveries: Iterable[Delivery]) -> None:
        """Forget `deliveries`, which end without being sent."""
        ended = set(deliveries)
        for destination, rank in sorted({each[:2] for each in ended}):
            if cursor := self._cursors.get((destination, rank)):
                cursor.drop(ended)

    def evict(self, needed: Size, wanted: Size, least_rank: int) -> Size:
        """Drop the oldest events that are not in flight, the lowest priority first, down to `least_rank`.

        Return what they free, bytes being characters of text: `wanted` where there is so much, otherwise at
        least `needed`, otherwise nothing, and nothing is dropped.
        """
        freed = Size(0, 0)
        dropped: list[PendingDelivery] = []
        ranks = sorted((each.rank for each in Priority if each.rank >= least_rank), reverse=True)
        for event in chain.from_iterable(map(self._oldest, ranks)):
            freed = freed.plus(Size(len(event[0].json), len(event)))
            dropped += event
            if freed.covers(needed) and freed.covers(wanted):
                break
        if not freed.covers(needed):
            return Size(0, 0)
        for pending in self.end_expired(dropped):
            self.discard(pending.delivery, Outcome.DROPPED, SPOOL_FULL)
        self.withdraw(pending.delivery for pending in dropped)
        return freed

    def _oldest(self, rank: int) -> Iterator[list[PendingDelivery]]:
        """Yield events of one rank, each with all its deliveries that can be dropped."""
        # A destination that no route leads to any more has no cursor, and nothing in flight.
        queues = (
            self._cursors.get((each, rank)) or DeliveryCursor(self.spool, each, rank)
            for each in self.spool.destinations()
        )
        unsent = (each.unsent() for each in queues)
        for _, event in groupby(merge(*unsent, key=_sequence), key=_sequence):
            deliveries = [each for each in event if each.delivery not in self.discards]
            # Reports of losses must not be dropped.
            if deliveries and not is_irreplaceable(deliveries[0].json):
                yield deliveries

    def _ended(self, event: VolatileEvent, reason: str | None) -> None:
        if event.rank != UNSTORED_RANK:
            if reason is not None:
                self._counts.dropped(NotStored(event.destination, event.type, reason))
        elif reason is None:
            self._counts.delivered_unstored(NotStored(event.destination, event.type, SENT_UNSTORED))
        else:
            # Its refusal is counted already, and its sender repeats it.
            self._sent_unstored.discard(_mark(event))


class UplinkQueue:
    """The queues of one `destination` as the uplink reads them, and the groups to send again.

    Urgent events come first, low ones last, each priority in its order.
    """

    def __init__(self, queues: DeliveryQueues, destination: str) -> None:
        self._queues = queues
        self._destination = destination
        self._by_rank = queues.open(destination)
        self._unstored, self._urgent, *self._ordinary = self._by_rank.values()
        self._again: deque[tuple[Delivery, ...]] = deque()
        self._seen = [0] * len(self._ordinary)

    @property
    def more(self) -> bool:
        """True if more ordinary events wait than have been read ahead."""
        return any(queue.more for queue in self._ordinary)

    def fill(self, count: int) -> int:
        """Read ahead up to `count` ordinary events; return how many come next, of which some may be over."""
        found = 0
        for queue in self._ordinary:
            if not queue.empty:
                found += queue.fill(count - found)
                if queue.more or found >= count:
                    break  # lower priorities only when this one is empty
        return found

    def fresh(self) -> list[PendingDelivery]:
        """Return the ordinary events that were read ahead since the last call, and are not in flight."""
        found: list[PendingDelivery] = []
        for number, queue in enumerate(self._ordinary):
            found += queue.last(queue.added - self._seen[number])
            self._seen[number] = queue.added
        return found

    def urgent(self, count: int) -> Sequence[PendingDelivery]:
        """Return up to `count` urgent events that come next, unstored ones first."""
        if self._unstored.empty:
            return () if self._urgent.empty else self._urgent.peek(count)
        unstored = self._unstored.peek(count)
        return [*unstored, *self._urgent.peek(count - len(unstored))]

    def has_urgent(self) -> bool:
        """Return whether an urgent event, or anything that is sent once more, waits and has not expired."""
        self._urgent.fill(1)
        return bool(self._again) or not (self._unstored.empty and self._urgent.empty)

    def ordinary(self, count: int) -> Sequence[PendingDelivery]:
        """Return up to `count` ordinary events that come next, of those read ahead."""
        found: list[PendingDelivery] = []
        for queue in self._ordinary:
            found += queue.ahead(count - len(found))
            if queue.more or len(found) >= count:
                break  # lower priorities only when this one is empty
        return found

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Mark `deliveries`, which come next, as in flight."""
        for rank, count in Counter(each.rank for each in deliveries).items():
            self._by_rank[rank].take(count)

    def repeat(self, *groups: tuple[Delivery, ...]) -> None:
        """Send each of `groups` that is not empty once more, by itself: the urgent ones, then the others."""
        again = chain(filter(None, groups), self._again)
        self._again = deque(sorted(again, key=lambda group: group[0].rank > Priority.URGENT.rank))

    def repeated(self) -> list[PendingDelivery]:
        """Return the next group to send once more, without what has expired; it is in flight then."""
        while self._again:
            found = map(self._queues.find, self._again.popleft())
            if pending := self._queues.end_expired(filter(None, found)):
                return pending
        return []

    def rewind(self) -> None:
        """Start again from what the spool still holds, because the connection is gone."""
        self._again.clear()
        for queue in self._by_rank.values():
            queue.rewind()
        self._queues.clear(self._destination)


def _mark(event: VolatileEvent) -> bytes:
    return event.key + event.destination.encode()


def _sequence(pending: PendingDelivery) -> int:
    return pending.delivery.sequence
