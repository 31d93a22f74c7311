"""Dead letters of a function that stands for a cloud service: events, sent through the service's outbox."""

from __future__ import annotations

from eventplane.contract import Channel, Contract
from eventplane.delivery import DEAD_LETTER_TYPE, Refusal, dead_letter
from eventplane.envelope import Envelope
from eventplane.sqs_binding import to_message
from eventplane.timestamps import timestamp_of_ms
from lambdas.common.sender import TAKEN
from lambdas.common.sqs import SqsSender


class Letters:
    """Letters of `source` about events of `channel`, to the queue at the URL `outbox`.

    A letter that cannot be delivered itself goes to `last_resort`, a dead-letter queue. `route` is the one
    that the events came by, where there is but one.
    """

    def __init__(
        self,
        *,
        source: str,
        contract: Contract,
        channel: Channel,
        sender: SqsSender,
        outbox: str,
        last_resort: str,
        route: str | None = None,
    ) -> None:
        self._source = source
        self._contract = contract
        self._channel = channel
        self._sender = sender
        self._outbox = outbox
        self._last_resort = last_resort
        self._route = route

    def write(
        self,
        id: str,
        original: str,
        event: Envelope | None,
        refusal: Refusal,
        now_ms: int,
        *,
        attempt: int = 1,
    ) -> bool:
        """Make a dead letter of `original`, which is `event` or none; whether it is safe in a queue.

        `now_ms` in Unix milliseconds. A repetition has to have the same `id`. The router takes the letter
        from there, like everything that the service sends.
        """
        if event is not None and event.type == DEAD_LETTER_TYPE:
            # A letter about a letter could come back here, and so on for ever.
            return self._send(self._last_resort, event)
        letter = dead_letter(
            id=id,
            source=self._source,
            time=timestamp_of_ms(now_ms),
            refusal=refusal,
            channel=self._channel.address,
            original=original.encode("utf-8", "surrogatepass"),
            contract_version=self._contract.version,
            route=self._route,
            attempt=attempt,
            event=event,
        )
        return self._send(self._outbox, letter)

    def _send(self, queue: str, event: Envelope) -> bool:
        return self._sender.send(queue, [to_message(event)]) == [TAKEN]
