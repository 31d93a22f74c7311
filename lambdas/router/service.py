"""Plan, send, write the ledger, and only then say which messages are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract, Priority
from eventplane.delivery import DEAD_LETTER_TYPE
from eventplane.ledger import LEDGER, Basis, to_line
from eventplane.queue_clock import QueueClock
from lambdas.common.archive import Archive
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count
from lambdas.common.queue import QueueMessage
from lambdas.router.dispatch import Dispatch
from lambdas.router.drawing import Drawing
from lambdas.router.engine import Engine
from lambdas.router.filter_time import MESSAGE_SECONDS as FILTER_SECONDS
from lambdas.router.filter_time import SlowFiltersError
from lambdas.router.in_force import Unseen
from lambdas.router.payload import MESSAGE_SECONDS as PAYLOAD_SECONDS
from lambdas.router.planner import Step
from lambdas.router.report import report
from lambdas.router.waves import waves

RESERVE_MS: Final = 2 * WORST_CALL_MS
"""No batch is sent with less time left, milliseconds: it covers that batch and the ledger at their worst."""

PLANNING_MS: Final = RESERVE_MS + int(1_000 * (PAYLOAD_SECONDS + FILTER_SECONDS))
"""No message is planned with less time left, milliseconds: it covers its slowest payloads and filters."""

MAX_DELIVERIES: Final = 5_000
"""Deliveries after which an invocation plans no further message; the rest of its batch comes again, unsent.
Ours: ten seconds of a router that sends 500 a second, which is what 512 MiB give."""

UNSEEN_RECEIVES: Final = 3
"""Receives of a message at which its urgent events are sent without the contract in force. Ours: Lambda may
have throttled the first of them, and a receiver gets at most so many copies more."""


class RouterService:
    """Routes what comes over one channel. Keeps nothing between two calls but the contract in force.

    While that has not been seen, every message comes again; its urgent events are sent at once all the same,
    by the contract at hand, and later once more by the one in force.
    """

    def __init__(
        self,
        *,
        engine: Callable[[], Engine | Unseen[Engine]],
        dispatch: Dispatch,
        archive: Archive,
        clock: Clock,
        drawing: Drawing | None = None,
    ) -> None:
        self._engine = engine
        self._dispatch = dispatch
        self._archive = archive
        self._clock = clock
        self._queue_clock = QueueClock(clock)
        self._drawing = drawing

    def process(
        self, messages: Sequence[QueueMessage], *, invocation_id: str, remaining_ms: Callable[[], int]
    ) -> frozenset[str]:
        """Route `messages`; the ids of those that have to come again.

        What was sent of a message that comes again will be sent a second time, and the ledger has both.
        """
        began_ms = self._clock()
        self._compare_clocks(messages)
        engine = self._engine()
        if isinstance(engine, Unseen):
            count(Metric.CONTRACT_UNSEEN, len(messages))
            facts = self._route_urgent(engine.engine, messages, remaining_ms)
            failed = {message.id for message in messages}
        elif self._file(engine.contract):
            facts, failed = self._route(engine, messages, remaining_ms)
        else:
            return frozenset(message.id for message in messages)
        if not self._write(facts, invocation_id):
            return frozenset(message.id for message in messages)
        ended_ms = self._clock()
        report(facts, messages, failed, ended_ms)
        if self._drawing:
            self._drawing.draw(facts, began_ms=began_ms, ended_ms=ended_ms, remaining_ms=remaining_ms)
        return frozenset(failed)

    def _compare_clocks(self, messages: Sequence[QueueMessage]) -> None:
        self._queue_clock.observe(messages)
        if skew_ms := self._queue_clock.skew_ms:
            logger.warning("decided by the queue's clock, which this machine's is not at", skew_ms=skew_ms)
            count(Metric.CLOCK_SKEW)

    def _route(
        self, engine: Engine, messages: Sequence[QueueMessage], remaining_ms: Callable[[], int]
    ) -> tuple[list[Step], set[str]]:
        """Plan and send; the facts, and the ids of messages that have to come again."""
        done: list[Step] = []
        failed: set[str] = set()
        tried_once: list[Step] = []
        for wave in waves(messages, failed):
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
        self, engine: Engine, messages: Sequence[QueueMessage], remaining_ms: Callable[[], int]
    ) -> list[Step]:
        """Send the urgent events of `messages`, which all come again; what was sent.

        In a FIFO queue nothing is sent, because it would be out of order.
        """
        early = [each for each in messages if each.group is None and each.attempt <= UNSEEN_RECEIVES]
        urgent = [
            replace(step, record=replace(step.record, basis=Basis.BUNDLED))
            for step in self._plan(engine, early, set(), remaining_ms)
            if _is_urgent(step)
        ]
        if not urgent or not self._file(engine.contract):
            return []
        done, _ = self._send(engine, urgent, remaining_ms)
        return [step for step in done if step.event or step.tried_once]

    def _send(
        self, engine: Engine, steps: Iterable[Step], remaining_ms: Callable[[], int]
    ) -> tuple[list[Step], set[str]]:
        return self._dispatch.send(engine, steps, self._queue_clock(), lambda: remaining_ms() >= RESERVE_MS)

    def _plan(
        self,
        engine: Engine,
        messages: Iterable[QueueMessage],
        failed: set[str],
        remaining_ms: Callable[[], int],
    ) -> list[Step]:
        """Return the steps of `messages`; the ids of those that are not planned are added to `failed`."""
        now_ms = self._queue_clock()
        steps: list[Step] = []
        # Those that came most often first: under load none is left out again and again.
        for message in sorted(messages, key=lambda each: -each.attempt):
            if len(steps) >= MAX_DELIVERIES or remaining_ms() < PLANNING_MS:
                failed.add(message.id)
                continue
            try:
                # Whole or not at all: `+=` would keep, and send each time, what came before the defect.
                steps += self._steps(engine, message, now_ms)
            except Exception:  # noqa: BLE001 - a defect met by one message must not take the others with it
                logger.exception("planning failed", message_id=message.id)
                failed.add(message.id)
        return steps

    def _steps(self, engine: Engine, message: QueueMessage, now_ms: int) -> list[Step]:
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
            count(Metric.SUBSCRIPTION_REFUSED)
            # The ledger names this contract, so that the audit expects the same deliveries.
            self._archive.file_contract(lighter.contract)
            return list(lighter.planner.plan(message, now_ms))

    def _file(self, contract: Contract) -> bool:
        """Archive the contract before anything is decided by it; whether that is done."""
        try:
            self._archive.file_contract(contract)
        except (ClientError, BotoCoreError):
            logger.exception("the contract could not be archived; every message comes again")
            return False
        return True

    def _write(self, facts: Sequence[Step], invocation_id: str) -> bool:
        """Write the ledger as one object, whose name a retry does not repeat; whether it is durable."""
        if not facts:
            return True
        try:
            lines = (to_line(step.record) for step in facts)
            self._archive.put_lines(LEDGER, invocation_id, self._queue_clock(), lines)
        except (ClientError, BotoCoreError):
            logger.exception("the ledger could not be written; every message comes again")
            return False
        return True


def _is_urgent(step: Step) -> bool:
    """Whether the step delivers an urgent event; a dead letter is only as right as the contract at hand."""
    record = step.record
    return step.event is not None and record.priority == Priority.URGENT and record.type != DEAD_LETTER_TYPE
