"""Commits batches, also when the disk is full.

On a full disk the batch is planned again under more pressure until the rest of it finds room. The ends of
deliveries that make the room are committed first, without arrivals, because only such a commit may use the
spool's reserve. If even that finds no room, the ends are deferred and tried again, while deliveries go on.
Nothing is acknowledged before its commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from edge.counts import WAITED_FOR_ANOTHER, Counts
from edge.decision import Decider, SequenceNumber
from edge.delivery_queues import DeliveryQueues
from edge.errors import SpoolFullError
from edge.numbering import RecentKeys
from edge.planning import Batch, Batcher, Plan, Pressure
from edge.reports import Reporter, Reports
from edge.spool import Delivery, Discard, Size
from edge.spool.store import Spool
from eventplane.contract import Priority, WhenFull

if TYPE_CHECKING:
    from edge.downlink import DownlinkReceiver

_log = logging.getLogger(__name__)

RETRY_S = 5.0
"""Seconds until a commit that found no room is tried again, and the spool is asked whether there is any."""

TIDY_EVERY_S = 0.1
"""Seconds between two steps of housekeeping while there is more to do."""

BUSY_PER_S = 100.0
"""Messages a second from which a commit waits for more. Ours: below, a commit for each costs little."""

LINGER_S = 0.025
"""How long it waits. Ours: at 500 messages a second a dozen share one commit, and none is much later."""

_WINDOW_S = 0.1
_HOLD_OFF_S = 10.0

_HELD_UP = 1 / 3
"""What part of the messages still comes when lingering holds their senders up. Ours: a seventh of those of
requests one after the other, and all of those of sensors."""


class GroupCommit:
    """Decides how long to wait for more messages before a commit. Times are monotonic seconds.

    Lingering holds up senders that wait for a receipt or a reply before they send on: where much less comes
    because of it, it stops for a while. An urgent message ends the wait (`eventplane_mqtt.mailbox`).
    """

    def __init__(self) -> None:
        self.linger_s = 0.0
        self._since = 0.0
        self._count = 0
        self._rate_without = 0.0

    def note(self, messages: int, now: float) -> None:
        """Note how many messages the turn brought that begins `now`."""
        elapsed = now - self._since
        if elapsed < 0.0:  # it has just stopped lingering
            return
        self._count += messages
        if elapsed < _WINDOW_S:
            return
        rate = self._count / elapsed
        self._since, self._count = now, 0
        if self.linger_s and rate < self._rate_without * _HELD_UP:
            self.linger_s, self._since = 0.0, now + _HOLD_OFF_S
            return
        if not self.linger_s:
            self._rate_without = rate
        self.linger_s = LINGER_S if rate >= BUSY_PER_S else 0.0


class ContractParts(NamedTuple):
    """The parts that follow a contract: they say what becomes of a batch.

    `receiver` is made for the first events that come down from the cloud.
    """

    decider: Decider
    planner: Batcher
    receiver: Callable[[], DownlinkReceiver]


class CommitLoop:
    """Commits to `spool` what batches and `reporter` bring, and remembers it in `recent`.

    Owns the `pressure` on the spool and the ends of deliveries in `queues`. Times are monotonic seconds.
    """

    def __init__(
        self,
        spool: Spool,
        queues: DeliveryQueues,
        pressure: Pressure,
        recent: RecentKeys,
        reporter: Reporter,
        counts: Counts,
    ) -> None:
        self._spool = spool
        self._queues = queues
        self._pressure = pressure
        self._recent = recent
        self._reporter = reporter
        self._counts = counts
        self._deferred_ends: list[Delivery] = []
        self._retry_at: float | None = None
        self._tidy_at: float | None = None
        self._full = False

    def commit(self, batch: Batch, by: ContractParts, now: float) -> Plan:
        """Commit `batch` and return what became of it. Raises `SpoolError`, but not for want of room."""
        ends = [*self._deferred_ends, *batch.done]
        self._deferred_ends = []
        self._pressure.begin()
        plan = self._plan(batch, by)
        made = self._reports(plan, by.decider, now)
        while plan.arrivals or made.arrivals or (self._may_end(now) and any(self._ends(plan, ends))):
            try:
                self._store(plan, ends, made)
            except SpoolFullError as error:
                self._note_full(error, now)
                if made.arrivals:
                    self._reporter.put_off(now)
                    made = Reports()
                elif plan.arrivals:
                    plan = self._plan_less(batch, by, ends, now)
                else:
                    self._retry_at = now + RETRY_S
                    self._defer_ends(plan, ends)
                    break
            else:
                self._ended([*plan.dropped, *plan.dead_lettered])
                break
        else:
            self._defer_ends(plan, ends)
        self._remember(plan)
        by.planner.committed(plan)
        if plan.states:
            self._queues.withdraw(plan.replaced)
        if batch.session_lost:
            self._counts.session_lost()
        if batch.foreign:
            self._counts.lost(WAITED_FOR_ANOTHER, batch.foreign)
            text = "%d message(s) dropped that had waited at the home's broker for another thing"
            _log.error(text, batch.foreign)
        self._counts.rejected(plan.rejected)
        self._counts.not_wanted(plan.not_wanted)
        self._reporter.stored(made, now)
        return plan

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
        if self._full and self._spool.space.pressure >= 1.0:
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
        elif self._queues.discards:
            due.append(0.0)  # what has expired is counted at once, and makes room
        return min(due)

    def _plan(self, batch: Batch, by: ContractParts) -> Plan:
        spool = self._spool
        plan = Plan(SequenceNumber(spool.next_sequence, spool.clock(), spool.counted))
        for each in batch.submissions:
            by.planner.add(each, plan, self._pressure)
        if batch.downlinks:
            by.receiver().judge(batch.downlinks, plan)
        return plan

    def _reports(self, plan: Plan, decider: Decider, now: float) -> Reports:
        made = self._reporter.due(decider, plan.next, now)
        size = Size(
            sum(len(each.json) for each in made.arrivals),
            sum(len(each.destinations) for each in made.arrivals),
        )
        if made.arrivals and not self._pressure.admits(Priority.URGENT.rank, size, WhenFull.REFUSE):
            self._reporter.put_off(now)
            return Reports()
        return made

    def _plan_less(self, batch: Batch, by: ContractParts, ends: list[Delivery], now: float) -> Plan:
        """Plan `batch` under more pressure; what makes room for it is ended for good, and so are `ends`."""
        if self._may_end(now):
            self._pressure.tighten()
            plan = self._plan(batch, by)
            if not plan.arrivals or self._end(plan, ends, now):
                return plan
        self._pressure.close()
        return self._plan(batch, by)

    def _end(self, plan: Plan, ends: list[Delivery], now: float) -> bool:
        """Commit the ends that need no dead letter, without the arrivals; return whether there was room."""
        discards = [*self._queues.discards.values(), *plan.dropped]
        try:
            self._spool.commit([], ends, discards, uptime_ms=plan.start.uptime_ms)
        except SpoolFullError:
            self._retry_at = now + RETRY_S
            return False
        ends.clear()
        self._ended(plan.dropped)
        plan.dropped.clear()
        return True

    def _defer_ends(self, plan: Plan, ends: list[Delivery]) -> None:
        """End with a later commit what `plan` ends; its dead letters are stored already."""
        self._deferred_ends = [*ends, *plan.replaced]
        more = (*plan.dropped, *plan.dead_lettered)
        self._queues.discards.update({each.delivery: each for each in more})

    def _remember(self, plan: Plan) -> None:
        for key in plan.keys:
            self._recent.add(key)
        for each in plan.arrivals:
            if each.rank == Priority.URGENT.rank:
                self._recent.add_urgent(each.key)

    def _ended(self, discards: Iterable[Discard]) -> None:
        """The pending ends and `discards` are on the disk."""
        self._retry_at = None
        self._counts.discarded(self._queues.discards.values())
        self._counts.discarded(discards)
        self._queues.discards.clear()

    def _may_end(self, now: float) -> bool:
        """Whether it is time to try again what found no room."""
        return self._retry_at is None or now >= self._retry_at

    def _ends(self, plan: Plan, ends: list[Delivery]) -> tuple[list[Delivery], list[Discard]]:
        """Return the deliveries that are to end: those that were made or replaced, and the others."""
        discards = [*self._queues.discards.values(), *plan.dropped, *plan.dead_lettered]
        return [*ends, *plan.replaced], discards

    def _store(self, plan: Plan, ends: list[Delivery], made: Reports) -> None:
        arrivals = [*plan.arrivals, *made.arrivals]
        self._spool.commit(
            arrivals,
            *self._ends(plan, ends),
            uptime_ms=plan.start.uptime_ms,
            states=list(plan.states.values()),
            close_manifests=made.manifest,
            close_loss_reports=made.losses,
        )
        self._queues.stored(arrivals, plan.start.uptime_ms)

    def _note_full(self, error: SpoolFullError, now: float) -> None:
        if not self._full:
            _log.warning("%s", error)  # once, not at each retry
        self._full = True
        self._tidy_at = now + RETRY_S
