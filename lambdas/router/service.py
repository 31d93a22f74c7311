"""Plan, send, hand over the ledger, and only then say which messages are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, Self

from eventplane.contract import Priority
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.ledger import SENT_BEFORE, Basis
from eventplane.reasons import Outcome
from eventplane.sqs_binding import QueueClock
from lambdas.common.aws import PATIENT, Timeouts
from lambdas.common.ledger import Ledger, LedgerError
from lambdas.common.log import logger
from lambdas.common.metrics import Count, Delay, count, count_outcomes, measure
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.system import Clock
from lambdas.router.active_contract import Unseen
from lambdas.router.dispatch import Dispatch, SendingTime
from lambdas.router.engine import RoutingEngine
from lambdas.router.payload import MESSAGE_SECONDS
from lambdas.router.planner import FILTER_SECONDS, SlowFiltersError, Step


class SpanRecorder(Protocol):
    """Records what the router did, where the part `tracing` is asked for."""

    def record(
        self, facts: Sequence[Step], *, began_ms: int, ended_ms: int, remaining_ms: Callable[[], int]
    ) -> None:
        """Record the `facts` of one invocation, Unix milliseconds. Never raises."""


def fifo_groups(messages: Sequence[QueueMessage], failed: set[str]) -> Iterator[list[QueueMessage]]:
    """`messages` in waves, each to be finished before the next; one of a group never stands beside another.

    The caller adds to `failed` between two waves. The later messages of a group in which one failed are added
    here, and not given out: they must come again after it. Those of a standard queue are all one wave.
    """
    waiting = list(messages)
    while waiting:
        broken = {message.group for message in messages if message.id in failed} - {None}
        failed |= {message.id for message in waiting if message.group in broken}
        wave: list[QueueMessage] = []
        later: list[QueueMessage] = []
        for message in waiting:
            if message.group is not None and any(each.group == message.group for each in wave):
                later.append(message)
            elif message.group not in broken:
                wave.append(message)
        waiting = later
        if wave:
            yield wave


MAX_DELIVERIES: Final = 5_000
"""Deliveries after which an invocation plans no further message; the rest of its batch comes again, unsent.
Ours: ten seconds of a router that sends 500 a second, which is what 512 MiB give."""

MAX_PLANNED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of planned events, one for each delivery, after which an invocation plans no further message. Ours: a
frame of 10 KB may hold 4 MB, of which there are some copies until all is sent, and 100 such a batch."""

UNSEEN_RECEIVES: Final = 3
"""First receives of a message at which its urgent events are sent without the contract in force. Ours: Lambda
may have throttled some of them, and a receiver gets at most so many copies more."""

UNSEEN_AGAIN: Final = 16
"""Beyond them, each so many receives. Ours: where an inbox refused the first ones, an alarm goes out four
minutes after the inbox is back, although the tables are not; other processes make a copy as often."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """With less than `reserve_ms` left no batch is sent, with less than `planning_ms` no message is planned.

    The reserve covers a batch and the ledger's queue at their worst. The archive, where the queue refuses,
    and the wait of messages that come again take what is left (`call_ms` each), or are left out.
    """

    call_ms: int
    reserve_ms: int
    planning_ms: int

    @classmethod
    def of(cls, patience: Timeouts, payload_s: float) -> Self:
        """Return the limits for calls of this `patience`, and payloads that take `payload_s` of a message."""
        call_ms = patience.worst_call_ms
        return cls(call_ms, 2 * call_ms, 2 * call_ms + int(1_000 * (payload_s + FILTER_SECONDS)))

    def of_sending(self, remaining_ms: Callable[[], int]) -> SendingTime:
        """Return the time for calls to destinations, which leaves that of one to the ledger's queue."""
        return SendingTime(remaining_ms, self.reserve_ms, rest_ms=self.call_ms)


LIMITS: Final = TimeLimits.of(PATIENT, MESSAGE_SECONDS)
"""Those of a function that nothing urgent waits for."""


@dataclass(slots=True, kw_only=True)
class RouterService:
    """Routes what comes over one channel, or over the one that `source` tells by the queue of a batch.

    Keeps nothing between two calls that it needs: only the contract in force, and what it delivered of
    messages that come again.

    While the contract in force has not been seen, every message comes again; its urgent events are sent at
    once all the same, by the contract at hand, and decided again later by the one in force.
    """

    engine: Callable[[], RoutingEngine | Unseen[RoutingEngine]]
    dispatch: Dispatch
    ledger: Ledger
    clock: Clock
    source: Callable[[str], str] | None = None
    limits: TimeLimits = LIMITS
    spans: SpanRecorder | None = None
    _queue_clock: QueueClock = field(init=False)

    def __post_init__(self) -> None:
        self._queue_clock = QueueClock(self.clock)

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Route `messages`; return the ids of those that have to come again.

        What was sent of a message that comes again is sent a second time only by another process.
        """
        began_ms = self.clock()
        self._compare_clocks(messages)
        found = self.engine()
        engine = found.engine if isinstance(found, Unseen) else found
        if self.source is not None:
            engine = engine.of(self.source(messages[0].queue))
        if isinstance(found, Unseen):
            count(Count.CONTRACT_UNSEEN, len(messages))
            facts = self._route_urgent(engine, messages, invocation.remaining_ms)
            failed = {message.id for message in messages}
        else:
            facts, failed = self._route(engine, messages, invocation.remaining_ms)
        is_written = self._write(facts, invocation)
        if not is_written:
            records = [*self.dispatch.memory.unwritten, *(step.record for step in facts)]
            unwritten = {each.message_id for each in records}
            failed |= {message.id for message in messages if message.id in unwritten}
        done = (message.id for message in messages if message.id not in failed)
        self.dispatch.memory.end(facts, done, failed, is_written=is_written)
        ended_ms = self.clock()
        report(facts, messages, failed, ended_ms)
        if self.spans:
            self.spans.record(
                facts, began_ms=began_ms, ended_ms=ended_ms, remaining_ms=invocation.remaining_ms
            )
        return frozenset(failed)

    def _compare_clocks(self, messages: Sequence[QueueMessage]) -> None:
        self._queue_clock.observe(messages)
        if skew_ms := self._queue_clock.skew_ms:
            logger.warning("decided by the queue's clock, which this machine's is not at", skew_ms=skew_ms)
            count(Count.CLOCK_SKEW)

    def _route(
        self, engine: RoutingEngine, messages: Sequence[QueueMessage], remaining_ms: Callable[[], int]
    ) -> tuple[list[Step], set[str]]:
        """Plan and send; the facts, and the ids of messages that have to come again."""
        done: list[Step] = []
        failed: set[str] = set()
        tried_once: list[Step] = []
        for wave in fifo_groups(messages, failed):
            steps = self._plan(engine, wave, failed, remaining_ms)
            # What fails at best effort must not take the time of what the next wave promises.
            tried_once += [step for step in steps if step.tried_once]
            promised = [step for step in steps if not step.tried_once]
            sent, unsent = self._send(engine, promised, remaining_ms)
            done += sent
            failed |= unsent
        done += self._send(engine, tried_once, remaining_ms)[0]
        # A message that comes again is decided again: until then only what was really tried is a fact.
        facts = [
            step for step in done if step.event or step.tried_once or step.record.message_id not in failed
        ]
        return facts, failed

    def _route_urgent(
        self, engine: RoutingEngine, messages: Sequence[QueueMessage], remaining_ms: Callable[[], int]
    ) -> list[Step]:
        """Send the urgent events of `messages`, which all come again; what was sent.

        In a FIFO queue nothing is sent, because it would be out of order.
        """
        early = [
            each
            for each in messages
            if each.group is None and (each.attempt <= UNSEEN_RECEIVES or each.attempt % UNSEEN_AGAIN == 0)
        ]
        urgent = [
            replace(step, record=replace(step.record, basis=Basis.BUNDLED))
            for step in self._plan(engine, early, set(), remaining_ms)
            if _is_urgent(step)
        ]
        done, _ = self._send(engine, urgent, remaining_ms)
        return [step for step in done if step.event or step.tried_once]

    def _send(
        self, engine: RoutingEngine, steps: Iterable[Step], remaining_ms: Callable[[], int]
    ) -> tuple[list[Step], set[str]]:
        return self.dispatch.send(engine, steps, self._queue_clock(), self.limits.of_sending(remaining_ms))

    def _plan(
        self,
        engine: RoutingEngine,
        messages: Iterable[QueueMessage],
        failed: set[str],
        remaining_ms: Callable[[], int],
    ) -> list[Step]:
        """Return the steps of `messages`; the ids of those that are not planned are added to `failed`."""
        now_ms = self._queue_clock()
        self._file(engine)
        steps: list[Step] = []
        size = 0
        # Those that came most often first: under load none is left out again and again.
        for message in sorted(messages, key=lambda each: -each.attempt):
            is_full = len(steps) >= MAX_DELIVERIES or size >= MAX_PLANNED_BYTES
            if is_full or remaining_ms() < self.limits.planning_ms:
                failed.add(message.id)
                continue
            try:
                planned = self._steps(engine, message, now_ms)
                steps += planned
                size += sum(len(step.original.json) for step in planned if step.original)
            except Exception:  # noqa: BLE001 - a defect met by one message must not take the others with it
                logger.exception("planning failed", message_id=message.id)
                failed.add(message.id)
        return steps

    def _file(self, engine: RoutingEngine) -> None:
        """Keep in the archive what the audit has to know of the decisions of `engine`."""
        for each in (*engine.contracts, *((engine.offered,) if engine.offered else ())):
            self.ledger.file(each)
        if engine.head:
            self.ledger.file_head(engine.head)

    def _steps(self, engine: RoutingEngine, message: QueueMessage, now_ms: int) -> list[Step]:
        message = replace(message, present_ms=self._queue_clock.at_least(message))
        try:
            return list(engine.planner.plan(message, now_ms))
        except SlowFiltersError as error:
            lighter = engine.lighter()
            kept = {each.name for each in lighter.contract.routes}
            logger.warning(
                "costly subscriptions are left out for a message",
                message_id=message.id,
                contract=lighter.contract.version,
                routes=[each.name for each in engine.contract.routes if each.name not in kept],
                error=str(error),
            )
            count(Count.SUBSCRIPTION_REFUSED)
            # The ledger names this contract, so that the audit expects the same deliveries.
            self._file(lighter)
            return list(lighter.planner.plan(message, now_ms))

    def _write(self, facts: Sequence[Step], invocation: Invocation) -> bool:
        """Hand over `facts`, and those left of earlier invocations; return whether they are durable."""
        records = [*self.dispatch.memory.unwritten, *(step.record for step in facts)]
        try:
            self.ledger.write(
                invocation.id,
                records,
                self._queue_clock(),
                lambda: invocation.remaining_ms() >= self.limits.call_ms,
            )
        except LedgerError:
            logger.exception("the ledger could not be written; the messages come again")
            return False
        return True


def _is_urgent(step: Step) -> bool:
    """Whether the step delivers an urgent event; a dead letter is only as right as the contract at hand."""
    record = step.record
    return step.event is not None and record.priority == Priority.URGENT and record.type != DEAD_LETTER_TYPE


def report(
    facts: Sequence[Step], messages: Sequence[QueueMessage], failed: Collection[str], now_ms: int
) -> None:
    """Log and count the `facts` that came of `messages`, of which the `failed` come again."""
    outcomes = tell(facts)
    _delays(facts, now_ms)
    for message in messages:
        if message.id in failed:
            logger.warning("comes again", message_id=message.id, attempt=message.attempt)
    logger.info("routed", messages=len(messages), failed=len(failed), outcomes=dict(outcomes))


def tell(facts: Sequence[Step]) -> Counter[Outcome]:
    """Count the outcomes of `facts`, and log those that are no delivery."""
    outcomes = Counter(step.record.outcome for step in facts if step.record.reason != SENT_BEFORE)
    count_outcomes(outcomes)
    for step in facts:
        # The ledger has the deliveries; a line for each would cost more than its routing.
        if step.record.outcome not in (Outcome.DELIVERED, Outcome.NO_INTEREST):
            logger.info(step.record.outcome.value, **_correlation(step))
    return outcomes


def _delays(facts: Iterable[Step], now_ms: int) -> None:
    delivered = [step.record for step in facts if step.record.outcome is Outcome.DELIVERED]
    delivered = [each for each in delivered if each.reason != SENT_BEFORE]
    urgent = [each for each in delivered if each.priority == Priority.URGENT]
    for delay, records in ((Delay.DELIVERY, delivered), (Delay.URGENT, urgent)):
        if records:
            measure(delay, max(0, now_ms - min(each.entered_at_ms for each in records)))


def _correlation(step: Step) -> dict[str, Any]:
    """What follows one event through logs, ledger and archive."""
    of = step.record
    return {
        "sender": of.sender,
        "event_source": of.source,
        "event_id": of.id,
        "event_type": of.type,
        "traceparent": step.traceparent,
        "route": of.route,
        "reason": of.reason,
        "client_id": of.client_id,
        "message_id": of.message_id,
        "attempt": of.attempt,
    }
