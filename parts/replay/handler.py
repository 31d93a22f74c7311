"""The replay function: plan an order, send and write the ledger, some events at a time; then it is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice
from typing import Final

from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal
from eventplane.function_settings import RouterSettings
from eventplane.reasons import Reason
from lambdas.common.archive import Archiver
from lambdas.common.aws import client, tables
from lambdas.common.contracts import bundled_contract
from lambdas.common.ledger import Ledger
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from lambdas.common.sender import Senders
from lambdas.common.sqs import SCHEMES, SqsSender
from lambdas.common.system import Clock, cpu_time, random_bytes, system_clock, threads
from lambdas.router.active_contract import Unseen
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import RoutingEngine
from lambdas.router.planner import Step
from lambdas.router.service import LIMITS, tell
from lambdas.router.wiring import Channels, engine_in_force
from parts.replay.tap_files import Orders, Planners, TapFiles

PORTION: Final = 500
"""Steps that are sent and recorded together. Ours: it bounds memory, and what an interruption repeats."""


class OutOfTimeError(Exception):
    """An order is not done, and the function would be killed: the order has to come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayService:
    """Carries out orders; `inboxes` are the destinations that have a queue."""

    engine: Callable[[], RoutingEngine | Unseen[RoutingEngine]]
    orders: Orders
    dispatch: Dispatch
    inboxes: Collection[str]
    ledger: Ledger
    clock: Clock

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Carry out the orders in `messages`; the ids of those that have to come again.

        What was sent of an order that comes again is sent a second time, and the ledger has both. Until the
        contract in force has been seen, every order waits.
        """
        engine = self.engine()
        if isinstance(engine, Unseen):
            count(Count.CONTRACT_UNSEEN, len(messages))
            return frozenset(message.id for message in messages)
        names = (f"{invocation.id}-{number}" for number in numbers())
        remaining_ms = invocation.remaining_ms
        return handle_each(messages, lambda each: self._carry_out(engine, each, names, remaining_ms))

    def _carry_out(
        self,
        engine: RoutingEngine,
        message: QueueMessage,
        names: Iterator[str],
        remaining_ms: Callable[[], int],
    ) -> bool:
        """Whether the whole order in `message` is done. Raises `LedgerError`, and what its files raise."""
        for each in engine.contracts:
            self.ledger.file(each)
        steps = self._deliverable(engine, message, remaining_ms)
        done = 0
        while portion := list(islice(steps, PORTION)):
            facts, unsent = self.dispatch.send(engine, portion, self.clock(), LIMITS.of_sending(remaining_ms))
            facts = [step for step in facts if step.event or not unsent]
            records = [step.record for step in facts]
            self.ledger.write(next(names), records, self.clock(), lambda: remaining_ms() >= LIMITS.call_ms)
            tell(facts)
            done += len(facts)
            if unsent:
                logger.warning("comes again", message_id=message.id, attempt=message.attempt, decisions=done)
                return False
        logger.info("carried out", message_id=message.id, decisions=done)
        return True

    def _deliverable(
        self, engine: RoutingEngine, message: QueueMessage, remaining_ms: Callable[[], int]
    ) -> Iterator[Step]:
        now_ms = self.clock()
        for step in self.orders.steps(engine, message, now_ms):
            if remaining_ms() < LIMITS.planning_ms:
                raise OutOfTimeError
            if step.event is None or step.record.destination in self.inboxes:
                yield step
            elif step.record.type == DEAD_LETTER_TYPE:
                # By the contract of its time; the one in force knows where letters go today.
                yield from engine.planner.letter(message, step.event, now_ms)
            else:
                refusal = Refusal(Reason.DESTINATION_GONE, f"{step.record.destination} has no queue any more")
                yield from engine.planner.dead(step, refusal, now_ms)


def service() -> QueueReader:
    """Return the reader of orders; the settings are those of a router of the devices' outbox.

    Raises `SettingsError`, and what `build_engine` raises of the contract that came with the code.
    """
    settings = RouterSettings.read(os.environ)
    sqs, s3 = SqsSender(client("sqs")), client("s3")
    bundled = bundled_contract()
    channels = Channels.of(settings, bundled)
    in_force = engine_in_force(bundled, settings, tables(), channels)
    bucket = settings.archive_bucket
    senders = Senders.of(channels.inboxes.values(), dict.fromkeys(SCHEMES, sqs))
    replay = ReplayService(
        engine=in_force.engine,
        orders=Orders(TapFiles(s3, bucket), Planners(s3, bucket, settings.source, cpu_time)),
        dispatch=Dispatch(senders, channels.inboxes, threads),
        inboxes=channels.inboxes,
        ledger=Ledger(
            sender=sqs, queue_url=settings.ledger_queue, archive=Archiver(s3, bucket, random_bytes)
        ),
        clock=system_clock,
    )
    return QueueReader(replay.process)


handle = queue_function(service)
