"""Commits a batch, and keeps on when the disk is full.

Then the batch is taken again under more pressure until what is left of it finds room. What makes the room is
committed first, by itself: only ends of deliveries may use the spool's reserve, so beside arrivals they would
find no more room than these do. If even the ends find none, they are owed and tried again, while deliveries
go on. Nothing is acknowledged before.
"""

from __future__ import annotations

import logging
from collections import ChainMap, Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edge.counts import Counts
from edge.decision import Decider, SequenceNumber
from edge.delivery_queues import DeliveryQueues, VolatileEvent
from edge.errors import SpoolFullError
from edge.mailbox import Received
from edge.pressure import Pressure
from edge.reporter import Reporter, Reports
from edge.reports import NotStored
from edge.spool import Arrival, Delivery, Discard, Holding, Size, Spool
from eventplane.contract import Channel, Priority, WhenFull
from eventplane.delivery import Refusal
from eventplane.downlink.wire import Incoming
from eventplane.questions import HandlersQuestion, StateQuestion
from eventplane.receipts import Receipt

if TYPE_CHECKING:
    from edge.dispatch import Dispatcher

_log = logging.getLogger(__name__)

RETRY_S = 5.0
"""After how many seconds what found no room is tried again, and the spool asked whether there is any."""

TIDY_EVERY_S = 0.1
"""Seconds between two steps of housekeeping while there is more to do."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Bytes that somebody wants to be kept; with a `refusal` it is their dead letter.

    They came over or were meant for `address`; `channel` gives priority and `when_full`. `answer` is the
    service that gets a receipt, `ends` the delivery in whose place the dead letter comes.
    """

    payload: bytes
    address: str
    channel: Channel
    refusal: Refusal | None = None
    answer: str | None = None
    ends: Delivery | None = None


@dataclass(slots=True)
class Batch:
    """To commit at `life_ms` of the device's life: `arrivals`, numbered from `first_sequence`, the deliveries
    that are `done`, those to the cloud that became dead letters (`dead_lettered`), those `replaced` by other
    dead letters or by a newer state, and the `holdings` of the cloud's state. To send afterwards: the rest.

    `counted` has the last number of each counter as committed, `numbers` those of `arrivals`.

    `submissions` and `keys` (what is remembered as stored) allow for taking the batch again when the disk is
    full.
    `receipts` are by service, `refused` counts dead letters by channel address and reason, `turned_away` what
    found no room, `not_wanted` what its reader does not handle. `descents` came from the cloud, `descended`
    counts what became of them, `new_keys` and `new_characters` what is held in addition; `questions` of
    services are answered from what is committed.
    """

    first_sequence: int
    life_ms: int
    counted: dict[str, int]
    numbers: dict[str, int] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    done: list[Delivery] = field(default_factory=list)
    dead_lettered: list[Discard] = field(default_factory=list)
    replaced: list[Delivery] = field(default_factory=list)
    acknowledge: list[Received] = field(default_factory=list)
    fleeting: list[VolatileEvent] = field(default_factory=list)
    receipts: dict[str, list[Receipt]] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    turned_away: Counter[NotStored] = field(default_factory=Counter)
    not_wanted: Counter[NotStored] = field(default_factory=Counter)
    submissions: list[Submission] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    descents: list[Incoming] = field(default_factory=list)
    holdings: dict[tuple[str, str], Holding] = field(default_factory=dict)
    new_keys: int = 0
    new_characters: int = 0
    descended: Counter[str] = field(default_factory=Counter)
    contract_changed: bool = False
    uplink_interest_changed: bool = False
    questions: list[StateQuestion | HandlersQuestion] = field(default_factory=list)

    @property
    def slot(self) -> SequenceNumber:
        """What the next arrival gets."""
        counted = ChainMap(self.numbers, self.counted)
        return SequenceNumber(self.first_sequence + len(self.arrivals), self.life_ms, counted)

    def store(self, arrival: Arrival) -> None:
        """Take the `arrival` of the current `slot`."""
        self.arrivals.append(arrival)
        self.numbers.update(arrival.positions)


class CommitLoop:
    """Keeps what `dispatcher` and `reporter` make, in `spool`. Times are monotonic seconds."""

    def __init__(
        self, spool: Spool, outgoing: DeliveryQueues, pressure: Pressure, reporter: Reporter, counts: Counts
    ) -> None:
        self._spool = spool
        self._outgoing = outgoing
        self._pressure = pressure
        self._reporter = reporter
        self._counts = counts
        self._owed: list[Delivery] = []
        self._retry_at: float | None = None
        self._tidy_at: float | None = None
        self._full = False

    def begin(self) -> Batch:
        """A new batch."""
        self._pressure.begin()
        return Batch(self._spool.next_sequence, self._spool.life(), self._spool.counted)

    def keep(self, batch: Batch, dispatcher: Dispatcher, decider: Decider, now: float) -> Batch:
        """Commit `batch`; what became of it. Raises `SpoolError`, but not because there is no room."""
        batch.done[:0] = self._owed
        self._owed = []
        made = self._reports(batch, decider, now)
        while batch.arrivals or made.arrivals or (self._may_end(now) and self._has_ends(batch)):
            try:
                self._commit(batch, made)
            except SpoolFullError as error:
                self._note_full(error, now)
                if made.arrivals:
                    self._reporter.put_off(now)
                    made = Reports()
                elif batch.arrivals:
                    batch = self._taken_again(batch, dispatcher, now)
                else:
                    self._owe(batch)
                    self._retry_at = now + RETRY_S
                    break
            else:
                self._ended()
                self._counts.discarded(batch.dead_lettered)
                break
        else:
            self._owe(batch)
        dispatcher.kept(batch)
        self._counts.turned_away(batch.turned_away)
        self._counts.not_wanted(batch.not_wanted)
        self._reporter.stored(made, now)
        return batch

    def tidy(self, now: float) -> None:
        """A bounded step of the spool's housekeeping; after a refusal it finds out whether there is room."""
        if self._tidy_at is not None and now < self._tidy_at:
            return
        try:
            more = self._spool.tidy()
        except SpoolFullError as error:
            self._note_full(error, now)
            return
        self._tidy_at = now + TIDY_EVERY_S if more else None
        if self._full and self._spool.pressure >= 1.0:
            self._tidy_at = now + RETRY_S
        elif self._full:
            self._full = False
            _log.warning("the spool has room again")

    def deadline(self) -> float | None:
        """When there is something to do without a message."""
        due = [self._reporter.deadline()]
        if self._tidy_at is not None:
            due.append(self._tidy_at)
        if self._retry_at is not None:
            due.append(self._retry_at)
        elif self._outgoing.discards:
            due.append(0.0)  # what has expired is counted at once, and makes room
        return min(due)

    def _reports(self, batch: Batch, decider: Decider, now: float) -> Reports:
        made = self._reporter.due(decider, batch.slot, now)
        size = Size(
            sum(len(each.json) for each in made.arrivals),
            sum(len(each.destinations) for each in made.arrivals),
        )
        if made.arrivals and not self._pressure.admits(Priority.URGENT.rank, size, WhenFull.REFUSE):
            self._reporter.put_off(now)
            return Reports()
        return made

    def _taken_again(self, batch: Batch, dispatcher: Dispatcher, now: float) -> Batch:
        """What is left of `batch` under more pressure; what makes room for it has ended for good."""
        if self._may_end(now):
            self._pressure.tighten()
            batch = dispatcher.again(batch)
            if not batch.arrivals or self._end(batch, now):
                return batch
        self._pressure.close()
        return dispatcher.again(batch)

    def _end(self, batch: Batch, now: float) -> bool:
        """Commit what ends without a dead letter, without the arrivals; whether there was room for that."""
        try:
            self._spool.commit([], batch.done, self._outgoing.discards.values(), life_ms=batch.life_ms)
        except SpoolFullError:
            self._retry_at = now + RETRY_S
            return False
        batch.done.clear()
        self._ended()
        return True

    def _owe(self, batch: Batch) -> None:
        """End with a later commit what `batch` ends; its dead letters are stored already."""
        self._owed = [*batch.done, *batch.replaced]
        self._outgoing.discards.update({each.delivery: each for each in batch.dead_lettered})

    def _ended(self) -> None:
        """What was to end is on the disk."""
        self._retry_at = None
        self._counts.discarded(self._outgoing.discards.values())
        self._outgoing.discards.clear()

    def _may_end(self, now: float) -> bool:
        """Whether it is time to try again what found no room."""
        return self._retry_at is None or now >= self._retry_at

    def _has_ends(self, batch: Batch) -> bool:
        return bool(batch.done or batch.dead_lettered or batch.replaced or self._outgoing.discards)

    def _commit(self, batch: Batch, made: Reports) -> None:
        arrivals = [*batch.arrivals, *made.arrivals]
        self._spool.commit(
            arrivals,
            [*batch.done, *batch.replaced],
            [*self._outgoing.discards.values(), *batch.dead_lettered],
            life_ms=batch.life_ms,
            holdings=list(batch.holdings.values()),
            close_statements=made.manifest,
            close_discards=made.losses,
        )
        self._outgoing.stored(arrivals, batch.life_ms)

    def _note_full(self, error: SpoolFullError, now: float) -> None:
        if not self._full:
            _log.warning("%s", error)  # once: the same complaint over and over says nothing new
        self._full = True
        self._tidy_at = now + RETRY_S
