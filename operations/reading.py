"""Looking into a queue: messages are hidden while they are looked at, and released afterwards.

SQS cannot peek. A look is a receive: in a dead-letter queue it costs nothing, in any other it is one of the
1,000 that SQS counts. Whoever is killed while looking leaves the messages hidden for `hold_s`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.resource_names import FIFO_SUFFIX
from eventplane_aws.rules import SQS_BATCH

HOLD_S: Final = 120
"""How long messages stay hidden, seconds, if nobody releases them."""

_RECEIVED_S: Final = 3
"""How long a receive hides messages before they are held, seconds: after a lost answer they show again when
the client repeats the receive (`operations.cloud`)."""

UNSEEN: Final = "not looked at: others of their FIFO group must leave first, or they are too many for one run"
"""What is said of messages that `Peek.unseen` counts."""

_COUNTS: Final = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")

_LONG_POLL_S: Final = 1
"""A receive that does not wait asks some of SQS's servers only, and can come back empty from a full queue."""

Message = dict[str, Any]
"""A message as boto3 gives it."""


def counts(sqs: Any, url: str) -> tuple[int, int]:
    """About how many messages wait in a queue, and how many somebody is reading (SQS approximates)."""
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_COUNTS))["Attributes"]
    waiting, hidden = (int(answer[name]) for name in _COUNTS)
    return waiting, hidden


class Peek:
    """The messages of the queue at `url`, each once. Use it in a `with` block, which releases what is left.

    Of a FIFO queue a group's later messages do not show before the earlier ones are deleted or released, and
    what was held for `hold_s` seconds shows again, before others perhaps. `unseen` is about how many messages
    had not shown when the pages ended.
    """

    def __init__(self, sqs: Any, url: str, hold_s: int = HOLD_S) -> None:
        self.unseen = 0
        self._sqs = sqs
        self._url = url
        self._hold_s = hold_s
        self._seen: set[str] = set()
        self._handles: dict[str, str] = {}

    def pages(self) -> Iterator[list[Message]]:
        """The messages, up to `SQS_BATCH.most` at a time, until there are no new ones."""
        while messages := self._receive():
            new = [each for each in messages if each["MessageId"] not in self._seen]
            self._seen |= {each["MessageId"] for each in new}
            if not new:
                break  # they were hidden for so long that they come a second time
            yield new
        if messages or (self._handles and self._url.endswith(FIFO_SUFFIX)):
            self.unseen = max(0, sum(counts(self._sqs, self._url)) - len(self._handles))

    def delete(self, messages: Sequence[Message]) -> list[Message]:
        """Delete `messages`, at most `SQS_BATCH`; those that SQS has not deleted, which will come again."""
        entries = [
            {"Id": str(at), "ReceiptHandle": self._handles.pop(each["MessageId"])}
            for at, each in enumerate(messages)
        ]
        answer = self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
        deleted = {each["Id"] for each in answer.get("Successful", [])}
        return [each for at, each in enumerate(messages) if str(at) not in deleted]

    def _receive(self) -> list[Message]:
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=SQS_BATCH.most,
            VisibilityTimeout=_RECEIVED_S,
            WaitTimeSeconds=_LONG_POLL_S,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        messages: list[Message] = answer.get("Messages", [])
        self._handles |= {each["MessageId"]: each["ReceiptHandle"] for each in messages}
        if messages:
            self._hide([each["ReceiptHandle"] for each in messages], self._hold_s)
        return messages

    def _hide(self, handles: Sequence[str], seconds: int) -> None:
        entries = [
            {"Id": str(at), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for at, handle in enumerate(handles)
        ]
        self._sqs.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handles = list(self._handles.values())
        for start in range(0, len(handles), SQS_BATCH.most):
            try:
                self._hide(handles[start : start + SQS_BATCH.most], 0)
            except (ClientError, BotoCoreError):
                return  # they show again by themselves, and the error that led here must not be hidden
