"""Sending to SQS queues, many messages at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.resource_names import FIFO_SUFFIX
from eventplane.sqs_binding import DATA_TYPE
from eventplane_aws.rules import SQS_BATCH, SQS_BATCH_BYTES
from lambdas.common.aws import error_code
from lambdas.common.log import logger
from lambdas.common.sender import TAKEN, Acceptance, Answer, DestinationSender, OutgoingMessage

SCHEMES: Final = frozenset({"http", "https"})
"""What URLs of queues begin with."""

_OF_THE_MESSAGE: Final = frozenset({"BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue"})
"""What SQS says of a message that it will never take. All else, `SenderFault` or not, may be over next time:
a permission, a key, a queue that is being deployed."""


_M = TypeVar("_M", bound=OutgoingMessage)


def batches(messages: Iterable[_M]) -> Iterator[list[_M]]:
    """The messages in their order, cut into what one SendMessageBatch may carry."""
    batch: list[_M] = []
    size = 0
    for message in messages:
        if len(batch) == SQS_BATCH.most or (batch and size + message.bytes > SQS_BATCH_BYTES.most):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.bytes
    if batch:
        yield batch


def send_all(
    sender: DestinationSender,
    url: str,
    messages: Iterable[OutgoingMessage],
    has_time: Callable[[], bool] = lambda: True,
) -> list[bool]:
    """Send `messages` batch by batch; whether each was taken. Nothing is sent once there is no time."""
    taken: list[bool] = []
    for batch in batches(messages):
        answers = sender.send(url, batch) if has_time() else [Answer(Acceptance.AGAIN)] * len(batch)
        taken += [answer.acceptance is Acceptance.TAKEN for answer in answers]
    return taken


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """A message for a standard queue that is no event: a `body`, held back for `delay_s` seconds."""

    body: str
    delay_s: int = 0
    hints: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    tenant: str = ""
    deduplication: str = ""

    @property
    def bytes(self) -> int:
        return len(self.body.encode())


class SqsSender:
    """Sends batches through a boto3 SQS client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def send(self, queue_url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        """Send one batch; the answer for each of its messages, in order.

        Never raises for what AWS or the network refuse.
        """
        fifo = queue_url.endswith(FIFO_SUFFIX)
        entries = [_entry(str(at), message, fifo) for at, message in enumerate(batch)]
        try:
            response = self._client.send_message_batch(QueueUrl=queue_url, Entries=entries)
        except (ClientError, BotoCoreError) as error:
            logger.warning("send failed", queue_url=queue_url, messages=len(batch), error=str(error))
            half = len(batch) // 2
            if half and _is_final(error_code(error)):
                # Whichever it means, or if all are too large together: in the end each gets its own answer.
                return [*self.send(queue_url, batch[:half]), *self.send(queue_url, batch[half:])]
            return [_refused(error_code(error), str(error))] * len(batch)
        failures = {failure["Id"]: failure for failure in response.get("Failed", [])}
        if failures:
            codes = sorted({failure["Code"] for failure in failures.values()})
            logger.warning("send failed in part", queue_url=queue_url, messages=len(failures), codes=codes)
        # Taken is only what SQS names as taken: an entry that it forgets has to be sent again.
        taken = {entry["Id"] for entry in response.get("Successful", [])}
        return [TAKEN if entry["Id"] in taken else _failure(failures.get(entry["Id"])) for entry in entries]


def _failure(failure: Mapping[str, Any] | None) -> Answer:
    if failure is None:
        return Answer(Acceptance.AGAIN, "SQS said nothing of it")
    code = str(failure["Code"])
    return _refused(code, f"{code}: {failure.get('Message', '')}")


def _refused(code: str, detail: str) -> Answer:
    return Answer(Acceptance.NEVER if _is_final(code) else Acceptance.AGAIN, detail)


def _is_final(code: str) -> bool:
    # The query protocol and the JSON one spell it differently (`AWS.SimpleQueueService.X`, `X`).
    return code.rpartition(".")[2] in _OF_THE_MESSAGE


def _entry(id: str, message: OutgoingMessage, fifo: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "Id": id,
        "MessageBody": message.body,
        "MessageAttributes": {
            name: {"DataType": DATA_TYPE, "StringValue": value} for name, value in message.hints.items()
        },
    }
    if isinstance(message, PlainMessage):
        entry["DelaySeconds"] = message.delay_s
    if group := message.group if fifo else message.tenant:
        entry["MessageGroupId"] = group
    if fifo:
        entry["MessageDeduplicationId"] = message.deduplication
    return entry
