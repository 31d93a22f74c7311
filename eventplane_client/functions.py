"""The same for a Lambda function that reads an inbox: a decorator, with the partial batch response of SQS.

@handles_events("care-analytics", "prod")
def handle(event): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from eventplane.envelope import Envelope
from eventplane.limits import MAX_RECEIVES
from eventplane.resource_names import resource_name
from eventplane_client.delivery import Telemetry
from eventplane_client.errors import BatchFailedError, extras
from eventplane_client.inbox import Inbox
from eventplane_client.notices import Listener, log_notice
from eventplane_client.ports import Lease, Message, MessageFilter, Mode, ReceiptPort, Transport
from eventplane_client.reader import Doubt
from eventplane_client.resequencer import GAP_TIMEOUT_S
from eventplane_client.system import SYSTEM, System
from eventplane_client.visibility import check_lease

with extras("functions"):
    from aws_lambda_powertools.metrics import MetricUnit, single_metric
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.data_classes import SQSEvent
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

    from eventplane_client.aws import aws_client
    from eventplane_client.dynamodb_duplicates import TABLE, DynamoDbFilter
    from eventplane_client.sqs import SqsTransport, group_of, hints_of

RESERVE_MS: Final = 3_000
"""No event is begun with less time left, milliseconds: what is not begun comes again, and is not in doubt."""

MARGIN_S: Final = 5.0
"""Seconds for which a claim outlives its invocation: clocks differ, and the table keeps whole seconds."""


class TimeLeft(Protocol):
    """The part of Lambda's context that is used."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda kills the invocation."""


Handler = Callable[[dict[str, Any], TimeLeft], PartialItemFailureResponse]

Wiring = tuple[Transport, Callable[[Lease], MessageFilter]]
"""The participant's queues, and what opens the filter of one invocation."""


class BatchTransport:
    """One invocation's messages: what is not acknowledged at its end comes again.

    With `at_once` what is acknowledged never does, so its receipt is sent first.
    """

    visibility_s = None
    keeps_refused = False

    def __init__(
        self, event: dict[str, Any], outbox: Transport, system: System, *, at_once: bool = False
    ) -> None:
        self.max_receives = outbox.max_receives
        self._outbox = outbox
        self._at_once = at_once
        records = list(SQSEvent(event).records)
        now_s = system.now_s()
        self._unread = [_message(each, now_s) for each in records]
        self._open = {each.message_id: each for each in records}
        self._records = list(self._open)
        self.handled, self.failures = 0, list[Exception]()

    @property
    def receipts(self) -> ReceiptPort | None:
        return self._outbox.receipts

    @property
    def has_unread(self) -> bool:
        """True if there are messages that were not received yet."""
        return bool(self._unread)

    def call(self, function: Callable[[Envelope], object], event: Envelope) -> object:
        """Return what `function` makes of `event`, and count it."""
        try:
            answer = function(event)
        except Exception as error:
            self.failures.append(error)
            raise
        self.handled += 1
        return answer

    def answer(self, participant: str) -> PartialItemFailureResponse:
        """Return the messages that the queue should keep. Raises `BatchFailedError` if the handler failed for
        all.

        Then the invocation counts as failed; each message comes again at its time all the same.
        """
        if self.failures:
            # As the plane's own functions count; each hour with a value is paid for.
            failed = len(self.failures)
            with single_metric("HandlerFailed", MetricUnit.Count, failed, namespace="EventPlane") as metric:
                metric.add_dimension("service", f"{participant}.inbox")
        if self.receipts and not self.receipts.send() and not self._at_once:
            return {"batchItemFailures": [{"itemIdentifier": each} for each in self._records]}
        if not self.handled and len(self.failures) >= len(self._records) == len(self._open) > 0:
            raise BatchFailedError(participant, len(self.failures)) from self.failures[-1]
        return {"batchItemFailures": [{"itemIdentifier": id} for id in self._open]}

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        self._outbox.put(event, timeout_s, durable=durable)

    def receive(self, most: int, timeout_s: float) -> list[Message]:  # noqa: ARG002 (they are all here)
        found, self._unread = self._unread[:most], self._unread[most:]
        return found

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:  # noqa: ARG002
        if self._at_once and self.receipts and not self.receipts.send():
            return list(messages)
        for each in messages:
            self._open.pop(str(each.handle), None)
        return []

    def release(self, message: Message, wait_s: float) -> None:
        # Where the function may not do that, the queue's visibility timeout says when it comes again.
        if record := self._open.get(str(message.handle)):
            self._outbox.release(replace(message, handle=record.raw_event.get("receiptHandle")), wait_s)

    def extend(self, messages: Sequence[Message]) -> None:
        pass

    def close(self) -> None:
        pass


def handles_events(
    participant: str,
    environment: str,
    *,
    mode: Mode = Mode.EXACTLY_ONCE,
    on_doubt: Doubt | None = None,
    gap_timeout_s: float = GAP_TIMEOUT_S,
    on_notice: Listener = log_notice,
    wiring: Callable[[], Wiring] | None = None,
    telemetry: Telemetry | None = None,
    system: System = SYSTEM,
) -> Callable[[Callable[[Envelope], object]], Handler]:
    """Makes of a function of one event a handler of the batches of the inbox of `participant`.

    The event source mapping needs `ReportBatchItemFailures`. An exception brings the event back, and when its
    time is over makes a dead letter of it with the exception as reason. If every event of a batch fails, the
    function raises `BatchFailedError`. What it returns is the answer to whoever waits for a reply. In a FIFO
    queue with an order what follows in its group waits. `wiring` gives transport and filter in the place of
    those of `environment`; it is called once, with the first batch. `telemetry` is told of each event.
    `system` has clocks and randomness.

    In an inbox with `ordering: source` an event that came too early comes again after the visibility timeout.
    It goes without its predecessors once `gap_timeout_s` seconds have passed since it was received first, and
    at its last receive.

    A claim is valid until `MARGIN_S` after the end of its invocation: what was in hand when Lambda killed the
    function is asked about (`on_doubt`), or becomes a dead letter, with the first delivery after that. An
    invocation raises `LeaseTooLongError` where the queue gives out nothing any more by then.
    """
    wire = functools.cache(wiring or partial(_wire, participant, environment))

    def decorate(function: Callable[[Envelope], object]) -> Handler:
        @functools.wraps(function)
        def handle(event: dict[str, Any], context: TimeLeft) -> PartialItemFailureResponse:
            queues, open_filter = wire()

            def lease() -> float:
                return context.get_remaining_time_in_millis() / 1_000 + MARGIN_S

            if mode is Mode.EXACTLY_ONCE:
                check_lease(participant, queues, lease())
            batch = BatchTransport(event, queues, system, at_once=mode is Mode.AT_MOST_ONCE)

            def has_time() -> bool:
                return context.get_remaining_time_in_millis() >= RESERVE_MS

            def in_time(event: Envelope) -> object:
                try:
                    return batch.call(function, event)
                finally:
                    if not has_time():
                        inbox.stop()

            with (
                # One for each invocation: what an earlier one in this process left claimed is in doubt too.
                closing(open_filter(lease)) as filter,
                Inbox(
                    participant,
                    batch,
                    filter,
                    mode=mode,
                    on_notice=on_notice,
                    on_doubt=on_doubt,
                    gap_timeout_s=gap_timeout_s,
                    telemetry=telemetry,
                    system=system,
                ) as inbox,
            ):
                inbox.handle(in_time, idle_s=0)
                while batch.has_unread and has_time():
                    # All of one reception were early or malformed; there are more.
                    inbox.handle(in_time, idle_s=0)
            return batch.answer(participant)

        return handle

    return decorate


def _message(record: SQSRecord, now_s: float) -> Message:
    attributes, hints = record.attributes, hints_of(partial(_hint, record))
    first_ms = record.raw_event["attributes"].get("ApproximateFirstReceiveTimestamp")
    age_s = max(0.0, now_s - int(first_ms) / 1e3) if first_ms else None
    queue = str(record.raw_event.get("eventSourceARN", ""))
    return Message(
        body=record.body.encode("utf-8", "surrogatepass"),
        attempt=int(attributes.approximate_receive_count or 1),
        handle=record.message_id,
        group=group_of(attributes.message_group_id, queue, hints["retries"]),
        sent_at_ms=int(attributes.sent_timestamp),
        id=record.message_id,
        **hints,
        age_s=age_s,
        # A function does not wait: what is too early waits in its queue, over several invocations.
        waited_s=age_s or 0.0,
    )


def _hint(record: SQSRecord, name: str) -> str | None:
    attribute = record.raw_event["messageAttributes"].get(name)
    return str(attribute["stringValue"]) if attribute else None


def _wire(participant: str, environment: str) -> Wiring:
    queues = SqsTransport.find(participant, environment, aws_client("sqs"), max_receives=MAX_RECEIVES)
    dynamodb, table = aws_client("dynamodb"), resource_name(environment, TABLE)
    return queues, lambda lease: DynamoDbFilter(dynamodb, table, participant, lease=lease)
