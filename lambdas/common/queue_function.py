"""The entry of every function that reads a queue: log, metrics, wiring, and the answer to the queue."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache
from typing import Any, Final, TypeAlias, TypeVar

from eventplane.function_settings import QueueSettings
from eventplane.other_json import use_json
from eventplane.resource_names import queue_url
from eventplane.retries import ROUTINE, RetrySchedule
from lambdas.common.aws import PATIENT, Timeouts, client
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count, metrics
from lambdas.common.queue import Context, Invocation, QueueMessage, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery
from lambdas.common.system import chance, system_clock

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
