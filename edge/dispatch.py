"""Sorts received messages by topic: events, receipts, questions and announcements."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from edge.delivery_queues import DeliveryQueues
from edge.durable import can_load
from edge.inbox import InboxPump
from edge.interest import Interest
from edge.numbering import expiring
from edge.planning import Batch, Role, Submission
from edge.spool import PendingDelivery
from eventplane.contract import Channel, Contract, ParticipantKind, Priority
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal
from eventplane.envelope import Sender, parse_event
from eventplane.errors import EnvelopeError
from eventplane.guarantee import BY_EVENT
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.reasons import Outcome, Reason
from eventplane.receipts import Receipt, ReceiptError, read_receipts
from eventplane.sending import SendingRights
from eventplane.topics import (
    MISSPELT_OUTBOXES,
    OUTBOXES,
    handlers_topic,
    interest_topic,
    is_outbox_topic,
    local_topic,
    receipt_topic,
    state_topic,
)
from eventplane_mqtt.mailbox import LinkName, Received

if TYPE_CHECKING:
    from edge.mapping import Mapper

_log = logging.getLogger(__name__)

_DEAD_LETTER_BYTES = 4096
"""Bytes kept of a refused dead letter: if it was too large, the next one is smaller."""

_SMALL_BYTES = 10 * 1024
"""No dead letter of `_DEAD_LETTER_BYTES` is larger: a smaller one was not refused for its size."""

_TOPIC_CHARACTERS = 200
"""Of an unknown topic in its dead letter, which has to fit an event: MQTT allows 65,535 bytes."""

_WORD = re.compile(r"[\w.-]{1,64}", re.ASCII)


def local_topics(contract: Contract) -> dict[str, tuple[Role, Channel]]:
    """Return the topics of the contract's services, with what they carry and the channel concerned."""
    topics: dict[str, tuple[Role, Channel]] = {}
    for service in contract.of_kind(ParticipantKind.DEVICE_SERVICE):
        topics[local_topic(service.name, service.outbox.box)] = Role.OUTBOX, service.outbox
        topics[state_topic(service.name)] = Role.STATE_QUESTIONS, service.inbox
        topics[interest_topic(service.name)] = Role.ANNOUNCEMENTS, service.inbox
        topics[handlers_topic(service.name)] = Role.HANDLERS_QUESTIONS, service.inbox
        for channel in (service.inbox, service.replies):
            if channel is not None and channel.receipts:
                topics[receipt_topic(service.name, channel.box)] = Role.INBOX_RECEIPTS, channel
    return topics


def subscriptions(contract: Contract, session: LinkName) -> tuple[str, ...]:
    """Return the topic filters of one of the two sessions at the home's broker.

    The urgent session has the outboxes from which an urgent event can come, so that neither a queue of ours
    nor the broker's one queue a client holds up an alarm behind a flood. The first session has all the rest
    and every outbox, also those that no contract knows: what comes over both is stored once. Where an outbox
    carries other events too, the urgent session's connection skips these (`UrgentHint`). A topic that is
    mapped has one of the sessions, because two would bring a message under different packet ids.
    """
    topics = local_topics(contract)
    is_urgent = session is LinkName.URGENT
    mapped = (each.filter for each in contract.mappings if each.is_urgent(contract) is is_urgent)
    if is_urgent:
        rights = SendingRights(contract)
        types = _urgent_types(contract)
        outboxes = (
            topic
            for topic, (role, channel) in topics.items()
            if role is Role.OUTBOX and _may_be_urgent(channel, types, rights)
        )
        return (*outboxes, *mapped)
    others = (topic for topic, (role, _) in topics.items() if role is not Role.OUTBOX)
    return (OUTBOXES, *MISSPELT_OUTBOXES, *others, *mapped)


def _urgent_types(contract: Contract) -> list[str]:
    return [name for name, each in contract.event_types.items() if each.priority is Priority.URGENT]


def _may_be_urgent(outbox: Channel, urgent_types: Sequence[str], rights: SendingRights) -> bool:
    """Whether the contract lets urgent events come over `outbox`; a `severitynumber` can add others."""
    sender = Sender(service=outbox.participant)
    return outbox.priority is Priority.URGENT or any(rights.may_send(sender, each) for each in urgent_types)


class UrgentHint:
    """Tells messages of services that may be urgent under the `contract` of now from those that cannot be.

    It looks for the urgent types' names in the bytes, so that a network thread can afford to ask for each.
    """

    def __init__(self, contract: Callable[[], Contract]) -> None:
        self._current = contract
        self._contract: Contract | None = None
        self._topics: frozenset[str] = frozenset()
        self._marks: tuple[bytes, ...] = ()

    def may_be_urgent(self, topic: str, payload: bytes) -> bool:
        """Return False for a message that is surely not urgent."""
        contract = self._current()
        if contract is not self._contract:
            self._read(contract)
        may_be = topic in self._topics or any(mark in payload for mark in self._marks)
        return may_be or not is_outbox_topic(topic)  # a mapped topic, which this session has to itself

    def _read(self, contract: Contract) -> None:
        self._marks = (b"severitynumber", *(each.encode() for each in _urgent_types(contract)))
        # An urgent channel makes every type urgent that has no priority of its own.
        self._topics = frozenset(
            topic
            for topic, (role, channel) in local_topics(contract).items()
            if role is Role.OUTBOX and channel.priority is Priority.URGENT
        )
        self._contract = contract


class Dispatcher:
    """Sorts received messages into a `Batch`, under `contract`: services' events and questions, and events
    that came down from the cloud.

    Receipts end deliveries of `inboxes`, announcements go to `interest`; `queues` ends what is given up.
    `mapper` makes events of mapped topics; None: the contract has none.
    """

    def __init__(
        self,
        contract: Contract,
        inboxes: Mapping[str, InboxPump],
        queues: DeliveryQueues,
        interest: Interest,
        mapper: Mapper | None = None,
    ) -> None:
        self.mapper = mapper
        self._topics = local_topics(contract)
        self._urgent_outboxes = subscriptions(contract, LinkName.URGENT)
        self._device = contract.device
        self._inboxes = inboxes
        self._queues = queues
        self._interest = interest

    def take(self, message: Received, batch: Batch, *, resumed: bool = False) -> None:
        """Sort `message` into `batch`; whatever it is, it is acknowledged once the batch is committed.

        `resumed`: it came over a session that existed before this connection.
        """
        batch.acknowledge.append(message)
        if message.foreign:
            # No event is lost with a receipt or question, nor over a subscription that only the other had.
            is_urgent, topic = message.link is LinkName.URGENT, message.topic
            is_event = topic in self._urgent_outboxes if is_urgent else is_outbox_topic(topic)
            batch.foreign += is_event or (self.mapper is not None and self.mapper.knows(topic))
            return
        if message.link is LinkName.CLOUD:
            self._take_downlink(message.payload, batch)
            return
        if (found := self._topics.get(message.topic)) is None:
            if self.mapper is None or not self.mapper.take(message, batch):
                self._take_unknown(message, batch)
            return
        role, channel = found
        payload = message.payload
        match role:
            case Role.OUTBOX:
                self._take_outbox(message, channel, batch, resumed=resumed)
            case Role.INBOX_RECEIPTS:
                self._take_receipts(payload, channel, batch)
            case Role.ANNOUNCEMENTS:
                self._interest.take(message, channel)
            case Role.STATE_QUESTIONS | Role.HANDLERS_QUESTIONS:
                batch.questions.append((role, payload, channel))

    @staticmethod
    def _take_outbox(message: Received, channel: Channel, batch: Batch, *, resumed: bool) -> None:
        refusal = None
        if message.oversize:
            # Only its beginning was kept, so no receipt can name it.
            detail = f"{message.oversize} bytes; an event has at most {MAX_EVENT_BYTES}"
            refusal = Refusal(Reason.TOO_LARGE, detail)
        elif not message.payload:
            return  # it clears a retained message
        elif message.retained and resumed:
            # It came when it was new. Now it may be older than all that is remembered.
            detail = "the broker repeats it over each connection; publish events without the retain flag"
            refusal = Refusal(Reason.RETAINED, detail)
        answer = None if refusal else channel.participant
        batch.submissions.append(Submission(message.payload, channel.address, channel, refusal, answer))

    def give_up(self, pending: PendingDelivery, channel: Channel, refusal: Refusal, batch: Batch) -> None:
        """End a delivery over `channel` that can never succeed; it becomes a dead letter.

        A refused dead letter becomes a small one. A reader that refuses that too would refuse them for ever,
        so it is dropped and counted.
        """
        original = pending.json.encode("utf-8")
        # The text may contain the type elsewhere.
        if DEAD_LETTER_TYPE in pending.json and parse_event(pending.json).type == DEAD_LETTER_TYPE:
            if len(original) <= _SMALL_BYTES:
                _log.warning("a dead letter over %s is dropped: %s", channel.address, refusal.reason)
                self._queues.discard(pending.delivery, Outcome.DROPPED, refusal.reason)
                return
            original = original[:_DEAD_LETTER_BYTES]
        batch.submissions.append(
            Submission(original, channel.address, channel, refusal, ends=pending.delivery)
        )

    def refuse_packet(self, mid: int, failure: str, batch: Batch) -> None:
        """Make dead letters of what the home's broker never takes: packet `mid`; `failure` has the sizes."""
        refusal = Refusal(Reason.TOO_LARGE, f"{failure}; raise max_packet_size of the home's broker")
        for inbox in self._inboxes.values():
            for ended in inbox.refused(mid):
                if not self._queues.end_volatile(ended.delivery, Reason.TOO_LARGE):
                    self.give_up(ended, inbox.channel, refusal, batch)

    def _take_unknown(self, message: Received, batch: Batch) -> None:
        """Take what came on no topic of the contract: an unknown outbox, or one of an earlier contract."""
        if not message.payload and not message.oversize:
            return  # it clears a retained message
        if not is_outbox_topic(message.topic):
            # Receipts, questions, announcements: no events, and services repeat them without end.
            _log.warning("a message on %s ignored: the contract in force has no use for it", message.topic)
            return
        topic = message.topic[:_TOPIC_CHARACTERS]
        detail = f"no participant of the contract has the outbox {topic!r}; correct the topic, "
        refusal = Refusal(
            Reason.UNKNOWN_CHANNEL, detail + "or add the participant and give the device the contract"
        )
        _, name, *_ = topic.split("/")
        # In a misspelt topic the name may be a participant's, which did not send this.
        sender = name if topic == local_topic(name, self._device.outbox.box) else None
        batch.submissions.append(Submission(message.payload, topic, self._device.outbox, refusal, sender))

    def _take_downlink(self, payload: bytes, batch: Batch) -> None:
        """Take an event from the cloud; one without a key cannot be answered and becomes a dead letter."""
        if not can_load("edge.downlink"):
            return  # without an answer the cloud sends it again
        from eventplane.downlink.wire import DownlinkError, received

        try:
            batch.downlinks.append(received(parse_event(payload)))
        except (EnvelopeError, DownlinkError) as error:
            refusal = Refusal(error.reason, error.detail)
            batch.submissions.append(
                Submission(payload, self._device.inbox.address, self._device.outbox, refusal)
            )

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

    def _take_receipt(self, receipt: Receipt, ended: PendingDelivery, inbox: InboxPump, batch: Batch) -> None:
        if receipt.refused == Outcome.EXPIRED and expiring(ended.json):  # a reader knows no channel's expiry
            if not self._queues.end_volatile(ended.delivery, BY_EVENT):
                self._queues.discard(ended.delivery, Outcome.EXPIRED, BY_EVENT)
            return
        stored = self._queues.delivered([ended.delivery])
        if receipt.refused is None:
            batch.done.extend(stored)
        else:
            refusal = _refusal(receipt.refused, inbox.channel.participant)
            self.give_up(ended, inbox.channel, refusal, batch)


def _refusal(reason: str, service: str) -> Refusal:
    """Return the refusal with the service's own `reason`, in the detail if it is not a single word."""
    if _WORD.fullmatch(reason):
        return Refusal(reason, f"{service} can never handle it")
    return Refusal(Reason.REFUSED, f"{service} can never handle it: {reason!r}")
