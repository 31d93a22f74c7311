"""The same events by other ways, priced by the same list and with the same consumers."""

from __future__ import annotations

from collections import Counter
from typing import Final

from benchmarks.cost.prices import Units

_TEN: Final = 10
DELIVERIES: Final = 2


def eventbridge() -> Units:
    """One event through an EventBridge bus to two queues; how it gets there from a device is free here."""
    return Counter({"eventbridge_event": 1, "sqs_request": DELIVERIES})


def unbatched(gb_s: float) -> Units:
    """One event: rule, queue, a function that takes ten and writes to two queues; no ledger, no archive.

    `gb_s` is the time of our router for an event of a batch.
    """
    sent, taken_and_deleted, delivered = 1, 2 / _TEN, DELIVERIES / _TEN
    units = {
        "iot_rule": 1,
        "iot_action": 1,
        "sqs_request": sent + taken_and_deleted + delivered,
        "lambda_request": 1 / _TEN,
        "lambda_gb_s": gb_s,
    }
    return Counter(units)  # type: ignore[arg-type]
