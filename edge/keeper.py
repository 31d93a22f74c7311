"""Commits a turn, and keeps on when the disk is full.

Then the turn is taken again under more pressure until what is left of it finds room. What makes the room is
committed first, by itself: only ends of deliveries may use the spool's reserve, so beside arrivals they would
find no more room than these do. If even the ends find none, they are owed and tried again, while deliveries
go on. Nothing is acknowledged before.
"""

from __future__ import annotations

import logging

from edge.counts import Counts
from edge.delivery_queues import DeliveryQueues
from edge.errors import SpoolFullError
from edge.intake import Intake
from edge.pressure import Pressure
from edge.reception import Reception
from edge.reporter import Reporter, Reports
from edge.spool import Delivery, Size, Spool
from edge.turn import Turn
from eventplane.contract import Priority, WhenFull

_log = logging.getLogger(__name__)

RETRY_S = 5.0
"""After how many seconds what found no room is tried again, and the spool asked whether there is any."""

TIDY_EVERY_S = 0.1
"""Seconds between two steps of housekeeping while there is more to do."""


class Keeper:
    """Keeps what `reception` and `reporter` make, in `spool`. Times are monotonic seconds."""

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

    def begin(self) -> Turn:
        """A new turn."""
        self._pressure.begin()
        return Turn(self._spool.next_sequence, self._spool.life(), self._spool.counted)

    def keep(self, turn: Turn, reception: Reception, intake: Intake, now: float) -> Turn:
        """Commit `turn`; what became of it. Raises `SpoolError`, but not because there is no room."""
        turn.done[:0] = self._owed
        self._owed = []
        made = self._reports(turn, intake, now)
        while turn.arrivals or made.arrivals or (self._may_end(now) and self._has_ends(turn)):
            try:
                self._commit(turn, made)
            except SpoolFullError as error:
                self._note_full(error, now)
                if made.arrivals:
                    self._reporter.put_off(now)
                    made = Reports()
                elif turn.arrivals:
                    turn = self._taken_again(turn, reception, now)
                else:
                    self._owe(turn)
                    self._retry_at = now + RETRY_S
                    break
            else:
                self._ended()
                self._counts.discarded(turn.dead_lettered)
                break
        else:
            self._owe(turn)
        reception.kept(turn)
        self._counts.turned_away(turn.turned_away)
        self._counts.not_wanted(turn.not_wanted)
        self._reporter.stored(made, now)
        return turn

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

    def _reports(self, turn: Turn, intake: Intake, now: float) -> Reports:
        made = self._reporter.due(intake, turn.slot, now)
        size = Size(
            sum(len(each.json) for each in made.arrivals),
            sum(len(each.destinations) for each in made.arrivals),
        )
        if made.arrivals and not self._pressure.admits(Priority.URGENT.rank, size, WhenFull.REFUSE):
            self._reporter.put_off(now)
            return Reports()
        return made

    def _taken_again(self, turn: Turn, reception: Reception, now: float) -> Turn:
        """What is left of `turn` under more pressure; what makes room for it has ended for good."""
        if self._may_end(now):
            self._pressure.tighten()
            turn = reception.again(turn)
            if not turn.arrivals or self._end(turn, now):
                return turn
        self._pressure.close()
        return reception.again(turn)

    def _end(self, turn: Turn, now: float) -> bool:
        """Commit what ends without a dead letter, without the arrivals; whether there was room for that."""
        try:
            self._spool.commit([], turn.done, self._outgoing.discards.values(), life_ms=turn.life_ms)
        except SpoolFullError:
            self._retry_at = now + RETRY_S
            return False
        turn.done.clear()
        self._ended()
        return True

    def _owe(self, turn: Turn) -> None:
        """End with a later commit what `turn` ends; its dead letters are stored already."""
        self._owed = [*turn.done, *turn.replaced]
        self._outgoing.discards.update({each.delivery: each for each in turn.dead_lettered})

    def _ended(self) -> None:
        """What was to end is on the disk."""
        self._retry_at = None
        self._counts.discarded(self._outgoing.discards.values())
        self._outgoing.discards.clear()

    def _may_end(self, now: float) -> bool:
        """Whether it is time to try again what found no room."""
        return self._retry_at is None or now >= self._retry_at

    def _has_ends(self, turn: Turn) -> bool:
        return bool(turn.done or turn.dead_lettered or turn.replaced or self._outgoing.discards)

    def _commit(self, turn: Turn, made: Reports) -> None:
        self._spool.commit(
            [*turn.arrivals, *made.arrivals],
            [*turn.done, *turn.replaced],
            [*self._outgoing.discards.values(), *turn.dead_lettered],
            life_ms=turn.life_ms,
            holdings=list(turn.holdings.values()),
            close_statements=made.manifest,
            close_discards=made.losses,
        )

    def _note_full(self, error: SpoolFullError, now: float) -> None:
        if not self._full:
            _log.warning("%s", error)  # once: the same complaint over and over says nothing new
        self._full = True
        self._tidy_at = now + RETRY_S
