"""Dead letters of a function that is a cloud service: events, sent through the service's outbox."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.contract import Channel, Contract
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal, dead_letter, letter_id
from eventplane.envelope import Envelope
from eventplane.sqs_binding import redriven_id, to_message
from eventplane.values import timestamp_of_ms
from lambdas.common.queue import QueueMessage
from lambdas.common.sender import TAKEN
from lambdas.common.sqs import SqsSender
from lambdas.common.system import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterWriter:
    """Sends dead letters of `source` about events of `channel` to the queue at the URL `outbox`.

    The router takes them from there, like everything that the service sends. A dead letter that cannot be
    delivered itself goes to `last_resort`, a dead-letter queue. `route` is the one that the events came by,
    where there is but one.
    """

    source: str
    contract: Contract
    channel: Channel
    sender: SqsSender
    outbox: str
    last_resort: str
    clock: Clock
    route: str | None = None

    def refuse(
        self, message: QueueMessage, event: Envelope | None, refusal: Refusal, original: str | None = None
    ) -> bool:
        """Make a dead letter of `message`, which is `event` or none; whether it is safe in a queue.

        `original` is what the dead letter holds, by default all of the message.
        """
        id = redriven_id(letter_id(*event.key) if event else message.id, message.redrive)
        text = message.body if original is None else original
        return self.write(id, text, event, refusal, attempt=message.attempt)

    def write(
        self, id: str, original: str, event: Envelope | None, refusal: Refusal, *, attempt: int = 1
    ) -> bool:
        """Make a dead letter of `original` as `refuse` does; a repetition has to have the same `id`."""
        if event is not None and event.type == DEAD_LETTER_TYPE:
            # A dead letter about a dead letter could come back here, and so on for ever.
            return self._send(self.last_resort, event)
        letter = dead_letter(
            id=id,
            source=self.source,
            time=timestamp_of_ms(self.clock()),
            refusal=refusal,
            channel=self.channel.address,
            original=original.encode("utf-8", "surrogatepass"),
            contract_version=self.contract.version,
            route=self.route,
            attempt=attempt,
            event=event,
        )
        return self._send(self.outbox, letter)

    def _send(self, queue: str, event: Envelope) -> bool:
        return self.sender.send(queue, [to_message(event)]) == [TAKEN]
