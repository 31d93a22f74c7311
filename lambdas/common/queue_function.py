"""The entry of every function that reads a queue: log, metrics, wiring, and the answer to the queue."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.function_settings import QueueSettings
from eventplane.other_json import use_json
from eventplane.resource_names import queue_url
from eventplane.retries import ROUTINE, RetrySchedule
from eventplane_aws.rules import SQS_BATCH
from lambdas.common.aws import PATIENT, WORST_CALL_MS, Timeouts, client
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count, metrics
from lambdas.common.queue import Context, Invocation, QueueMessage, read_messages
from lambdas.common.system import Clock, chance, system_clock


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


IN_LAMBDA: Final = "AWS_LAMBDA_FUNCTION_NAME"
"""Set by Lambda's runtime and reserved for it (AWS Lambda guide, "Defined runtime environment variables")."""

# Its absence, or another version, changes the speed alone (eventplane/other_json.py).
with suppress(ImportError):
    import orjson

    use_json(orjson.loads, orjson.dumps)

T = TypeVar("T")

Handler: TypeAlias = Callable[[dict[str, Any], Context], PartialResponse]


def at_init(wire: Callable[[], T]) -> _lru_cache_wrapper[T]:
    """Return a function that calls `wire` once and returns its result each time.

    Lambda gives the init phase a whole vCPU, so there `wire` is called at once; elsewhere when it is needed.
    """
    wired = cache(wire)
    if IN_LAMBDA in os.environ:
        wired()
    return wired


def _routine(_: str) -> RetrySchedule:
    return ROUTINE


@dataclass(frozen=True, slots=True)
class QueueReader:
    """`process` handles a batch and returns the ids of the messages that have to come again.

    A mapping has the seconds of each, or else they come by the `schedule` of their queue. The call that sets
    these takes `patience`.
    """

    process: Callable[[Sequence[QueueMessage], Invocation], Collection[str]]
    schedule: Callable[[str], RetrySchedule] = _routine
    patience: Timeouts = PATIENT


def queue_function(wire: Callable[[], QueueReader]) -> Handler:
    """Return the handler that passes each batch to the reader that `wire` makes of the environment.

    It counts `Messages` and `Retried`. `wire` runs once for the life of the process (see `at_init`), so this
    is the last statement of a handler's module. What `wire` raises ends the invocation.
    """

    def wire_both() -> tuple[QueueReader, Callable[[str], Redelivery]]:
        reader = wire()
        source_url = QueueSettings.read(os.environ).source_queue
        sqs, worst_call_ms = client("sqs", reader.patience), reader.patience.worst_call_ms

        @cache
        def redelivery(queue: str) -> Redelivery:
            url = queue_url(source_url, queue)
            return Redelivery(sqs, url, chance, system_clock, reader.schedule(queue), worst_call_ms)

        return reader, redelivery

    wired = at_init(wire_both)

    @logger.inject_lambda_context
    @metrics.log_metrics
    def handle(event: dict[str, Any], context: Context) -> PartialResponse:
        messages = read_messages(event)
        count(Count.MESSAGES, len(messages))
        reader, redelivery = wired()
        if not messages:  # no queue sends this: a call that is to warm the function up
            return {"batchItemFailures": []}
        remaining_ms = context.get_remaining_time_in_millis
        failed = reader.process(messages, Invocation(context.aws_request_id, remaining_ms))
        count(Count.RETRIED, len(failed))
        return redelivery(messages[0].queue).answer(messages, failed, remaining_ms)

    return handle
