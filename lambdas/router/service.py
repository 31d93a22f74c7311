"""Plan, send, write the ledger, and only then say which messages are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract
from eventplane.ledger import LEDGER, to_line
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
from lambdas.router.payload import MESSAGE_SECONDS as PAYLOAD_SECONDS
from lambdas.router.planner import Step
from lambdas.router.report import report
from lambdas.router.waves import waves

RESERVE_MS: Final = 2 * WORST_CALL_MS
"""No batch is sent with less time left, milliseconds: it covers that batch and the ledger at their worst."""

PLANNING_MS: Final = RESERVE_MS + int(1_000 * (PAYLOAD_SECONDS + FILTER_SECONDS))
"""No message is planned with less time left, milliseconds: it covers its slowest payloads and filters."""


class RouterService:
    """Routes what comes over one channel. Keeps nothing between two calls but the contract in force."""

    def __init__(
        self,
        *,
        engine: Callable[[], Engine],
        dispatch: Dispatch,
        archive: Archive,
        clock: Clock,
        drawing: Drawing | None = None,
    ) -> None:
        self._engine = engine
        self._dispatch = dispatch
        self._archive = archive
        self._clock = clock
        self._drawing = drawing

    def process(
        self, messages: Sequence[QueueMessage], *, invocation_id: str, remaining_ms: Callable[[], int]
    ) -> frozenset[str]:
        """Route `messages`; the ids of those that have to come again.

        What was sent of a message that comes again will be sent a second time, and the ledger has both.
        """
        began_ms = self._clock()
        engine = self._engine()
        if not self._file(engine.contract):
            return frozenset(message.id for message in messages)
        facts: list[Step] = []
        failed: set[str] = set()
        for wave in waves(messages, failed):
            steps = self._plan(engine, wave, failed, remaining_ms)
            done, unsent = self._dispatch.send(
                engine, steps, self._clock(), lambda: remaining_ms() >= RESERVE_MS
            )
            failed |= unsent
            # A message that comes again is decided again: until then only what was really sent is a fact.
            facts += [step for step in done if step.event or step.record.message_id not in failed]
        if not self._write(facts, invocation_id):
            return frozenset(message.id for message in messages)
        ended_ms = self._clock()
        report(facts, messages, failed, ended_ms)
        if self._drawing:
            self._drawing.draw(facts, began_ms=began_ms, ended_ms=ended_ms, remaining_ms=remaining_ms)
        return frozenset(failed)

    def _plan(
        self,
        engine: Engine,
        messages: Iterable[QueueMessage],
        failed: set[str],
        remaining_ms: Callable[[], int],
    ) -> list[Step]:
        """The steps of `messages`; those that could not be planned go to `failed`."""
        now_ms = self._clock()
        steps: list[Step] = []
        for message in messages:
            if remaining_ms() < PLANNING_MS:
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
            self._archive.put_lines(LEDGER, invocation_id, self._clock(), lines)
        except (ClientError, BotoCoreError):
            logger.exception("the ledger could not be written; every message comes again")
            return False
        return True
