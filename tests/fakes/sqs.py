"""SQS in memory: standard and FIFO queues, delays, visibility timeouts and redrive."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count
from types import MappingProxyType
from typing import Any

from botocore.exceptions import ClientError

from eventplane_aws.rules import SQS_FIFO_IN_FLIGHT, SQS_IN_FLIGHT, SQS_VISIBILITY
from lab.aws_requests import broken_rule, problem
from tests.fakes.client import ACCOUNT, REGION, FakeClient
from tests.fakes.clock import FakeClock

_DEDUPLICATION_MS = 300_000
_NOT_ALLOWED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"


@dataclass
class FakeMessage:
    """A message of a queue, and when it is to be seen (again)."""

    id: str
    body: str
    attributes: dict[str, Any]
    sent_ms: int
    visible_ms: int
    number: int
    group: str | None = None
    deduplication: str | None = None
    receives: int = 0
    first_received_ms: int = 0
    handles: set[str] = field(default_factory=set)
    copy: int = 0

    def system_attributes(self) -> dict[str, str]:
        found = {
            "SenderId": "AIDA",
            "SentTimestamp": self.sent_ms,
            "ApproximateReceiveCount": self.receives,
            "ApproximateFirstReceiveTimestamp": self.first_received_ms,
        }
        if self.group is not None:
            found["MessageGroupId"] = self.group
        if self.deduplication is not None:
            found |= {
                "MessageDeduplicationId": self.deduplication,
                "SequenceNumber": f"{self.number:020d}",
            }
        return {name: str(value) for name, value in found.items()}


@dataclass
class FakeQueue:
    """One queue; `messages` are all that are not deleted, in the order in which they were sent."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    messages: list[FakeMessage] = field(default_factory=list)
    known: dict[str, FakeMessage] = field(default_factory=dict)
    attempts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @cached_property
    def arn(self) -> str:
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self.name}"

    @cached_property
    def url(self) -> str:
        return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{self.name}"

    @cached_property
    def is_fifo(self) -> bool:
        return self.name.endswith(".fifo")

    @property
    def redrive(self) -> Mapping[str, Any]:
        return _policy(self.attributes.get("RedrivePolicy") or "{}")


@cache
def _policy(text: str) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return MappingProxyType(found)


class FakeSqs(FakeClient):
    """A boto3 client of SQS. Nothing waits: a receive that finds nothing returns at once."""

    service = "sqs"

    def __init__(self, clock: FakeClock | None = None) -> None:
        super().__init__()
        self.clock = clock or FakeClock()
        self.queues: dict[str, FakeQueue] = {}
        self._numbers = count(1)

    def changed(self, queue: FakeQueue, at_ms: int) -> None:
        """Called when a message of `queue` becomes visible at a moment; does nothing."""

    # For tests.

    def bodies(self, url: str) -> list[str]:
        """The bodies of all messages of a queue, those in flight and delayed included."""
        return [each.body for each in self.queue(url).messages]

    def take(self, url: str) -> list[str]:
        """The bodies of all messages of a queue, which is empty afterwards."""
        taken = self.bodies(url)
        self.queue(url).messages.clear()
        return taken

    def queue(self, url: str, operation: str = "") -> FakeQueue:
        """The queue at `url`."""
        try:
            return self.queues[url.rpartition("/")[2]]
        except KeyError:
            raise self.refusal(_NO_QUEUE, "The specified queue does not exist.", operation) from None

    # Queues.

    def create_queue(self, *, QueueName: str, Attributes: Mapping[str, str] | None = None, **_: Any) -> Any:
        queue = FakeQueue(QueueName, dict(Attributes or {}))
        if queue.is_fifo is not (queue.attributes.get("FifoQueue") == "true"):
            raise self._invalid("a FIFO queue's name ends with .fifo", "CreateQueue")
        return {"QueueUrl": self.queues.setdefault(QueueName, queue).url}

    def delete_queue(self, *, QueueUrl: str) -> Any:
        del self.queues[self.queue(QueueUrl, "DeleteQueue").name]
        return {}

    def purge_queue(self, *, QueueUrl: str) -> Any:
        self.queue(QueueUrl, "PurgeQueue").messages.clear()
        return {}

    def get_queue_url(self, *, QueueName: str, **_: Any) -> Any:
        return {"QueueUrl": self.queue(QueueName, "GetQueueUrl").url}

    def list_queues(
        self, *, QueueNamePrefix: str = "", MaxResults: int = 1_000, NextToken: str = "0"
    ) -> dict[str, Any]:
        names = sorted(name for name in self.queues if name.startswith(QueueNamePrefix))
        start = int(NextToken)
        end = start + MaxResults
        answer: dict[str, Any] = {"QueueUrls": [self.queues[name].url for name in names[start:end]]}
        if len(names) > end:
            answer["NextToken"] = str(end)
        return answer if answer["QueueUrls"] else {}

    def set_queue_attributes(self, *, QueueUrl: str, Attributes: Mapping[str, str]) -> Any:
        self.queue(QueueUrl, "SetQueueAttributes").attributes.update(Attributes)
        return {}

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: Iterable[str] = ()) -> Any:
        queue, now_ms = self.queue(QueueUrl, "GetQueueAttributes"), self.clock()
        hidden = [each for each in queue.messages if each.visible_ms > now_ms]
        delayed = sum(not each.receives for each in hidden)
        found = {
            "QueueArn": queue.arn,
            "VisibilityTimeout": "30",
            **queue.attributes,
            "ApproximateNumberOfMessages": str(len(queue.messages) - len(hidden)),
            "ApproximateNumberOfMessagesNotVisible": str(len(hidden) - delayed),
            "ApproximateNumberOfMessagesDelayed": str(delayed),
        }
        return {"Attributes": _named(found, AttributeNames)}

    # Sending.

    def send_message(self, *, QueueUrl: str, **message: Any) -> Any:
        queue = self.queue(QueueUrl, "SendMessage")
        if wrong := _problem(queue, message):
            raise self.refusal(*wrong, "SendMessage")
        return self._added(queue, message)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:
        queue = self.queue(QueueUrl, "SendMessageBatch")
        self._check_entries(Entries, "SendMessageBatch")
        answer: dict[str, Any] = {}
        for entry in Entries:
            if wrong := _problem(queue, entry) or _broken(entry):
                failed = {"Id": entry["Id"], "SenderFault": True, "Code": wrong[0], "Message": wrong[1]}
                answer.setdefault("Failed", []).append(failed)
            else:
                answer.setdefault("Successful", []).append({"Id": entry["Id"], **self._added(queue, entry)})
        return answer

    def _added(self, queue: FakeQueue, sent: Mapping[str, Any]) -> dict[str, str]:
        now_ms, deduplication = self.clock(), sent.get("MessageDeduplicationId")
        message = queue.known.get(deduplication or "")
        if message is None or now_ms - message.sent_ms >= _DEDUPLICATION_MS:
            number = next(self._numbers)
            delay_s = int(sent.get("DelaySeconds", queue.attributes.get("DelaySeconds", "0")))
            message = FakeMessage(
                id=f"{number:08d}-0000-4000-8000-000000000000",
                body=sent["MessageBody"],
                attributes={name: dict(each) for name, each in sent.get("MessageAttributes", {}).items()},
                sent_ms=now_ms,
                visible_ms=now_ms + 1_000 * delay_s,
                number=number,
                group=sent.get("MessageGroupId"),
                deduplication=deduplication,
            )
            queue.messages.append(message)
            self.changed(queue, message.visible_ms)
            if deduplication is not None:
                queue.known[deduplication] = message
        digest = hashlib.md5(message.body.encode(), usedforsecurity=False).hexdigest()
        return {"MessageId": message.id, "MD5OfMessageBody": digest}

    # Receiving.

    def receive_message(
        self,
        *,
        QueueUrl: str,
        MaxNumberOfMessages: int = 1,
        VisibilityTimeout: int | None = None,
        AttributeNames: Iterable[str] = (),
        MessageSystemAttributeNames: Iterable[str] = (),
        MessageAttributeNames: Iterable[str] = (),
        ReceiveRequestAttemptId: str = "",
        WaitTimeSeconds: int = 0,
        **_: Any,
    ) -> Any:
        queue, now_ms = self.queue(QueueUrl, "ReceiveMessage"), self.clock()
        if self._has_too_many(queue, now_ms, is_short_poll=not WaitTimeSeconds):
            return {}
        if VisibilityTimeout is None:
            VisibilityTimeout = int(queue.attributes.get("VisibilityTimeout", "30"))  # noqa: N806
        system = {*AttributeNames, *MessageSystemAttributeNames}
        if found := queue.attempts.get(ReceiveRequestAttemptId, []):
            return {"Messages": found}
        for message in self._receivable(queue, now_ms):
            if len(found) == MaxNumberOfMessages:
                break
            if message.receives >= queue.redrive.get("maxReceiveCount", float("inf")):
                queue.messages.remove(message)
                self.queue(queue.redrive["deadLetterTargetArn"].rpartition(":")[2]).messages.append(message)
                continue
            message.receives += 1
            message.first_received_ms = message.first_received_ms or now_ms
            message.visible_ms = now_ms + 1_000 * VisibilityTimeout
            handle = f"{message.id}#{message.receives}" + "#copy" * message.copy
            message.handles.add(handle)
            each: dict[str, Any] = {"MessageId": message.id, "ReceiptHandle": handle, "Body": message.body}
            if attributes := _named(message.system_attributes(), system):
                each["Attributes"] = attributes
            if attributes := _named(message.attributes, MessageAttributeNames):
                each["MessageAttributes"] = attributes
            found.append(each)
        if queue.is_fifo and ReceiveRequestAttemptId:
            queue.attempts[ReceiveRequestAttemptId] = found
        return {"Messages": found} if found else {}

    def _has_too_many(self, queue: FakeQueue, now_ms: int, *, is_short_poll: bool) -> bool:
        """Whether all messages are in flight that may be; a short poll of a standard queue is told."""
        rule = SQS_FIFO_IN_FLIGHT if queue.is_fifo else SQS_IN_FLIGHT
        if len(queue.messages) <= rule.most:
            return False
        in_flight = sum(each.receives > 0 and each.visible_ms > now_ms for each in queue.messages)
        if in_flight >= rule.most and is_short_poll and not queue.is_fifo:
            raise self.refusal(rule.code, problem(rule), "ReceiveMessage")
        return in_flight >= rule.most

    @staticmethod
    def _receivable(queue: FakeQueue, now_ms: int) -> list[FakeMessage]:
        """In a FIFO queue nothing of a group is received that has messages in flight."""
        hidden = (
            {each.group for each in queue.messages if each.visible_ms > now_ms} if queue.is_fifo else set()
        )
        return [each for each in queue.messages if each.visible_ms <= now_ms and each.group not in hidden]

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> Any:
        self._delete(self.queue(QueueUrl, "DeleteMessage"), ReceiptHandle)
        return {}

    def delete_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:
        queue = self.queue(QueueUrl, "DeleteMessageBatch")
        self._check_entries(Entries, "DeleteMessageBatch")
        for entry in Entries:
            self._delete(queue, entry["ReceiptHandle"])
        return {"Successful": [{"Id": each["Id"]} for each in Entries]}

    def change_message_visibility(self, *, QueueUrl: str, ReceiptHandle: str, VisibilityTimeout: int) -> Any:
        self._hide(self.queue(QueueUrl, "ChangeMessageVisibility"), ReceiptHandle, VisibilityTimeout)
        return {}

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:
        queue = self.queue(QueueUrl, "ChangeMessageVisibilityBatch")
        self._check_entries(Entries, "ChangeMessageVisibilityBatch")
        answer: dict[str, Any] = {}
        for entry in Entries:
            try:
                self._hide(queue, entry["ReceiptHandle"], entry["VisibilityTimeout"])
            except ClientError as error:
                failed = {"Id": entry["Id"], "SenderFault": True, **error.response["Error"]}
                answer.setdefault("Failed", []).append(failed)
            else:
                answer.setdefault("Successful", []).append({"Id": entry["Id"]})
        return answer

    def _delete(self, queue: FakeQueue, handle: str) -> None:
        queue.messages = [each for each in queue.messages if handle not in each.handles]

    def _hide(self, queue: FakeQueue, handle: str, seconds: int) -> None:
        if not 0 <= seconds <= SQS_VISIBILITY.most:
            raise self._invalid(problem(SQS_VISIBILITY), "ChangeMessageVisibility")
        for message in queue.messages:
            if handle in message.handles:
                message.visible_ms = self.clock() + 1_000 * seconds
                self.changed(queue, message.visible_ms)
                return
        wrong = "The input receipt handle is invalid."
        raise self.refusal("ReceiptHandleIsInvalid", wrong, "ChangeMessageVisibility")

    def _check_entries(self, entries: list[dict[str, Any]], operation: str) -> None:
        prefix, ids = "AWS.SimpleQueueService.", {each["Id"] for each in entries}
        if not entries:
            raise self.refusal(f"{prefix}EmptyBatchRequest", "There should be at least one entry.", operation)
        if len(ids) < len(entries):
            raise self.refusal(f"{prefix}BatchEntryIdsNotDistinct", "Ids are not distinct.", operation)

    def _invalid(self, problem: str, operation: str) -> ClientError:
        return self.refusal("InvalidParameterValue", problem, operation)


def _problem(queue: FakeQueue, message: Mapping[str, Any]) -> tuple[str, str] | None:
    """The code and the words with which SQS refuses `message`."""
    if not message["MessageBody"]:
        return "MissingParameter", "The request must contain the parameter MessageBody."
    if _NOT_ALLOWED.search(message["MessageBody"]):
        return "InvalidMessageContents", "Invalid characters found."
    if queue.is_fifo and not message.get("MessageGroupId"):
        return "MissingParameter", "The request must contain the parameter MessageGroupId."
    return None


def _broken(entry: Mapping[str, Any]) -> tuple[str, str] | None:
    """The same for an entry that breaks a rule of messages; the batch keeps its own rules."""
    rule = broken_rule("sqs", "SendMessage", entry)
    return (rule.code, problem(rule)) if rule else None


def _named(found: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    wanted = set(names)
    return dict(found) if "All" in wanted else {name: found[name] for name in found if name in wanted}
