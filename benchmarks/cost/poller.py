"""Plays event source mappings with a batching window: the emulator has none, and hands out ten at most."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from benchmarks.cloud.functions import PREFIX
from benchmarks.cost.deployment import EventSource
from benchmarks.cost.prices import SQS_BYTES, Units, chunks
from local.cloud import CloudEndpoint

_RECEIVED: Final = 10
"""Messages that Lambda's pollers take and delete with one request."""

_PAYLOAD_BYTES: Final = 5 * 1024 * 1024
"""Bytes of messages in one invocation: AWS Lambda takes 6 MB of JSON, which has more than the bodies."""

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that one invocation got, their bytes, and how many of them it has done."""

    function: str
    messages: int
    bytes: int
    taken: int


class Poller:
    """Invokes the function of `source` with what lies in its queue, in batches as production's are."""

    def __init__(self, cloud: CloudEndpoint, source: EventSource) -> None:
        self.source = source
        self._sqs = cloud.client("sqs")
        self._lambda = cloud.client("lambda")
        self._url = self._sqs.get_queue_url(QueueName=PREFIX + source.queue)["QueueUrl"]

    def drain(self, messages_per_s: float) -> list[Batch]:
        """Work on all messages, as if so many came a second. Raises SystemExit when the function fails.

        Messages that the function gives back come again at once.
        """
        most = max(1, min(self.source.batch_size, ceil(messages_per_s * self.source.window_s)))
        found = []
        for batch in self._batches(most):
            size = sum(len(each["Body"]) for each in batch)
            found.append(Batch(self.source.function, len(batch), size, self._invoke(batch)))
        return found

    def _batches(self, most: int) -> Iterator[Messages]:
        batch: Messages = []
        while received := self._receive(min(_RECEIVED, most - len(batch))):
            batch += received
            if len(batch) == most or sum(len(each["Body"]) for each in batch) >= _PAYLOAD_BYTES:
                yield batch
                batch = []
        if batch:
            yield batch

    def _receive(self, most: int) -> Messages:
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=most,
            VisibilityTimeout=600,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        found: Messages = answer.get("Messages", [])
        return found

    def _invoke(self, batch: Messages) -> int:
        event = {"Records": [_record(each, self.source.queue) for each in batch]}
        answer = self._lambda.invoke(
            FunctionName=PREFIX + self.source.function, Payload=json.dumps(event).encode()
        )
        result = json.loads(answer["Payload"].read())
        if answer.get("FunctionError"):
            raise SystemExit(f"{self.source.function} failed: {json.dumps(result)[:500]}; see its log")
        failed = {each["itemIdentifier"] for each in result.get("batchItemFailures", ())}
        done = [each for each in batch if each["MessageId"] not in failed]
        for start in range(0, len(done), _RECEIVED):
            entries = [
                {"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]}
                for at, each in enumerate(done[start : start + _RECEIVED])
            ]
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
        for each in batch:
            if each["MessageId"] in failed:
                self._sqs.change_message_visibility(
                    QueueUrl=self._url, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0
                )
        return len(done)


def polled(batches: list[Batch]) -> Units:
    """Receiving and deleting the messages of `batches`."""
    units = Units()
    for each in batches:
        for start in range(0, each.messages, _RECEIVED):
            share = min(_RECEIVED, each.messages - start) / each.messages
            units["sqs_request"] += chunks(round(share * each.bytes), SQS_BYTES) + 1
    return units


def _record(message: dict[str, Any], queue: str) -> dict[str, Any]:
    attributes = {
        name: {"stringValue": value.get("StringValue"), "dataType": value["DataType"]}
        for name, value in message.get("MessageAttributes", {}).items()
    }
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": attributes,
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:us-east-1:000000000000:{PREFIX}{queue}",
        "awsRegion": "us-east-1",
    }
