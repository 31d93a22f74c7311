"""Stands between clients of AWS and the local cloud, passes all on unchanged, and counts what is billed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Final

from benchmarks.cost.dynamodb import Metering
from benchmarks.cost.prices import SQS_BYTES, Units, chunks
from local.proxy import Answer, Call, Proxy

DYNAMODB: Final = "DynamoDB_20120810."
"""What the name of an action of DynamoDB begins with."""


class Meter(Proxy):
    """Counts the calls that go to `url`, its own address, while in its `with` block; `upstream` answers them.

    A request of SQS counts by the larger of what went and came, as it is on the wire: a little more than what
    AWS meters, which leaves out the JSON around it. A read that found nothing is not counted: it is the price
    of waiting, not of events.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.units: Units = Counter()
        self._lock = threading.Lock()
        self._metering = Metering()

    def answer(self, call: Call) -> Answer:
        """Pass the call on and count it."""
        answer = self.forward(call)
        self._count(call.action, call.body, answer.body)
        return answer

    def take(self) -> Units:
        """The units since the last time."""
        with self._lock:
            units, self.units = self.units, Counter()
            return units

    def _count(self, action: str, request: bytes, answer: bytes) -> None:
        size = max(len(request), len(answer))
        with self._lock:
            if action == "AmazonSQS.ReceiveMessage" and b'"Messages"' not in answer:
                return
            if action.startswith("AmazonSQS."):
                self.units["sqs_request"] += chunks(size, SQS_BYTES)
            elif action.startswith(DYNAMODB):
                operation = action.removeprefix(DYNAMODB)
                self.units += self._metering.units(operation, json.loads(request), json.loads(answer))
            elif action == "PUT":
                self.units["s3_put"] += 1
            elif action in ("GET", "HEAD"):
                self.units["s3_get"] += 1
            elif action != "POST":  # a publish to an ingest rule costs nothing (IoT Core, Basic Ingest)
                raise ValueError(f"{action} has no price here; say what it counts as")
