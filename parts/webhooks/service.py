"""Deliver the events of an inbox to one endpoint; each is delivered, retried later, or a dead letter."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Ordering
from eventplane.contract.schedules import schedule_of
from eventplane.dead_letter import Refusal
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.expiry import why_expired
from eventplane.ledger import HANDOVERS, HandoverRecord, to_line
from eventplane.limits import MAX_RECEIVES
from eventplane.reasons import Outcome
from eventplane.retries import is_reported
from eventplane.sqs_binding import QueueClock, split
from lambdas.common.archive import Archiver
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.dead_letters import DeadLetterWriter
from lambdas.common.log import logger
from lambdas.common.metrics import count_outcomes
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.system import Clock
from parts.webhooks.delivery import RESERVE_MS, NoTimeError, PostFailure, Posting

LISTING_MS: Final = 2 * WORST_CALL_MS
"""An object is not listed with less time left, milliseconds: it covers that, and the answer to the queue."""

MAX_REMEMBERED: Final = 10_000
"""Most events of packed messages that a process remembers as ended while others of their message come again.
Ours: ten full messages, about 1 MB."""

Uniform = Callable[[float, float], float]
"""Gives a random number between two, like `random.uniform`."""


@dataclass(slots=True)
class _Batch:
    """What the messages of one invocation share.

    `failure` is one that all would meet, so that an endpoint that is down is asked once; `held` are the
    message groups that wait, with the seconds.
    """

    remaining_ms: Callable[[], int]
    failure: PostFailure | None = None
    held: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class WebhookService:
    """Hands over the events of an inbox to its webhook by `delivery`, one after the other.

    A message with several events comes again for those that failed, after the longest of their waits.
    """

    delivery: Posting
    letters: DeadLetterWriter
    archive: Archiver
    clock: Clock
    uniform: Uniform
    _done: OrderedDict[str, None] = field(default_factory=OrderedDict, init=False)
    _queue_clock: QueueClock = field(init=False)

    def __post_init__(self) -> None:
        self._queue_clock = QueueClock(self.clock)

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> dict[str, int]:
        """Deliver `messages`; return the ids of those that have to come again, and in how many seconds."""
        batch = _Batch(invocation.remaining_ms)
        self._queue_clock.observe(messages)
        self.delivery.breaker.begin()
        records: list[HandoverRecord] = []
        again: dict[str, int] = {}
        for message in messages:
            waits: list[int] = []
            for part in self._undone(message):
                end = self._handle(part, batch)
                if isinstance(end, HandoverRecord):
                    records.append(end)
                    self._remember(message, part)
                else:
                    waits.append(end)
            if waits:
                again[message.id] = max(waits)
                if self._is_ordered and message.group is not None:
                    batch.held.setdefault(message.group, max(waits))
        self._write(records, invocation)
        outcomes = Counter(record.outcome for record in records)
        count_outcomes(outcomes)
        logger.info("handed over", messages=len(messages), failed=len(again), outcomes=dict(outcomes))
        return again

    @property
    def _is_ordered(self) -> bool:
        return self.letters.channel.ordering is Ordering.SOURCE

    def _undone(self, message: QueueMessage) -> list[QueueMessage]:
        """The events of `message`, each as a message, without those that this process has already ended.

        When it comes again they are in any order: one that makes the endpoint hang ends the attempts at what
        is behind it, which must not be the same events each time.
        """
        try:
            texts = split(message.body)
        except EnvelopeError:
            return [message]  # it becomes a dead letter as it is
        if texts == [message.body]:
            return [message]
        parts = [replace(message, id=f"{message.id}.{at}", body=text) for at, text in enumerate(texts)]
        undone = [each for each in parts if each.id not in self._done]
        return undone if message.attempt == 1 else sorted(undone, key=lambda _: self.uniform(0, 1))

    def _remember(self, message: QueueMessage, part: QueueMessage) -> None:
        if part is not message:
            self._done[part.id] = None
            if len(self._done) > MAX_REMEMBERED:
                self._done.popitem(last=False)

    def _handle(self, message: QueueMessage, batch: _Batch) -> HandoverRecord | int:
        """The end of the message's way, or the seconds until it has to come again."""
        if message.group is not None and message.group in batch.held:
            # In a FIFO queue nothing overtakes what waits.
            return batch.held[message.group]
        if batch.remaining_ms() < RESERVE_MS:
            # Of packed messages thousands may end without an attempt, each with a dead letter.
            return 1
        event: Envelope | None = None
        try:
            event = parse_event(message.body)
            # It may have waited for long: for the endpoint, or for a message that failed before it.
            present_ms = self._queue_clock.at_least(message)
            if reason := why_expired(event, present_ms, message.sent_at_ms, self.letters.channel):
                logger.info("expired", **correlation(message, event), reason=reason)
                return self._record(message, event, Outcome.EXPIRED, reason, None)
            answer = batch.failure or self.delivery.attempt(event, batch.remaining_ms)
        except EnvelopeError as error:
            answer = PostFailure(error.reason, error.detail, None, is_permanent=True)
        except NoTimeError as error:
            return error.seconds
        except Exception as error:  # noqa: BLE001 - a defect met by one message must not take the others with it
            logger.exception("an attempt broke", message_id=message.id)
            answer = PostFailure("defect", repr(error), None)
        if isinstance(answer, int):
            return self._record(message, event, Outcome.DELIVERED, None, answer)
        if answer.is_general:
            batch.failure = replace(answer, failed_at_ms=answer.failed_at_ms or self.clock())
        return self._failed(message, event, answer)

    def _failed(
        self, message: QueueMessage, event: Envelope | None, failure: PostFailure
    ) -> HandoverRecord | int:
        """A dead letter if nothing helps or nothing is left to try; otherwise another attempt, later.

        An event that is too old is given up only if the endpoint has failed since it became so, for this
        event or for another one: a pause alone is no reason. An event at best effort is dropped instead, also
        in a pause: it has one attempt at most.
        """
        if message.is_best_effort and event is not None:
            logger.info(
                "dropped", **correlation(message, event), reason=failure.reason, detail=failure.detail
            )
            return self._record(message, event, Outcome.DROPPED, failure.reason, failure.status)
        now_ms, channel, contract = self.clock(), self.letters.channel, self.letters.contract
        schedule = schedule_of(channel, contract.priority(event, channel) if event else channel.priority)
        age_s = message.age_s(now_ms)
        # On top of the pause of the endpoint.
        wait_s = schedule.wait_s(age_s, message.attempt, self.uniform(0, 1)) + (failure.retry_after_s or 0)
        delay = max(1, math.ceil(wait_s))
        failed_at_ms = now_ms if failure.failed_at_ms is None else failure.failed_at_ms
        is_last = (
            failure.is_permanent
            or schedule.is_over(age_s - (now_ms - failed_at_ms) / 1_000)
            or message.attempt >= MAX_RECEIVES
            # What the queue deletes by itself has no dead letter.
            or (now_ms - message.sent_at_ms) / 1_000 + delay >= channel.retention_s
        )
        report = logger.warning if is_reported(message.attempt, is_last=is_last) else logger.debug
        report(
            "not delivered",
            **correlation(message, event),
            reason=failure.reason,
            status=failure.status,
            detail=failure.detail,
            again_in_s=None if is_last else delay,
            given_up_in_s=max(0, math.ceil(schedule.give_up_after_s - age_s)),
        )
        if is_last and self.letters.refuse(message, event, Refusal(failure.reason, failure.detail)):
            return self._record(message, event, Outcome.DEAD_LETTERED, failure.reason, failure.status)
        return delay

    def _record(
        self,
        message: QueueMessage,
        event: Envelope | None,
        outcome: Outcome,
        reason: str | None,
        status: int | None,
    ) -> HandoverRecord:
        return HandoverRecord(
            decided_at_ms=max(self._queue_clock(), self._queue_clock.at_least(message)),
            entered_at_ms=message.sent_at_ms,
            channel=self.letters.channel.address,
            contract_version=self.letters.contract.version,
            # What was never an event has no names.
            source=event.source if event else "",
            id=event.id if event else "",
            type=event.type if event else "",
            outcome=outcome,
            reason=reason,
            status=status,
            attempt=message.attempt,
            message_id=message.id,
            route=message.route,
            sender=str(event.sender) if event else "",
        )

    def _write(self, records: Sequence[HandoverRecord], invocation: Invocation) -> None:
        """Write the records as one object. If that fails they stand in the log only, a line for each.

        The events are with the endpoint, or dead letters: bringing them back for the sake of a record would
        deliver each once more, for as long as the archive refuses.
        """
        if not records:
            return
        lines = [to_line(record) for record in records]

        def has_time() -> bool:
            return invocation.remaining_ms() >= LISTING_MS

        try:
            self.archive.put_lines(HANDOVERS, invocation.id, self.clock(), lines, has_time)
        except (ClientError, BotoCoreError):
            logger.exception("handovers could not be archived", records=len(lines))
            for line in lines:  # together they may pass what CloudWatch keeps of a line, 1 MB
                logger.error("handover", record=line)


def correlation(message: QueueMessage, event: Envelope | None) -> dict[str, Any]:
    """Return the members of a log line about `message`, which is `event` or None."""
    return {
        "sender": str(event.sender) if event else None,
        "event_source": event.source if event else None,
        "event_id": event.id if event else None,
        "event_type": event.type if event else None,
        "traceparent": event.attributes.get("traceparent") if event else None,
        "route": message.route,
        "message_id": message.id,
        "attempt": message.attempt,
    }
