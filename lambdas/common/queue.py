"""The messages that a function gets from its source queue."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from eventplane.contract import DeliveryGuarantee
from eventplane.dead_letter import original_of
from eventplane.guarantee import GUARANTEE_HINT
from eventplane.resource_names import FIFO_SUFFIX
from eventplane.sqs_binding import REDRIVEN, ROUTE


class Context(Protocol):
    """The part of Lambda's context that the functions use."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda kills the invocation."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """`id` is Lambda's request id; `remaining_ms` the milliseconds until Lambda ends the invocation."""

    id: str
    remaining_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One message of the source queue, which is called `queue`.

    `sent_at_ms`, and `received_at_ms` for its first receive, in Unix milliseconds by the queue's clock;
    `attempt` counts from 1; `receipt` stands for this delivery of it; `group` is the message group in a FIFO
    queue; `route` is the one that led here, where a router sent it; `redrive` is the mark with which an
    operator sent it back. What a router delivered at best effort `is_best_effort`. It was received at
    `present_ms` or later (None: unknown).
    """

    id: str
    body: str
    sent_at_ms: int
    attempt: int
    receipt: str = ""
    group: str | None = None
    route: str | None = None
    redrive: str | None = None
    received_at_ms: int | None = None
    is_best_effort: bool = False
    present_ms: int | None = None
    queue: str = ""

    def age_s(self, now_ms: int) -> float:
        """Return the seconds since its first attempt failed; 0 at that attempt."""
        if self.attempt == 1:
            return 0.0
        return max(0.0, (now_ms - (self.received_at_ms or self.sent_at_ms)) / 1_000)


def read_messages(event: dict[str, Any]) -> list[QueueMessage]:
    """The messages of an SQS event."""
    return [
        QueueMessage(
            queue=(queue := _queue(record)),
            id=record["messageId"],
            body=record["body"],
            sent_at_ms=int(record["attributes"]["SentTimestamp"]),
            attempt=int(record["attributes"]["ApproximateReceiveCount"]),
            receipt=record["receiptHandle"],
            received_at_ms=int(record["attributes"].get("ApproximateFirstReceiveTimestamp", 0)) or None,
            # In a standard queue a group only shares its capacity among senders, and nothing has an order.
            group=record["attributes"].get("MessageGroupId") if queue.endswith(FIFO_SUFFIX) else None,
            route=_hint(record, ROUTE),
            redrive=_hint(record, REDRIVEN),
            is_best_effort=_hint(record, GUARANTEE_HINT) == DeliveryGuarantee.BEST_EFFORT,
        )
        for record in event["Records"]
    ]


def read_rule_message(body: str) -> Any:
    """Return the JSON of a message that an IoT rule wrote; of one by its error action, the rule's input.

    So a redrive brings in what SQS did not take. The input has the names before the rule's SQL renamed them:
    readers know both. Raises `ValueError`, `TypeError`, `RecursionError`.
    """
    members = json.loads(body)
    original = original_of(members)
    return members if original is None else json.loads(original)


def _queue(record: dict[str, Any]) -> str:
    return str(record.get("eventSourceARN", "")).rpartition(":")[2]


def _hint(record: dict[str, Any], name: str) -> str | None:
    found: str | None = record.get("messageAttributes", {}).get(name, {}).get("stringValue")
    return found
