"""The transport of a cloud service: its inbox and outbox queues in Amazon SQS."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import ALL_PERCENT, REPLIES
from eventplane.envelope import Envelope
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.reasons import Reason
from eventplane.resource_names import FIFO_SUFFIX, queue_name
from eventplane.retries import RetrySchedule
from eventplane.sqs_binding import (
    CONTRACT,
    RECEIPTS,
    REDRIVEN,
    RETRIES,
    ROUTE,
    HintsError,
    QueueClock,
    hint_of,
    send_request,
)
from eventplane.values import whole_number
from eventplane_aws.rules import SQS_BATCH, SQS_VISIBILITY, SQS_WAIT
from eventplane_client.aws import code_of, unavailable
from eventplane_client.errors import ClosedError, NotRegisteredError, RefusedError, UnavailableError
from eventplane_client.outbox_order import OutboxOrder
from eventplane_client.ports import Message, ReceiptPort
from eventplane_client.receipts import Receipts
from eventplane_client.system import SYSTEM, System

_log = logging.getLogger(__name__)

FIRST_VISIBILITY_S: Final = 4
"""How long a receive hides a message before its reader extends it, seconds. If the answer is lost, the
message shows again when the client repeats the receive (`eventplane_client.aws`). Ours."""

_SHORT_WAIT_S: Final = 1
"""Longest wait for which the client of short calls is used, seconds: it notices a lost answer sooner."""

_ATTEMPT_BYTES: Final = 16

HINTS: Final = (CONTRACT, RECEIPTS, REDRIVEN, RETRIES, ROUTE)
"""The hints that a reader looks at."""

_NEVER: Final = frozenset({"InvalidMessageContents", "InvalidParameterValue"})
"""What SQS says of a message that it will never take."""


class SqsTransport:
    """Takes part as `participant` through a boto3 SQS client and the queues at the URLs `inbox`, `outbox`.

    `order` numbers what goes into ordered inboxes; without it such events come there in any order. `polls` is
    a client that waits longer for answers than a receive waits for messages; by default `sqs`.
    `first_visibility_s` is how long a receive hides messages of a standard queue that a reader then extends,
    by default `visibility_s`.
    """

    keeps_refused = False

    def __init__(
        self,
        participant: str,
        sqs: Any,
        *,
        inbox: str,
        outbox: str,
        visibility_s: float,
        max_receives: int,
        first_visibility_s: int | None = None,
        inbox_arn: str = "",
        order: OutboxOrder | None = None,
        system: System = SYSTEM,
        polls: Any = None,
        receipts: ReceiptPort | None = None,
    ) -> None:
        self.visibility_s: float | None = visibility_s
        self.max_receives = max_receives
        self.inbox_arn = inbox_arn
        self.receipts = receipts
        self._participant = participant
        self._sqs = sqs
        self._polls = polls or sqs
        self._inbox = inbox
        self._outbox = outbox
        self._order = order
        self._clock = QueueClock(system.now_ms)
        self._system = system
        self._first_visibility_s = first_visibility_s
        self._lossy_until_s = 0.0
        self._closed = False

    @classmethod
    def find(
        cls,
        participant: str,
        environment: str,
        sqs: Any,
        *,
        max_receives: int,
        first_visibility_s: int | None = FIRST_VISIBILITY_S,
        order: OutboxOrder | None = None,
        system: System = SYSTEM,
        polls: Any = None,
    ) -> Self:
        """The queues of `environment`, with their own visibility timeout and limit of receives.

        SQS takes away a message that comes oftener than its limit. The last receive is therefore reserved for
        the dead letter of an event that was in hand at a crash: `max_receives` is one less. For a queue
        without a limit it is `max_receives`. Raises `NotRegisteredError`, `UnavailableError`.
        """
        with unavailable(participant):
            try:
                inbox, outbox = (
                    _queue_url(sqs, environment, f"{participant}-{box}") for box in ("inbox", "outbox")
                )
            except sqs.exceptions.QueueDoesNotExist as error:
                problem = f"the environment {environment!r} has no queues of such a participant"
                remedy = "deploy a contract that has it, or name one that the environment has"
                raise NotRegisteredError(participant, problem, remedy) from error
            names = ["VisibilityTimeout", "RedrivePolicy", "QueueArn"]
            attributes = sqs.get_queue_attributes(QueueUrl=inbox, AttributeNames=names)["Attributes"]
        limit = json.loads(attributes.get("RedrivePolicy", "{}")).get("maxReceiveCount")
        max_receives = max_receives if limit is None else max(1, int(limit) - 1)
        visibility_s = float(attributes["VisibilityTimeout"])
        # What was in hand at a crash is received once before its lease ends, and again when it is in doubt.
        is_shorter = visibility_s > FIRST_VISIBILITY_S and max_receives > 2
        return cls(
            participant,
            sqs,
            inbox=inbox,
            outbox=outbox,
            visibility_s=visibility_s,
            max_receives=max_receives,
            first_visibility_s=first_visibility_s if is_shorter else None,
            inbox_arn=attributes["QueueArn"],
            order=order,
            system=system,
            polls=polls,
            receipts=Receipts(participant, environment, sqs, system),
        )

    def for_replies(self, environment: str) -> Self:
        """The same participant reading the replies to what it asks. Raises `UnavailableError`."""
        name = queue_name(environment, f"{self._participant}-{REPLIES}")
        with unavailable(self._participant):
            url = self._sqs.get_queue_url(QueueName=name)
        return type(self)(
            self._participant,
            self._sqs,
            inbox=str(url["QueueUrl"]),
            outbox=self._outbox,
            visibility_s=0,
            max_receives=self.max_receives,
            first_visibility_s=FIRST_VISIBILITY_S,
            order=self._order,
            system=self._system,
            polls=self._polls,
        )

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:  # noqa: ARG002 (boto3 has its own)
        self._check_open()
        size = len(event.json.encode("utf-8"))
        if size > MAX_SENT_EVENT_BYTES:
            # On a device the forwarder says so; here it would only be found out as a dead letter.
            problem = f"{size} bytes, a participant sends at most {MAX_SENT_EVENT_BYTES}"
            raise RefusedError(self._participant, Reason.TOO_LARGE, problem)
        try:
            numbered = self._order.numbered(event) if self._order and durable else event
            self._sqs.send_message(**send_request(self._outbox, numbered))
        except HintsError as error:
            raise RefusedError(self._participant, Reason.NOT_TAKEN, str(error)) from error
        except (ClientError, BotoCoreError) as error:
            if code_of(error).rpartition(".")[2] in _NEVER:
                raise RefusedError(self._participant, Reason.NOT_TAKEN, str(error)) from error
            if durable:
                raise UnavailableError(self._participant, str(error)) from error
            _log.debug("%s: lost at best effort: %s", self._participant, error)

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        self._check_open()
        wait_s = min(SQS_WAIT.most, math.ceil(timeout_s))
        now, lossy_until_s = self._system.monotonic(), self._lossy_until_s
        hidden_s, more = None, dict[str, Any]()
        if self._inbox.endswith(FIFO_SUFFIX):
            # The repeat gets the same messages.
            more = {"ReceiveRequestAttemptId": self._system.random_bytes(_ATTEMPT_BYTES).hex()}
        elif now >= lossy_until_s and (hidden_s := self._first_visibility_s):
            more = {"VisibilityTimeout": hidden_s}
        # While answers get lost, each costs a receive: their limit should not be reached before that ends.
        self._lossy_until_s = now + (self.visibility_s or 0)
        with unavailable(self._participant):
            answer = (self._polls if wait_s > _SHORT_WAIT_S else self._sqs).receive_message(
                QueueUrl=self._inbox,
                MaxNumberOfMessages=min(most, SQS_BATCH.most),
                WaitTimeSeconds=wait_s,
                **more,
                MessageSystemAttributeNames=[
                    "ApproximateFirstReceiveTimestamp",
                    "ApproximateReceiveCount",
                    "MessageGroupId",
                    "SentTimestamp",
                ],
                MessageAttributeNames=[*HINTS],
            )
        if not answer.get("ResponseMetadata", {}).get("RetryAttempts"):
            self._lossy_until_s = lossy_until_s
        found = []
        for each in answer.get("Messages", []):
            attributes, hints = each["Attributes"], hints_of(partial(hint_of, each))
            found.append(
                Message(
                    body=each["Body"].encode("utf-8", "surrogatepass"),
                    attempt=int(attributes["ApproximateReceiveCount"]),
                    handle=each["ReceiptHandle"],
                    group=group_of(attributes.get("MessageGroupId"), self._inbox, hints["retries"]),
                    sent_at_ms=int(attributes["SentTimestamp"]),
                    received_at_ms=int(attributes.get("ApproximateFirstReceiveTimestamp", 0)) or None,
                    **hints,
                    hidden_s=hidden_s,
                    id=each["MessageId"],
                )
            )
        self._clock.observe(found)
        # A reader that crashes at each start must not spend their receives within seconds.
        if self.visibility_s and (again := [each for each in found if hidden_s and each.attempt > 1]):
            self.extend(again)
        # By SQS's own clock where it tells: this machine's may be minutes wrong.
        answered_at_ms = _answered_at_ms(answer)
        now_ms = answered_at_ms or self._clock()
        return [
            replace(
                each,
                age_s=_age_s(each, now_ms),
                present_ms=answered_at_ms or self._clock.at_least(each),
            )
            for each in found
        ]

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:  # noqa: ARG002
        if self.receipts and not self.receipts.send():
            return list(messages)
        return self._each(self._sqs.delete_message_batch, messages)

    def release(self, message: Message, wait_s: float) -> None:
        self._hide([message], min(math.ceil(wait_s), SQS_VISIBILITY.most))

    def extend(self, messages: Sequence[Message]) -> None:
        self._hide(messages, math.ceil(self.visibility_s or 0))

    def close(self) -> None:
        self._closed = True

    def _hide(self, messages: Sequence[Message], visibility_s: int) -> None:
        self._each(self._sqs.change_message_visibility_batch, messages, VisibilityTimeout=visibility_s)

    def _each(self, operation: Callable[..., Any], messages: Sequence[Message], **more: int) -> list[Message]:
        """Those that failed, which is logged: not deleted or hidden, they come again, and are known then."""
        failed: list[Message] = []
        for batch in _batches(messages):
            entries = [{"Id": str(at), "ReceiptHandle": each.handle, **more} for at, each in enumerate(batch)]
            try:
                answer = operation(QueueUrl=self._inbox, Entries=entries)
            except (ClientError, BotoCoreError) as error:
                _log.warning("%s: %s", self._participant, error)
                failed += batch
                continue
            if refused := answer.get("Failed"):
                _log.warning(
                    "%s: SQS refused %d of %d: %s", self._participant, len(refused), len(batch), refused[0]
                )
                failed += [batch[int(each["Id"])] for each in refused]
        return failed

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(self._participant)


def hints_of(hint: Callable[[str], str | None]) -> dict[str, Any]:
    """Return what the hints of a message say, as members of `Message`; `hint` gives one by its name."""
    return {
        "route": hint(ROUTE),
        "redrive": hint(REDRIVEN),
        "retries": RetrySchedule.read(hint(RETRIES)),
        "receipts": _percent(hint(RECEIPTS)),
        "contract": hint(CONTRACT) or "",
    }


def _percent(hint: str | None) -> int:
    try:
        return whole_number(hint, ALL_PERCENT)
    except ValueError:
        return 0


def group_of(group: str | None, queue: str, retries: RetrySchedule | None) -> str | None:
    """Return the `group` whose order counts of a message in `queue`, a name, URL or ARN; None: no order.

    The contract decides; without a word of it (`retries`) a FIFO queue does. In a standard queue a group only
    shares its capacity among senders.
    """
    is_ordered = queue.endswith(FIFO_SUFFIX) and (retries is None or retries.is_ordered)
    return group if is_ordered else None


def _answered_at_ms(answer: dict[str, Any]) -> int | None:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return round(1_000 * parsedate_to_datetime(headers["date"]).timestamp())
    except (KeyError, ValueError):
        return None


def _age_s(message: Message, now_ms: int) -> float | None:
    first_ms = message.received_at_ms
    return None if first_ms is None else max(0.0, (now_ms - first_ms) / 1_000)


def _queue_url(sqs: Any, environment: str, name: str) -> str:
    """Of the queue, whether it is a FIFO queue or not: the contract decides, and readers do not have it."""
    try:
        return str(sqs.get_queue_url(QueueName=queue_name(environment, name))["QueueUrl"])
    except sqs.exceptions.QueueDoesNotExist:
        return str(sqs.get_queue_url(QueueName=queue_name(environment, name, is_fifo=True))["QueueUrl"])


def _batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    for start in range(0, len(messages), SQS_BATCH.most):
        yield messages[start : start + SQS_BATCH.most]
