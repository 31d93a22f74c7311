"""A look at all queues of the environment: what is in dead-letter queues, and which queue is never empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from eventplane.resource_names import REPLIES_SUFFIX, source_queue
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.metrics import Gauge, measure
from lambdas.common.system import Pool

MOST_CALLS: Final = 8
"""Queues that are looked at at a time."""

_PAGE: Final = 1_000
"""Queues in one answer. Without it SQS answers with as many and gives no token for the others."""

_VISIBLE: Final = "ApproximateNumberOfMessages"


@dataclass(frozen=True, slots=True)
class Look:
    """Messages in dead-letter queues, by queue, and for how many seconds a queue has not been empty."""

    dead_letters: dict[str, int]
    backlog_s: dict[str, int]


class Queues:
    """Looks at the queues whose names begin with `prefix`, through a boto3 SQS client.

    SQS reports the age of a message to CloudWatch only, for a price by queue. What is seen here is how long a
    queue has had a message in each look of this process: a new process begins anew.
    """

    def __init__(self, *, sqs: Any, prefix: str, clock: Clock, pool: Pool) -> None:
        self._sqs = sqs
        self._prefix = prefix
        self._clock = clock
        self._pool = pool
        self._since_ms: dict[str, int] = {}

    def look(self) -> Look:
        """Count what waits, and write it as metrics. Raises botocore's errors."""
        now_ms, urls = self._clock(), list(self._urls())
        calls = {_name(each): self._pool.submit(self._count, each) for each in urls}
        counts = {name: call.result() for name, call in calls.items()}
        dead = {name: number for name, number in counts.items() if number and source_queue(name)}
        waiting = [name for name, number in counts.items() if number and name not in dead]
        self._since_ms = {name: self._since_ms.get(name, now_ms) for name in waiting}
        backlog = {name: (now_ms - since) // 1_000 for name, since in self._since_ms.items()}
        measure(Gauge.DEAD_LETTERS, sum(dead.values()))
        measure(Gauge.BACKLOG, max(backlog.values(), default=0))
        if dead:
            logger.warning("dead-letter queues have messages", queues=dead)
        return Look(dead, backlog)

    def _urls(self) -> Iterator[str]:
        """All queues but those for replies, which nobody has to read."""
        pages = self._sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix=self._prefix, PaginationConfig={"PageSize": _PAGE}
        )
        for page in pages:
            yield from (
                each for each in page.get("QueueUrls", []) if not _name(each).endswith(REPLIES_SUFFIX)
            )

    def _count(self, url: str) -> int:
        try:
            answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[_VISIBLE])
        except self._sqs.exceptions.QueueDoesNotExist:
            return 0  # SQS lists a deleted queue for up to a minute
        return int(answer["Attributes"][_VISIBLE])


def _name(url: str) -> str:
    return url.rpartition("/")[2]
