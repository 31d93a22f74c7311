"""Batches of received messages, the plans to commit them, and which events are admitted meanwhile.

A plan is made from a batch and thrown away when it cannot be committed: it depends on the room that there is
and on the next sequence number, the batch on neither.

| filled to | urgent | normal | low |
| --- | --- | --- | --- |
| below 70 % | taken | taken | taken |
| 70 % | taken | taken | the channel's `when_full` |
| 85 % | taken | the channel's `when_full` | the channel's `when_full` |
| 100 % | taken, in the place of low, then normal | `when_full` | `when_full` |

`refuse` leaves the event with its sender. `drop_oldest` stores it in the place of the oldest that is not more
urgent. The spool is filled to the larger share of its two capacities: bytes and pending deliveries. The steps
are 15 % apart: in the default spool 38 MB each, more than 100,000 readings, so that what is left to the next
priority lasts hours and not minutes.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from edge.counts import NotStored
from edge.decision import Decider, Decision, SequenceNumber
from edge.delivery_queues import DeliveryQueues, VolatileEvent
from edge.spool import Delivery, DeviceState, Discard, Size, StoredEvent
from edge.spool.store import Spool
from eventplane.contract import Channel, Priority, WhenFull
from eventplane.dead_letter import Refusal
from eventplane.reasons import Outcome, Reason
from eventplane.receipts import SPOOL_FULL, Receipt, digest
from eventplane.topics import OUTBOXES
from eventplane_mqtt.mailbox import Received

if TYPE_CHECKING:
    from eventplane.downlink.wire import Incoming

ROOM = {Priority.URGENT.rank: 1.0, Priority.NORMAL.rank: 0.85, Priority.LOW.rank: 0.70}
"""The share of the capacity up to which events of each rank are always admitted."""

OVERHEAD = 100
"""Bytes of an event in the file beyond its text: its numbers, an index entry, a share of a page."""

EVICTED_AT_ONCE = Size(256 * 1024, 256)
"""What is evicted at once, characters and deliveries, so that a flood does not read the spool's oldest events
for each new one."""

_SMALLEST_SHARE = 64
"""But at most one part in so many of the spool."""

_MOST_WEIGHT = 8
"""At most so many times the room of an event is made on a disk that has none. If that does not help, other
files are in the way, and more losses would not help either."""

_NOTHING = Size(0, 0)


class Pressure:
    """Admits events to `spool`, batch by batch, and makes room in `queues`."""

    def __init__(self, spool: Spool, queues: DeliveryQueues) -> None:
        self._spool = spool
        self._queues = queues
        space = spool.space
        self._at_once = Size(
            min(EVICTED_AT_ONCE.bytes, space.capacity_bytes // _SMALLEST_SHARE),
            min(EVICTED_AT_ONCE.deliveries, space.capacity_deliveries // _SMALLEST_SHARE),
        )
        self.begin()

    def begin(self) -> None:
        """Begin a batch with the spool's own figures."""
        self._growth = _NOTHING
        self._credit = _NOTHING
        self._weight = 0
        # In memory nothing is stored, so there is no use in trying.
        self._closed = not self._spool.is_on_disk

    def tighten(self) -> None:
        """Begin the batch again after the disk had no room: it is full, and events need twice the room."""
        weight = max(1, 2 * self._weight)
        self.begin()
        self._weight = weight
        self._closed |= weight > _MOST_WEIGHT

    def close(self) -> None:
        """Admit nothing of this batch, and evict nothing for it: there is no room at all."""
        self._closed = True

    def admits(self, rank: int, size: Size, when_full: WhenFull) -> bool:
        """Return whether an event of `size` (bytes: characters) is admitted; evict others where allowed."""
        if self._closed:
            return False
        size = Size(size.bytes + OVERHEAD, size.deliveries)
        lacking = self._lacking(rank, size)
        if any(lacking) and not self._makes_room(rank, lacking, when_full):
            return False
        self._growth = self._growth.plus(size)
        if any(self._credit):
            # An event that fits uses up the room of what was evicted, too.
            taken = zip(self._credit, size, lacking, strict=True)
            self._credit = Size(*(max(0, credit - max(each, lack)) for credit, each, lack in taken))
        return True

    def _lacking(self, rank: int, size: Size) -> Size:
        """Return the part of `size` for which there is no room yet."""
        space = self._spool.space
        # After a commit found no room only urgent events try again: they are worth the attempt, and if it
        # succeeds, nothing has to be evicted.
        refused = self._weight or (space.refused and rank != Priority.URGENT.rank)
        growth = self._growth
        fits = not refused and _fits(rank, size.bytes, space.used_bytes + growth.bytes, space.capacity_bytes)
        waiting = space.used_deliveries + growth.deliveries
        counts = _fits(rank, size.deliveries, waiting, space.capacity_deliveries)
        if fits and counts:
            return _NOTHING
        return Size(0 if fits else size.bytes * max(1, self._weight), 0 if counts else size.deliveries)

    def _makes_room(self, rank: int, lacking: Size, when_full: WhenFull) -> bool:
        urgent = rank == Priority.URGENT.rank
        if not urgent and when_full is not WhenFull.DROP_OLDEST:
            return False
        if not self._credit.covers(lacking):
            missing = lacking.minus(self._credit)
            wanted = Size(
                *(each if lack > 0 else 0 for lack, each in zip(missing, self._at_once, strict=True))
            )
            freed = self._queues.evict(missing, wanted, Priority.NORMAL.rank if urgent else rank)
            self._credit = self._credit.plus(freed)
            self._growth = self._growth.minus(freed)
        return self._credit.covers(lacking)


def _fits(rank: int, size: int, used: int, capacity: int) -> bool:
    return size == 0 or (used < ROOM[rank] * capacity and used + size <= capacity)


MOST_LETTERS, LETTERS_EVERY_MS = 100, 60_000
"""Dead letters of one outbox, or of all unknown ones, in so many milliseconds: what comes beyond is counted
and reported. Ours: enough to see what is wrong or to find a misspelt topic, too few to fill a spool."""


class Role(Enum):
    """The role of the messages on a topic of a service."""

    OUTBOX = auto()
    """Events that it sends."""
    INBOX_RECEIPTS = auto()
    """Confirmations of what it has taken from its inbox."""
    STATE_QUESTIONS = auto()
    """Questions for the current state of a key."""
    HANDLERS_QUESTIONS = auto()
    """Questions who handles an event."""
    ANNOUNCEMENTS = auto()
    """What it announces to handle."""


class Submission(NamedTuple):
    """Bytes to store; with a `refusal` they become a dead letter.

    They came over or were meant for `address`; `channel` gives priority and `when_full`. `answer` is the
    service that gets a receipt, `ends` the delivery whose place the dead letter takes.
    """

    payload: bytes
    address: str
    channel: Channel
    refusal: Refusal | None = None
    answer: str | None = None
    ends: Delivery | None = None

    def decide(self, decider: Decider, plan: Plan) -> Decision:
        """Return what becomes of it after what is in `plan`."""
        if self.refusal is None:
            return decider.accept(self.payload, self.channel, plan.next, plan.keys)
        return decider.refuse(self.payload, self.address, self.channel, self.refusal, plan.next, plan.keys)


@dataclass(slots=True)
class Batch:
    """The input of one turn: `submissions`, events from the cloud (`downlinks`), deliveries that are `done`.

    After the commit the messages in `acknowledge` are acknowledged, the `questions` of services to an
    inbox answered, and the messages for another thing that are dropped (`foreign`) counted, and whether the
    home's broker has forgotten our session (`session_lost`).
    """

    submissions: list[Submission] = field(default_factory=list)
    downlinks: list[Incoming] = field(default_factory=list)
    done: list[Delivery] = field(default_factory=list)
    acknowledge: list[Received] = field(default_factory=list)
    questions: list[tuple[Role, bytes, Channel]] = field(default_factory=list)
    session_lost: bool = False
    foreign: int = 0


@dataclass(slots=True)
class Plan:
    """The plan of a batch, numbered from `start` on.

    To commit: `arrivals`; the deliveries that end because they become dead letters (`dead_lettered` towards
    the cloud, `replaced` in the home, where also a newer state replaces), or whose dead letter finds no room
    (`dropped`); and the `states` of the cloud's state. `numbers` are the arrivals' in ordered inboxes.

    To do afterwards: remember `keys`, send `volatile` events and the `receipts` of each service, and count
    dead letters by address and reason (`refused`) and by outbox (`letters`), what is not stored (`rejected`),
    events that their reader does not handle (`not_wanted`), and what came down (`downlink_outcomes`).
    """

    start: SequenceNumber
    arrivals: list[StoredEvent] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    dead_lettered: list[Discard] = field(default_factory=list)
    replaced: list[Delivery] = field(default_factory=list)
    dropped: list[Discard] = field(default_factory=list)
    states: dict[tuple[str, str], DeviceState] = field(default_factory=dict)
    new_keys: int = 0
    new_characters: int = 0
    keys: set[bytes] = field(default_factory=set)
    volatile: list[VolatileEvent] = field(default_factory=list)
    receipts: dict[str, list[Receipt]] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    letters: Counter[str] = field(default_factory=Counter)
    rejected: Counter[NotStored] = field(default_factory=Counter)
    not_wanted: Counter[NotStored] = field(default_factory=Counter)
    downlink_outcomes: Counter[str] = field(default_factory=Counter)
    contract_changed: bool = False
    uplink_interest_changed: bool = False

    @property
    def next(self) -> SequenceNumber:
        """The number of the next arrival."""
        sequence, uptime_ms, counted = self.start
        numbers = ChainMap(self.numbers, counted) if self.numbers else counted  # type: ignore[arg-type]
        return SequenceNumber(sequence + len(self.arrivals), uptime_ms, numbers)

    def store(self, arrival: StoredEvent) -> None:
        """Add the `arrival` with the number `next`."""
        self.arrivals.append(arrival)
        self.numbers.update(arrival.positions)


class Batcher:
    """Plans batches by what `decider` decides for each event; `uplink` is the device's outbox."""

    def __init__(self, decider: Decider, uplink: Channel) -> None:
        self._decider = decider
        self._uplink = uplink
        self._letters = Counter[str]()
        self._letters_until_ms = 0

    def add(self, submission: Submission, plan: Plan, pressure: Pressure) -> None:
        """Add to `plan` what becomes of `submission` where `pressure` leaves room."""
        decision = submission.decide(self._decider, plan)
        refused, counted_as = decision.refused, submission.address
        if submission.refusal and submission.refusal.reason == Reason.UNKNOWN_CHANNEL:
            counted_as = OUTBOXES  # all unknown outboxes together
        is_new = decision.arrival is not None and submission.ends is None
        if refused is not None and is_new and self._is_flooded(counted_as, plan):
            plan.rejected[NotStored(counted_as, "", refused)] += 1
        elif decision.arrival is not None and not _finds_room(submission, decision.arrival, pressure):
            refused = SPOOL_FULL
            plan.volatile.extend(decision.unstored)
            if submission.ends is None:
                plan.rejected[NotStored(counted_as, decision.type, SPOOL_FULL)] += 1
        else:
            plan.volatile.extend(decision.volatile)
            for address in decision.unwanted:
                plan.not_wanted[NotStored(address, decision.type, Reason.NO_INTEREST)] += 1
            if decision.arrival is not None:
                plan.store(decision.arrival)
            if decision.key is not None:
                plan.keys.add(decision.key)
            if refused is not None:
                plan.refused[submission.address, refused] += 1
                plan.letters[counted_as] += is_new
        self._end(submission, refused, plan)
        if submission.answer is not None:
            answers = plan.receipts.setdefault(submission.answer, [])
            answers.append(Receipt(digest(submission.payload), refused))

    def committed(self, plan: Plan) -> None:
        """Count the dead letters of `plan`; the first after an interval begins the next one."""
        if plan.letters and plan.start.uptime_ms >= self._letters_until_ms:
            self._letters.clear()
            self._letters_until_ms = plan.start.uptime_ms + LETTERS_EVERY_MS
        self._letters.update(plan.letters)

    def _is_flooded(self, outbox: str, plan: Plan) -> bool:
        """Return whether `outbox` has used up the dead letters of the present interval."""
        is_past = plan.start.uptime_ms >= self._letters_until_ms
        return plan.letters[outbox] + (0 if is_past else self._letters[outbox]) >= MOST_LETTERS

    def _end(self, submission: Submission, refused: str | None, plan: Plan) -> None:
        if submission.ends is None or submission.refusal is None:
            return
        if refused == SPOOL_FULL:
            plan.dropped.append(Discard(submission.ends, Outcome.DROPPED, SPOOL_FULL))
        elif submission.ends.destination == self._uplink.address:
            # Reported, or the audit would take it for acknowledged by the cloud.
            reason = submission.refusal.reason
            plan.dead_lettered.append(Discard(submission.ends, Outcome.DEAD_LETTERED, reason))
        else:
            plan.replaced.append(submission.ends)


def _finds_room(submission: Submission, arrival: StoredEvent, pressure: Pressure) -> bool:
    size = Size(len(arrival.json), len(arrival.destinations))
    if submission.ends is None:
        return pressure.admits(arrival.rank, size, submission.channel.when_full)
    # A dead letter in the place of a delivery takes little more than that leaves.
    more = size._replace(deliveries=size.deliveries - 1)
    return pressure.admits(Priority.URGENT.rank, more, submission.channel.when_full)
