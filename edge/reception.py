"""What one turn of the loop takes in, before its commit."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from edge.downlink.descent import Descent
from edge.inbox import InboxPump
from edge.intake import Intake, Verdict
from edge.interest import Interest
from edge.local_bus import Announcements, HandlersQuestions, InboxReceipts, StateQuestions, local_topics
from edge.messages import LinkName, Received
from edge.outgoing import Outgoing
from edge.pressure import Pressure
from edge.recent import RecentKeys
from edge.reports import NotStored
from edge.spool import Discard, Size, Waiting
from edge.turn import Offer, Turn
from eventplane.contract import Channel, Contract, Priority
from eventplane.conversation.attributes import EXPIRY_TIME
from eventplane.delivery import DEAD_LETTER_TYPE, Outcome, Refusal
from eventplane.downlink.errors import DownlinkError
from eventplane.downlink.wire import received
from eventplane.envelope import EnvelopeError, parse_event
from eventplane.expiry import BY_EVENT
from eventplane.interest import NO_INTEREST
from eventplane.questions import QuestionError, read_handlers_question, read_state_question
from eventplane.receipts import SPOOL_FULL, Receipt, ReceiptError, digest, read_receipts
from eventplane.topics import is_outbox_topic

_log = logging.getLogger(__name__)

NO_WORD = "refused"
"""The reason of a dead letter whose service gave none that can be routed and counted."""

_LETTER_BYTES = 4096
"""What is kept of a dead letter that is refused: if it was too large, its own must be smaller."""

_SMALL_BYTES = 10 * 1024
"""No dead letter of `_LETTER_BYTES` is larger: one that is refused as well was not too large."""

_WORD = re.compile(r"[\w.-]{1,64}", re.ASCII)


class Reception:
    """Takes messages of both brokers into a `Turn`: services' events, questions and receipts for `inboxes`,
    what they announce to `interest`, and what came down, which `descent` judges.

    `pressure` says what finds room, `recent` remembers what did, `outgoing` ends what cannot be kept.
    """

    def __init__(
        self,
        contract: Contract,
        intake: Intake,
        inboxes: Mapping[str, InboxPump],
        pressure: Pressure,
        recent: RecentKeys,
        outgoing: Outgoing,
        descent: Descent,
        interest: Interest,
    ) -> None:
        self._topics = local_topics(contract)
        self._device = contract.device
        self._intake = intake
        self._inboxes = inboxes
        self._pressure = pressure
        self._recent = recent
        self._outgoing = outgoing
        self._descent = descent
        self._interest = interest

    def take(self, message: Received, turn: Turn) -> None:
        """Whatever the message is, it is acknowledged once the turn is committed."""
        turn.acknowledge.append(message)
        if message.link is LinkName.CLOUD:
            self._take_descent(message.payload, turn)
            return
        role = self._topics.get(message.topic)
        if role is None:
            self._take_stray(message, turn)
        elif isinstance(role, InboxReceipts):
            self._take_receipts(message.payload, role.channel, turn)
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
            self._take_question(message.payload, role, turn)
        else:
            channel = role.channel
            self._take_offer(
                Offer(message.payload, channel.address, channel, answer=channel.participant), turn
            )

    def close(self, turn: Turn) -> None:
        """All that belongs to `turn` was taken."""
        self._descent.judge(turn)

    def kept(self, turn: Turn) -> None:
        """The turn is committed."""
        self._recent.settle()
        if turn.holdings:
            self._outgoing.withdraw(turn.replaced)

    def give_up(self, waiting: Waiting, channel: Channel, refusal: Refusal, turn: Turn) -> None:
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
        offer = Offer(original, channel.address, channel, refusal, ends=waiting.delivery)
        self._take_offer(offer, turn)

    def again(self, turn: Turn) -> Turn:
        """`turn` as it is under the pressure of now: what it had taken in is judged and numbered anew."""
        for key in turn.keys:
            self._recent.forget(key)
        retry = Turn(
            turn.first_sequence,
            turn.life_ms,
            turn.counted,
            done=turn.done,
            acknowledge=turn.acknowledge,
            descents=turn.descents,
            questions=turn.questions,
        )
        for offer in turn.offers:
            self._take_offer(offer, retry)
        self.close(retry)
        return retry

    def _take_offer(self, offer: Offer, turn: Turn) -> None:
        turn.offers.append(offer)
        verdict = self._verdict(offer, turn)
        refused = verdict.refused
        if verdict.arrival is not None and not self._finds_room(offer, verdict):
            refused = SPOOL_FULL
            turn.fleeting.extend(verdict.unstored)
            if offer.ends is None:
                turn.turned_away[NotStored(offer.address, verdict.type, SPOOL_FULL)] += 1
        else:
            self._keep(verdict, turn)
            if refused is not None:
                turn.refused[offer.address, refused] += 1
        self._end(offer, refused, turn)
        if offer.answer is not None:
            turn.receipts.setdefault(offer.answer, []).append(Receipt(digest(offer.payload), refused))

    def _verdict(self, offer: Offer, turn: Turn) -> Verdict:
        if offer.refusal is None:
            return self._intake.accept(offer.payload, offer.channel, turn.slot)
        return self._intake.refuse(offer.payload, offer.address, offer.channel, offer.refusal, turn.slot)

    def _finds_room(self, offer: Offer, verdict: Verdict) -> bool:
        assert verdict.arrival is not None  # noqa: S101 - the caller has asked
        size = Size(len(verdict.arrival.json), len(verdict.arrival.destinations))
        if offer.ends is None:
            return self._pressure.admits(verdict.arrival.rank, size, offer.channel.when_full)
        # A dead letter in the place of a delivery takes little more than that leaves.
        more = size._replace(deliveries=size.deliveries - 1)
        return self._pressure.admits(Priority.URGENT.rank, more, offer.channel.when_full)

    def _keep(self, verdict: Verdict, turn: Turn) -> None:
        turn.fleeting.extend(verdict.fleeting)
        for address in verdict.unwanted:
            turn.not_wanted[NotStored(address, verdict.type, NO_INTEREST)] += 1
        if verdict.arrival is not None:
            turn.store(verdict.arrival)
        if verdict.key is not None:
            self._recent.add(verdict.key)
            turn.keys.append(verdict.key)

    def _end(self, offer: Offer, refused: str | None, turn: Turn) -> None:
        if offer.ends is None or offer.refusal is None:
            return
        if refused == SPOOL_FULL:
            self._outgoing.discard(offer.ends, Outcome.DROPPED, SPOOL_FULL)
        elif offer.ends.destination == self._device.outbox.address:
            # Reported, or the audit would take it for acknowledged by the cloud.
            turn.dead_lettered.append(Discard(offer.ends, Outcome.DEAD_LETTERED, offer.refusal.reason))
        else:
            turn.replaced.append(offer.ends)

    def _take_stray(self, message: Received, turn: Turn) -> None:
        """A subscription of an earlier contract, which the broker's session remembers."""
        if is_outbox_topic(message.topic):
            refusal = Refusal("unknown_channel", "no box of the contract has this topic")
            self._take_offer(Offer(message.payload, message.topic, self._device.outbox, refusal), turn)
        else:
            # Receipts, questions, announcements: nobody's events, and services go on with them for ever.
            _log.warning("a message on %s ignored: the contract in force has no use for it", message.topic)

    def _take_descent(self, payload: bytes, turn: Turn) -> None:
        """What names no key cannot be answered: a dead letter tells of it."""
        try:
            turn.descents.append(received(parse_event(payload)))
        except (EnvelopeError, DownlinkError) as error:
            inbox = self._device.inbox
            refusal = Refusal(error.reason, error.detail)
            self._take_offer(Offer(payload, inbox.address, self._device.outbox, refusal), turn)

    def _take_question(self, payload: bytes, role: StateQuestions | HandlersQuestions, turn: Turn) -> None:
        read = read_state_question if isinstance(role, StateQuestions) else read_handlers_question
        try:
            turn.questions.append(read(payload, role.channel.address))
        except QuestionError as error:
            _log.warning("a question of %s ignored: %s", role.channel.participant, error)

    def _take_receipts(self, payload: bytes, channel: Channel, turn: Turn) -> None:
        inbox = self._inboxes.get(channel.address)
        if inbox is None:
            return
        try:
            receipts = read_receipts(payload)
        except ReceiptError as error:
            _log.warning("receipts of %s ignored: %s", channel.address, error)
            return
        for receipt in receipts:
            self._take_receipt(receipt, inbox, turn)

    def _take_receipt(self, receipt: Receipt, inbox: InboxPump, turn: Turn) -> None:
        ended = inbox.receipted(receipt)
        if ended is None:
            return
        if receipt.refused == Outcome.EXPIRED and _can_expire(ended.json):
            if not self._outgoing.lose(ended.delivery, BY_EVENT):
                self._outgoing.discard(ended.delivery, Outcome.EXPIRED, BY_EVENT)
            return
        stored = self._outgoing.delivered([ended.delivery])
        if receipt.refused is None:
            turn.done.extend(stored)
            return
        channel = inbox.channel
        self.give_up(ended, channel, _refusal(receipt.refused, channel.participant), turn)


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
