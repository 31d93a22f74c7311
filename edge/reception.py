"""What one turn of the loop takes in, before its commit."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from edge.inbox import InboxPump
from edge.intake import Intake, Verdict
from edge.local_bus import InboxReceipts, local_topics
from edge.messages import Received
from edge.spool import Arrival, Delivery, Waiting
from eventplane.contract import Channel, Contract
from eventplane.delivery import DEAD_LETTER_TYPE, Refusal
from eventplane.receipts import Receipt, ReceiptError, digest, read_receipts

_log = logging.getLogger(__name__)

NO_WORD = "refused"
"""The reason of a dead letter whose service gave none that can be routed and counted."""

_LETTER_BYTES = 4096
"""What is kept of a dead letter that the cloud refuses: if it was too large, its own must be smaller."""

_WORD = re.compile(r"[\w.-]{1,64}", re.ASCII)


@dataclass(slots=True)
class Turn:
    """To commit: `arrivals`, numbered from `first_sequence`, and `done`. To send afterwards: the rest.

    `receipts` are by service, `refused` counts dead letters by channel address and reason.
    """

    first_sequence: int
    arrivals: list[Arrival] = field(default_factory=list)
    done: list[Delivery] = field(default_factory=list)
    acknowledge: list[Received] = field(default_factory=list)
    receipts: dict[str, list[Receipt]] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def sequence(self) -> int:
        """The number of the next arrival."""
        return self.first_sequence + len(self.arrivals)

    def add(self, verdict: Verdict, address: str) -> None:
        """Keep what `verdict` says about a message of the channel `address`."""
        if verdict.arrival is not None:
            self.arrivals.append(verdict.arrival)
        if verdict.refused is not None:
            self.refused[address, verdict.refused] += 1


class Reception:
    """Takes messages of the home's broker into a `Turn`: services' events, and receipts for `inboxes`."""

    def __init__(self, contract: Contract, intake: Intake, inboxes: Mapping[str, InboxPump]) -> None:
        self._topics = local_topics(contract)
        self._device_outbox = contract.device.outbox
        self._intake = intake
        self._inboxes = inboxes

    def take(self, message: Received, turn: Turn) -> None:
        """Whatever the message is, it is acknowledged once the turn is committed."""
        turn.acknowledge.append(message)
        role = self._topics.get(message.topic)
        if role is None:
            self._take_stray(message, turn)
        elif isinstance(role, InboxReceipts):
            self._take_receipts(message.payload, role.channel, turn)
        else:
            self._take_event(message.payload, role.channel, turn)

    def give_up(self, waiting: Waiting, channel: Channel, refusal: Refusal, turn: Turn) -> None:
        """A delivery over `channel` that can never succeed ends, and becomes a dead letter."""
        turn.done.append(waiting.delivery)
        original = waiting.json.encode("utf-8")
        if channel is self._device_outbox and DEAD_LETTER_TYPE in waiting.json:
            original = original[:_LETTER_BYTES]
        verdict = self._intake.refuse(original, channel.address, channel, refusal, turn.sequence)
        turn.add(verdict, channel.address)

    def _take_event(self, payload: bytes, channel: Channel, turn: Turn) -> None:
        verdict = self._intake.accept(payload, channel, turn.sequence)
        turn.add(verdict, channel.address)
        receipt = Receipt(digest(payload), verdict.refused)
        turn.receipts.setdefault(channel.participant, []).append(receipt)

    def _take_stray(self, message: Received, turn: Turn) -> None:
        """A subscription of an earlier contract, which the broker's session remembers."""
        refusal = Refusal("unknown_channel", "no box of the contract has this topic")
        verdict = self._intake.refuse(
            message.payload, message.topic, self._device_outbox, refusal, turn.sequence
        )
        turn.add(verdict, message.topic)

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
        if receipt.refused is None:
            turn.done.append(ended.delivery)
        else:
            channel = inbox.channel
            self.give_up(ended, channel, _refusal(receipt.refused, channel.participant), turn)


def _refusal(reason: str, service: str) -> Refusal:
    """The reason is the service's own, so it may be anything: what is no word stands in the detail."""
    if _WORD.fullmatch(reason):
        return Refusal(reason, f"{service} can never handle it")
    return Refusal(NO_WORD, f"{service} can never handle it: {reason!r}")
