"""The answer to the source queue: which messages are done, and when the others come again."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.retries import ROUTINE, RetrySchedule
from eventplane_aws.rules import SQS_BATCH
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.log import logger
from lambdas.common.queue import QueueMessage
from lambdas.common.system import Clock


class ItemFailure(TypedDict):
    """One message that the queue shall keep."""

    itemIdentifier: str


class PartialResponse(TypedDict):
    """The answer of a function with `ReportBatchItemFailures` (AWS Lambda guide for SQS)."""

    batchItemFailures: list[ItemFailure]


def partial_response(messages: Sequence[QueueMessage], failed: Collection[str]) -> PartialResponse:
    """The answer that lets the queue delete all `messages` but those whose ids are in `failed`."""
    return {"batchItemFailures": [{"itemIdentifier": each.id} for each in messages if each.id in failed]}


def handle_each(
    messages: Iterable[QueueMessage],
    handle: Callable[[QueueMessage], bool],
    has_time: Callable[[], bool] = lambda: True,
) -> frozenset[str]:
    """Handle one message after another; return the ids of those that have to come again.

    These are the messages that `handle` returns False for or raises on, and those left when `has_time` ends.
    """
    failed: set[str] = set()
    for message in messages:
        try:
            if not (has_time() and handle(message)):
                failed.add(message.id)
        except Exception:  # noqa: BLE001 - a defect met by one message must not take the others with it
            logger.exception("a message could not be handled", message_id=message.id)
            failed.add(message.id)
    return frozenset(failed)


@dataclass(frozen=True, slots=True)
class Redelivery:
    """Answers for the queue at `queue_url` through a boto3 SQS client; messages come again by `schedule`."""

    client: Any
    queue_url: str
    chance: Callable[[], float]
    clock: Clock
    schedule: RetrySchedule = ROUTINE
    worst_call_ms: int = WORST_CALL_MS

    def answer(
        self, messages: Sequence[QueueMessage], failed: Collection[str], remaining_ms: Callable[[], int]
    ) -> PartialResponse:
        """The answer that lets the queue delete all `messages` but those whose ids are in `failed`.

        Those come again after the seconds in `failed`, or a wait that grows with their age. If that is
        not set, as when time runs out or SQS does not answer, the queue's visibility timeout brings them.
        """
        again = [message for message in messages if message.id in failed]
        for batch in _batches(again):
            if remaining_ms() < self.worst_call_ms:
                break
            self._delay(batch, failed)
        return partial_response(again, failed)

    def _delay(self, batch: Sequence[QueueMessage], failed: Collection[str]) -> None:
        waits = failed if isinstance(failed, Mapping) else {}
        entries = [
            {
                "Id": str(at),
                "ReceiptHandle": message.receipt,
                "VisibilityTimeout": waits.get(message.id) or self._wait_s(message),
            }
            for at, message in enumerate(batch)
        ]
        try:
            response = self.client.change_message_visibility_batch(QueueUrl=self.queue_url, Entries=entries)
        except (ClientError, BotoCoreError) as error:
            logger.warning("no wait could be set", messages=len(batch), error=str(error))
            return
        if failures := response.get("Failed", []):
            codes = sorted({failure["Code"] for failure in failures})
            logger.warning("no wait could be set for some", messages=len(failures), codes=codes)

    def _wait_s(self, message: QueueMessage) -> int:
        age_s = message.age_s(self.clock())
        return math.ceil(self.schedule.wait_s(age_s, message.attempt, self.chance()))


def _batches(messages: Sequence[QueueMessage]) -> Iterator[Sequence[QueueMessage]]:
    for start in range(0, len(messages), SQS_BATCH.most):
        yield messages[start : start + SQS_BATCH.most]
