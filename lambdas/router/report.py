"""The router's report of an invocation: figures, and a line for each event that did not arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from eventplane.contract import Priority
from eventplane.ledger import SENT_BEFORE
from eventplane.reasons import Outcome
from lambdas.common.log import logger
from lambdas.common.metrics import Delay, count_outcomes, measure
from lambdas.common.queue import QueueMessage
from lambdas.router.planner import Step


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
        # What goes as it should stands in the ledger; a line for each would cost more than its routing.
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
