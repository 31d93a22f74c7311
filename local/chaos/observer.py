"""Records the metrics of a deployed plane while it runs: queues by sampling, functions by their logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from time import time
from typing import Final

from local.background import Background
from local.chaos.alarms import AGE, Metrics
from local.cloud import CloudEndpoint
from local.emulator import QueuedMessage, failed_invocations, queued_messages

_EVERY_S: Final = 1.0

_POISON_RECEIVES: Final = 3
"""Receives from which the age of the oldest message leaves a message out (Amazon SQS guide)."""

_PREFIX: Final = "/aws/lambda/"


class Observer(Background):
    """Samples the `queues` of `cloud` while its `with` block runs; `log` is the cloud's own."""

    def __init__(self, cloud: CloudEndpoint, queues: Collection[str], log: Path) -> None:
        super().__init__("observer")
        self.metrics = Metrics()
        self._cloud = cloud
        self._queues = queues
        self._log = log
        self._known: defaultdict[str, set[str]] = defaultdict(set)

    def read_logs(self) -> None:
        """Add what the functions logged, and the batches that they failed."""
        logs = self._cloud.client("logs")
        for group in logs.describe_log_groups(logGroupNamePrefix=_PREFIX)["logGroups"]:
            name = group["logGroupName"]
            for page in logs.get_paginator("filter_log_events").paginate(logGroupName=name):
                for event in page["events"]:
                    self.metrics.add_embedded(event["message"])
                    if event["message"].startswith("REPORT "):
                        self._function(name.removeprefix(_PREFIX), "Invocations", event["timestamp"] / 1_000)
        for at, function in failed_invocations(self._log):
            self._function(function, "Errors", at)

    def _function(self, name: str, metric: str, at: float) -> None:
        """Count it for the function, and for all of the account."""
        for dimensions in ({"FunctionName": name}, {}):
            self.metrics.add("AWS/Lambda", metric, dimensions, at, 1.0)

    def _run(self) -> None:
        while not self._ending.wait(_EVERY_S):
            now, found = time(), queued_messages(self._cloud)
            for queue in self._queues if found else ():
                self._sample(queue, found.get(queue, []), now)

    def _sample(self, queue: str, messages: list[QueuedMessage], now: float) -> None:
        visible = sum(each.is_visible for each in messages)
        fresh = {each.id for each in messages} - self._known[queue]
        self._known[queue] |= fresh
        ages = [now - each.sent_at for each in messages if each.receives < _POISON_RECEIVES]
        for metric, value in {
            "ApproximateNumberOfMessagesVisible": visible,
            "ApproximateNumberOfMessagesNotVisible": len(messages) - visible,
            "NumberOfMessagesSent": len(fresh),
            AGE: max([0.0, *ages]),
        }.items():
            self.metrics.add("AWS/SQS", metric, {"QueueName": queue}, now, value)
