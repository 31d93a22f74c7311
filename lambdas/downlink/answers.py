"""The function that reads answers of devices: acknowledgements, and reports that one started with nothing.

The device is the one whose connection brought the answer; what the answer says of itself has to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eventplane.dead_letter import Refusal
from eventplane.device_reports import ACKNOWLEDGED, DEVICE_REPORTS, STARTED
from eventplane.downlink.device import Acknowledgement, AcknowledgementError, AckStatus, from_data
from eventplane.downlink.table import sort_key
from eventplane.downlink.transitions import Transition, acknowledge
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.names import DOWNLINK
from eventplane.reasons import Reason
from eventplane.sending import SendingRights
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from lambdas.downlink.items import RESERVE_MS, NotChangedError
from lambdas.downlink.parts import DownlinkParts, wired


class AckReader:
    """Reads the downlink's own inbox. Late, repeated and foreign answers change nothing."""

    def __init__(self, parts: DownlinkParts) -> None:
        self._parts = parts
        self._rights = SendingRights(parts.contract)
        self._letters = parts.letters(parts.contract.participants[DOWNLINK].inbox)

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Handle `messages`; return the ids of those that have to come again."""
        return handle_each(messages, lambda each: self._take(each, invocation.remaining_ms))

    def _take(self, message: QueueMessage, remaining_ms: Callable[[], int]) -> bool:
        event: Envelope | None = None
        try:
            event = parse_event(message.body)
            if refusal := self._sender_refusal(event):
                return self._refuse(message, event, refusal)
            thing = event.sender.device
            if event.type == ACKNOWLEDGED:
                answers, epoch = from_data(event.data())
                return self._acknowledge(thing, answers, epoch, remaining_ms)
            if event.type == STARTED:
                self._parts.work.forget(thing, _epoch(event))
        except (AcknowledgementError, EnvelopeError) as error:
            return self._refuse(message, event, Refusal(Reason.BAD_ACKNOWLEDGEMENT, error.detail))
        return True

    def _sender_refusal(self, event: Envelope) -> Refusal | None:
        """Why `event` is no report of a device about itself."""
        sender = event.sender
        if event.type in DEVICE_REPORTS and sender.device:
            return self._rights.refusal(event)
        return Refusal(
            Reason.SENDER_NOT_ALLOWED,
            f"{str(sender) or 'nobody'} sent {event.type!r:.200}: no device's report",
        )

    def _refuse(self, message: QueueMessage, event: Envelope | None, refusal: Refusal) -> bool:
        logger.warning("refused", message_id=message.id, reason=refusal.reason, detail=refusal.detail)
        return self._letters.refuse(message, event, refusal)

    def _acknowledge(
        self,
        thing: str,
        answers: Sequence[Acknowledgement],
        epoch: str,
        remaining_ms: Callable[[], int],
    ) -> bool:
        # Who has just answered is there: the next goes out, whatever presence says a moment later.
        for answer in answers:
            if remaining_ms() < RESERVE_MS:
                return False

            def decide(item: Any, now_ms: int, answer: Acknowledgement = answer) -> Transition:
                if item is None:
                    return Transition(None)
                return acknowledge(item, answer, epoch, now_ms, is_present=True)

            try:
                self._parts.items.change(thing, sort_key(answer.kind, answer.key), decide)
            except NotChangedError as error:
                logger.warning("not acknowledged yet", device=thing, error=str(error))
                return False
            is_stored = answer.result is AckStatus.STORED
            count(Count.ACKNOWLEDGED if is_stored else Count.REJECTED)
        return True


def _epoch(event: Envelope) -> str:
    data = event.data()
    epoch = data.get("epoch") if isinstance(data, dict) else None
    if not isinstance(epoch, str) or not epoch:
        raise AcknowledgementError(f"epoch is {epoch!r:.100}")
    return epoch


def service() -> QueueReader:
    """Return the reader of the downlink's inbox. Raises `SettingsError`."""
    return QueueReader(AckReader(wired()).process)


handle = queue_function(service)
