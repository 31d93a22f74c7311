"""Sending events to SQS queues, many at a time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.envelope import Envelope
from lambdas.common.log import logger

MAX_ENTRIES: Final = 10
"""Most messages in one SendMessageBatch (Amazon SQS quotas)."""

MAX_BYTES: Final = 1024 * 1024
"""Most bytes of one SendMessageBatch, bodies and attributes (Amazon SQS quotas)."""

# SQS accepts the characters of XML 1.0. Strict JSON has already kept all others out, but for these two.
_NOT_XML: Final = re.compile("[\ufffe\uffff]")

FIFO_SUFFIX: Final = ".fifo"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send: an event's exact text, with `hints` as message attributes.

    The hints let a consumer filter without parsing; the body alone is authoritative.
    """

    event: Envelope
    hints: dict[str, str]
    body: str = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        # These two can only stand inside JSON strings, where an escape means the same.
        body = _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", self.event.json)
        hints = sum(len(name) + len("String") + len(value.encode()) for name, value in self.hints.items())
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "bytes", len(body.encode()) + hints)


def batches(messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """The messages in their order, cut into what one SendMessageBatch may carry."""
    batch: list[Outgoing] = []
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

    def send(self, queue_url: str, batch: Sequence[Outgoing]) -> list[bool]:
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


def _entry(id: str, message: Outgoing, fifo: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "Id": id,
        "MessageBody": message.body,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in message.hints.items()
        },
    }
    if fifo:
        order = message.event.attributes.get("partitionkey", message.event.source)
        # Hashed, because SQS allows 128 characters of its own choice; equal keys stay equal.
        entry["MessageGroupId"] = _digest(str(order))
        entry["MessageDeduplicationId"] = _digest("\n".join(message.event.key))
    return entry


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
