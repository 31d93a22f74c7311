"""What a function gets from its source queue, and what it answers: which messages have to come again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from eventplane.errors import EventPlaneError


class Context(Protocol):
    """The part of Lambda's context that the functions use."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda kills the invocation."""


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One message of the source queue.

    `sent_at_ms` in Unix milliseconds; `attempt` counts from 1; `receipt` stands for this delivery of it;
    `group` is the message group in a FIFO queue.
    """

    id: str
    body: str
    sent_at_ms: int
    attempt: int
    receipt: str = ""
    group: str | None = None


class NotProcessedError(EventPlaneError):
    """The message has to be delivered again. `message_id` names it; the log before says why."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"message {message_id} goes back to its queue; the log before says why")
        self.message_id = message_id


def read_messages(event: dict[str, Any]) -> list[QueueMessage]:
    """The messages of an SQS event."""
    return [
        QueueMessage(
            id=record["messageId"],
            body=record["body"],
            sent_at_ms=int(record["attributes"]["SentTimestamp"]),
            attempt=int(record["attributes"]["ApproximateReceiveCount"]),
            receipt=record["receiptHandle"],
            group=record["attributes"].get("MessageGroupId"),
        )
        for record in event["Records"]
    ]


def partial_response(
    event: dict[str, Any], context: Any, failed: Collection[str]
) -> PartialItemFailureResponse:
    """The answer that lets the queue delete all messages of `event` but those whose ids are in `failed`."""

    def outcome(record: SQSRecord) -> None:
        if record.message_id in failed:
            raise NotProcessedError(record.message_id)

    # Failing every message is an answer as well: an exception would hide which ones, and count as an error.
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event, outcome, processor, context)
