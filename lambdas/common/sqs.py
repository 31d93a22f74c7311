"""Sending events to SQS queues, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.sqs_binding import DATA_TYPE, SqsMessage
from lambdas.common.log import logger

MAX_ENTRIES: Final = 10
"""Most messages in one SendMessageBatch (Amazon SQS quotas)."""

MAX_BYTES: Final = 1024 * 1024
"""Most bytes of one SendMessageBatch, bodies and attributes (Amazon SQS quotas)."""

FIFO_SUFFIX: Final = ".fifo"


def batches(messages: Iterable[SqsMessage]) -> Iterator[list[SqsMessage]]:
    """The messages in their order, cut into what one SendMessageBatch may carry."""
    batch: list[SqsMessage] = []
    size = 0
    for message in messages:
        if len(batch) == MAX_ENTRIES or (batch and size + message.bytes > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.bytes
    if batch:
        yield batch


class SqsSender:
    """Sends batches through a boto3 SQS client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def send(self, queue_url: str, batch: Sequence[SqsMessage]) -> list[bool]:
        """Send one batch; for each of its messages, in order, whether the queue has taken it.

        Never raises for what AWS or the network refuse: a message not taken has to be sent again.
        """
        fifo = queue_url.endswith(FIFO_SUFFIX)
        entries = [_entry(str(at), message, fifo) for at, message in enumerate(batch)]
        try:
            response = self._client.send_message_batch(QueueUrl=queue_url, Entries=entries)
        except (ClientError, BotoCoreError) as error:
            logger.warning("send failed", queue_url=queue_url, messages=len(batch), error=str(error))
            return [False] * len(batch)
        if failures := response.get("Failed", []):
            codes = sorted({failure["Code"] for failure in failures})
            logger.warning("send failed in part", queue_url=queue_url, messages=len(failures), codes=codes)
        # Taken is only what SQS names as taken: an entry that it forgets counts as failed.
        taken = {entry["Id"] for entry in response.get("Successful", [])}
        return [entry["Id"] in taken for entry in entries]


def _entry(id: str, message: SqsMessage, fifo: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "Id": id,
        "MessageBody": message.body,
        "MessageAttributes": {
            name: {"DataType": DATA_TYPE, "StringValue": value} for name, value in message.hints.items()
        },
    }
    if fifo:
        entry["MessageGroupId"] = message.group
        entry["MessageDeduplicationId"] = message.deduplication
    return entry
