"""Nothing is left over: no spool, no queue of a function, no dead-letter queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from eventplane.reasons import REPLAY
from eventplane.resource_names import FIFO_SUFFIX, dead_letter_queue, queue_name
from lab.histories.cloud import ENVIRONMENT
from lab.histories.oracles.finding import OracleFinding
from lab.histories.story import BROKEN, FLAPS_S, SUBSCRIBED

if TYPE_CHECKING:
    from lab.histories.history import History


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at what is left at the end, and at the connections of a drill."""
    ends = Counter(
        thing
        for at_s, thing, what in history.cloud.iot.connections
        if thing in history.homes and what == "disconnected" and at_s > history.drilled_s
    )
    for thing, count in ends.items():
        if count > BROKEN + (len(FLAPS_S) if history.trouble and history.trouble.text == "slow" else 0):
            yield OracleFinding("a connection ends without a cause", f"{thing}: {count} in the drill")
    for thing, count in history.spooled.items():
        if count:
            yield OracleFinding("left in the spool", f"{thing}: {count}")
    for queue in history.cloud.sqs.queues.values():
        name = queue.name.removeprefix(queue_name(ENVIRONMENT, "")).removesuffix(FIFO_SUFFIX)
        if name == dead_letter_queue(REPLAY):
            continue  # an order that failed for an hour is the operator's to repeat
        if queue.messages and (name.endswith("-dlq") or name == "last-resort"):
            yield OracleFinding(f"dead letters in {name}", str(len(queue.messages)))
            continue
        # What was put off when it was sent is not late.
        due = [each for each in queue.messages if each.receives or each.visible_ms <= history.engine.now_ms]
        if due and name in (
            "ingest",
            "urgent",
            "tap",
            "ledger",
            "lifecycle",
            "work",
            SUBSCRIBED,
        ):
            yield OracleFinding(f"left in {name}", str(len(due)))
