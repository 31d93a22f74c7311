"""Batches of received messages, and the plans to commit them.

A plan is made from a batch and thrown away when it cannot be committed: it depends on the room that there is
and on the next sequence number, the batch on neither.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from edge.counts import NotStored
from edge.decision import Decider, Decision, SequenceNumber
from edge.delivery_queues import VolatileEvent
from edge.pressure import Pressure
from edge.spool import Delivery, DeviceState, Discard, Size, StoredEvent
from eventplane.contract import Channel, Priority
from eventplane.dead_letter import Refusal
from eventplane.reasons import Outcome, Reason
from eventplane.receipts import SPOOL_FULL, Receipt, digest
from eventplane.topics import OUTBOXES
from eventplane_mqtt.mailbox import Received

if TYPE_CHECKING:
    from eventplane.downlink.wire import Incoming

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
        self._letters_since_ms = 0

    def add(self, submission: Submission, plan: Plan, pressure: Pressure) -> None:
        """Add to `plan` what becomes of `submission` where `pressure` leaves room."""
        decision = self._decide(submission, plan)
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
        """Count the dead letters of `plan`."""
        self._letters.update(plan.letters)

    def _is_flooded(self, outbox: str, plan: Plan) -> bool:
        """Return whether `outbox` has used up the dead letters of the present interval."""
        if plan.start.uptime_ms >= self._letters_since_ms + LETTERS_EVERY_MS:
            self._letters.clear()
            self._letters_since_ms = plan.start.uptime_ms
        return self._letters[outbox] + plan.letters[outbox] >= MOST_LETTERS

    def _decide(self, submission: Submission, plan: Plan) -> Decision:
        payload, channel = submission.payload, submission.channel
        if submission.refusal is None:
            return self._decider.accept(payload, channel, plan.next, plan.keys)
        return self._decider.refuse(
            payload, submission.address, channel, submission.refusal, plan.next, plan.keys
        )

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
