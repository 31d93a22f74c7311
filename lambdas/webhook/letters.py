"""Dead letters of a webhook: events of the plane, sent through the outbox of the service it stands for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from eventplane.contract import Channel, Contract
from eventplane.delivery import DEAD_LETTER_TYPE, Refusal, dead_letter, letter_id
from eventplane.envelope import Envelope
from eventplane.sqs_binding import to_message
from lambdas.common.queue import QueueMessage
from lambdas.common.sqs import TAKEN, SqsSender
from lambdas.webhook.verdict import Failure

SOURCE: Final = "/eventplane/cloud/webhook/"
"""What the `source` of the letters starts with; the service's name follows."""


class Letters:
    """Writes to the queues at the URLs `outbox` and `last_resort`, the dead-letter queue of the inbox."""

    def __init__(
        self, *, contract: Contract, channel: Channel, sender: SqsSender, outbox: str, last_resort: str
    ) -> None:
        self._contract = contract
        self._channel = channel
        self._sender = sender
        self._outbox = outbox
        self._last_resort = last_resort

    def write(self, message: QueueMessage, event: Envelope | None, failure: Failure, now_ms: int) -> bool:
        """Make a dead letter of `message`, which holds `event` or none; whether it is safe in a queue.

        `now_ms` in Unix milliseconds. The router takes it from there, like everything that the service sends.
        """
        if event is not None and event.type == DEAD_LETTER_TYPE:
            # A letter about a letter could come back here, and so on for ever.
            return self._send(self._last_resort, event)
        letter = dead_letter(
            id=letter_id(*event.key) if event else message.id,
            source=f"{SOURCE}{self._channel.participant}",
            time=datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds"),
            refusal=Refusal(failure.reason, failure.detail),
            channel=self._channel.address,
            original=message.body.encode("utf-8", "surrogatepass"),
            contract_version=self._contract.version,
            attempt=message.attempt,
        )
        return self._send(self._outbox, letter)

    def _send(self, queue: str, event: Envelope) -> bool:
        return self._sender.send(queue, [to_message(event)]) == [TAKEN]
