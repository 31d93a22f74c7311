"""What one batch of the loop takes in, before its commit."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from edge.commit import Batch, Submission
from edge.decision import Decider, Decision
from edge.delivery_queues import DeliveryQueues
from edge.downlink import DownlinkReceiver
from edge.inbox import InboxPump
from edge.interest import Interest
from edge.mailbox import LinkName, Received
from edge.numbering import RecentKeys
from edge.pressure import Pressure
from edge.reports import NotStored
from edge.spool import Discard, Size, Waiting
from eventplane.contract import Channel, Contract, ParticipantKind, Priority
from eventplane.conversation.attributes import EXPIRY_TIME
from eventplane.delivery import DEAD_LETTER_TYPE, Outcome, Refusal
from eventplane.downlink.errors import DownlinkError
from eventplane.downlink.wire import received
from eventplane.envelope import EnvelopeError, parse_event
from eventplane.expiry import BY_EVENT
from eventplane.interest import NO_INTEREST
from eventplane.questions import QuestionError, read_handlers_question, read_state_question
from eventplane.receipts import SPOOL_FULL, Receipt, ReceiptError, digest, read_receipts
from eventplane.topics import (
    handlers_topic,
    interest_topic,
    is_outbox_topic,
    local_topic,
    receipt_topic,
    state_topic,
)

_log = logging.getLogger(__name__)

NO_WORD = "refused"
"""The reason of a dead letter whose service gave none that can be routed and counted."""

_LETTER_BYTES = 4096
"""What is kept of a dead letter that is refused: if it was too large, its own must be smaller."""

_SMALL_BYTES = 10 * 1024
"""No dead letter of `_LETTER_BYTES` is larger: one that is refused as well was not too large."""

_WORD = re.compile(r"[\w.-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Outbox:
    """Messages on this topic are events that a service sends."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class InboxReceipts:
    """Messages on this topic confirm what a service has taken from its inbox."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class StateQuestions:
    """On this topic the service with this inbox asks for the current state of a key."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class HandlersQuestions:
    """On this topic the service with this inbox asks who handles an event."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class Announcements:
    """On this topic the service with this inbox announces what it handles."""

    channel: Channel


Role = Outbox | InboxReceipts | StateQuestions | HandlersQuestions | Announcements


def local_topics(contract: Contract) -> dict[str, Role]:
    """The topics to subscribe to, with what they carry."""
    topics: dict[str, Role] = {}
    for service in contract.of_kind(ParticipantKind.DEVICE_SERVICE):
        topics[local_topic(service.name, service.outbox.box)] = Outbox(service.outbox)
        topics[state_topic(service.name)] = StateQuestions(service.inbox)
        topics[interest_topic(service.name)] = Announcements(service.inbox)
        topics[handlers_topic(service.name)] = HandlersQuestions(service.inbox)
        for channel in (service.inbox, service.replies):
            if channel is not None and channel.receipts:
                topics[receipt_topic(service.name, channel.box)] = InboxReceipts(channel)
    return topics


class Dispatcher:
    """Takes messages of both brokers into a `Batch`: services' events, questions and receipts for `inboxes`,
    what they announce to `interest`, and what came down, which `descent` judges.

    `pressure` says what finds room, `recent` remembers what did, `outgoing` ends what cannot be kept.
    """

    def __init__(
        self,
        contract: Contract,
        decider: Decider,
        inboxes: Mapping[str, InboxPump],
        pressure: Pressure,
        recent: RecentKeys,
        outgoing: DeliveryQueues,
        descent: DownlinkReceiver,
        interest: Interest,
    ) -> None:
        self._topics = local_topics(contract)
        self._device = contract.device
        self._decider = decider
        self._inboxes = inboxes
        self._pressure = pressure
        self._recent = recent
        self._outgoing = outgoing
        self._descent = descent
        self._interest = interest

    def take(self, message: Received, batch: Batch) -> None:
        """Whatever the message is, it is acknowledged once the batch is committed."""
        batch.acknowledge.append(message)
        if message.link is LinkName.CLOUD:
            self._take_descent(message.payload, batch)
            return
        role = self._topics.get(message.topic)
        if role is None:
            self._take_stray(message, batch)
        elif isinstance(role, InboxReceipts):
            self._take_receipts(message.payload, role.channel, batch)
        elif isinstance(role, Announcements):
            channel = role.channel
            self._interest.take(
                channel.participant,
                channel.address,
                message.payload,
                message.generation,
                retained=message.retained,
            )
        elif isinstance(role, StateQuestions | HandlersQuestions):
            self._take_question(message.payload, role, batch)
        else:
            channel = role.channel
            self._take_submission(
                Submission(message.payload, channel.address, channel, answer=channel.participant), batch
            )

    def close(self, batch: Batch) -> None:
        """All that belongs to `batch` was taken."""
        self._descent.judge(batch)

    def kept(self, batch: Batch) -> None:
        """The batch is committed."""
        self._recent.settle()
        if batch.holdings:
            self._outgoing.withdraw(batch.replaced)

    def give_up(self, waiting: Waiting, channel: Channel, refusal: Refusal, batch: Batch) -> None:
        """A delivery over `channel` that can never succeed ends, and becomes a dead letter.

        A dead letter becomes a small one; whoever refuses that as well would refuse them for ever, so it is
        dropped and counted.
        """
        original = waiting.json.encode("utf-8")
        if _is_dead_letter(waiting.json):
            if len(original) <= _SMALL_BYTES:
                _log.warning("a dead letter over %s is dropped: %s", channel.address, refusal.reason)
                self._outgoing.discard(waiting.delivery, Outcome.DROPPED, refusal.reason)
                return
            original = original[:_LETTER_BYTES]
        submission = Submission(original, channel.address, channel, refusal, ends=waiting.delivery)
        self._take_submission(submission, batch)

    def again(self, batch: Batch) -> Batch:
        """`batch` as it is under the pressure of now: what it had taken in is judged and numbered anew."""
        for key in batch.keys:
            self._recent.forget(key)
        retry = Batch(
            batch.first_sequence,
            batch.life_ms,
            batch.counted,
            done=batch.done,
            acknowledge=batch.acknowledge,
            descents=batch.descents,
            questions=batch.questions,
        )
        for submission in batch.submissions:
            self._take_submission(submission, retry)
        self.close(retry)
        return retry

    def _take_submission(self, submission: Submission, batch: Batch) -> None:
        batch.submissions.append(submission)
        decision = self._decision(submission, batch)
        refused = decision.refused
        if decision.arrival is not None and not self._finds_room(submission, decision):
            refused = SPOOL_FULL
            batch.fleeting.extend(decision.unstored)
            if submission.ends is None:
                batch.turned_away[NotStored(submission.address, decision.type, SPOOL_FULL)] += 1
        else:
            self._keep(decision, batch)
            if refused is not None:
                batch.refused[submission.address, refused] += 1
        self._end(submission, refused, batch)
        if submission.answer is not None:
            batch.receipts.setdefault(submission.answer, []).append(
                Receipt(digest(submission.payload), refused)
            )

    def _decision(self, submission: Submission, batch: Batch) -> Decision:
        if submission.refusal is None:
            return self._decider.accept(submission.payload, submission.channel, batch.slot)
        return self._decider.refuse(
            submission.payload, submission.address, submission.channel, submission.refusal, batch.slot
        )

    def _finds_room(self, submission: Submission, decision: Decision) -> bool:
        assert decision.arrival is not None  # noqa: S101 - the caller has asked
        size = Size(len(decision.arrival.json), len(decision.arrival.destinations))
        if submission.ends is None:
            return self._pressure.admits(decision.arrival.rank, size, submission.channel.when_full)
        # A dead letter in the place of a delivery takes little more than that leaves.
        more = size._replace(deliveries=size.deliveries - 1)
        return self._pressure.admits(Priority.URGENT.rank, more, submission.channel.when_full)

    def _keep(self, decision: Decision, batch: Batch) -> None:
        batch.fleeting.extend(decision.fleeting)
        for address in decision.unwanted:
            batch.not_wanted[NotStored(address, decision.type, NO_INTEREST)] += 1
        if decision.arrival is not None:
            batch.store(decision.arrival)
        if decision.key is not None:
            self._recent.add(decision.key)
            batch.keys.append(decision.key)

    def _end(self, submission: Submission, refused: str | None, batch: Batch) -> None:
        if submission.ends is None or submission.refusal is None:
            return
        if refused == SPOOL_FULL:
            self._outgoing.discard(submission.ends, Outcome.DROPPED, SPOOL_FULL)
        elif submission.ends.destination == self._device.outbox.address:
            # Reported, or the audit would take it for acknowledged by the cloud.
            batch.dead_lettered.append(
                Discard(submission.ends, Outcome.DEAD_LETTERED, submission.refusal.reason)
            )
        else:
            batch.replaced.append(submission.ends)

    def _take_stray(self, message: Received, batch: Batch) -> None:
        """A subscription of an earlier contract, which the broker's session remembers."""
        if is_outbox_topic(message.topic):
            refusal = Refusal("unknown_channel", "no box of the contract has this topic")
            self._take_submission(
                Submission(message.payload, message.topic, self._device.outbox, refusal), batch
            )
        else:
            # Receipts, questions, announcements: nobody's events, and services go on with them for ever.
            _log.warning("a message on %s ignored: the contract in force has no use for it", message.topic)

    def _take_descent(self, payload: bytes, batch: Batch) -> None:
        """What names no key cannot be answered: a dead letter tells of it."""
        try:
            batch.descents.append(received(parse_event(payload)))
        except (EnvelopeError, DownlinkError) as error:
            inbox = self._device.inbox
            refusal = Refusal(error.reason, error.detail)
            self._take_submission(Submission(payload, inbox.address, self._device.outbox, refusal), batch)

    def _take_question(self, payload: bytes, role: StateQuestions | HandlersQuestions, batch: Batch) -> None:
        read = read_state_question if isinstance(role, StateQuestions) else read_handlers_question
        try:
            batch.questions.append(read(payload, role.channel.address))
        except QuestionError as error:
            _log.warning("a question of %s ignored: %s", role.channel.participant, error)

    def _take_receipts(self, payload: bytes, channel: Channel, batch: Batch) -> None:
        inbox = self._inboxes.get(channel.address)
        if inbox is None:
            return
        try:
            receipts = read_receipts(payload)
        except ReceiptError as error:
            _log.warning("receipts of %s ignored: %s", channel.address, error)
            return
        for receipt in receipts:
            for ended in inbox.receipted(receipt):
                self._take_receipt(receipt, ended, inbox, batch)

    def _take_receipt(self, receipt: Receipt, ended: Waiting, inbox: InboxPump, batch: Batch) -> None:
        if receipt.refused == Outcome.EXPIRED and _can_expire(ended.json):
            if not self._outgoing.lose(ended.delivery, BY_EVENT):
                self._outgoing.discard(ended.delivery, Outcome.EXPIRED, BY_EVENT)
            return
        stored = self._outgoing.delivered([ended.delivery])
        if receipt.refused is None:
            batch.done.extend(stored)
            return
        channel = inbox.channel
        self.give_up(ended, channel, _refusal(receipt.refused, channel.participant), batch)


def _is_dead_letter(json: str) -> bool:
    # Others may speak of the type: only the event's own counts.
    return DEAD_LETTER_TYPE in json and parse_event(json).type == DEAD_LETTER_TYPE


def _can_expire(json: str) -> bool:
    """Whether a reader can be right that the event was too old by its own word; it knows no channel's."""
    try:
        return EXPIRY_TIME in json and EXPIRY_TIME in parse_event(json).attributes
    except EnvelopeError:
        return False


def _refusal(reason: str, service: str) -> Refusal:
    """The reason is the service's own, so it may be anything: what is no word stands in the detail."""
    if _WORD.fullmatch(reason):
        return Refusal(reason, f"{service} can never handle it")
    return Refusal(NO_WORD, f"{service} can never handle it: {reason!r}")
