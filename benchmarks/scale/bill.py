"""What an event costs, from how many share a publish and how many publishes share an invocation."""

from __future__ import annotations

from collections import Counter
from typing import Final

from benchmarks.cost.prices import Units, dollars
from benchmarks.scale.parameters import PRODUCTION

MILLION: Final = 1e6
_TEN: Final = 10
DELIVERIES: Final = 2


def units(*, fill: float, event_s: float, invocation_s: float) -> Units:
    """Of one event that is a publish of its own, two deliveries and their consumers included.

    `fill` messages share an invocation of the router. Whoever reads an inbox gets as many at a time, ten at
    most. The tap is read in production's large batches.
    """
    taken = min(fill, _TEN)
    tap = PRODUCTION["archive_batch_size"]
    seconds = event_s + invocation_s * (1 / fill + 1 / tap)
    found = {
        "iot_rule": 1,
        "iot_action": 2,
        # Handed to two queues; taken and deleted from both; written to, taken from and deleted in inboxes.
        "sqs_request": 2 + 2 / taken + 2 / _TEN + 3 * DELIVERIES / taken,
        "lambda_request": 1 / fill + 1 / tap,
        "s3_put": 1 / fill + 1 / tap,
        "lambda_gb_s": seconds * PRODUCTION["memory_mib"] / 1024,
    }
    return Counter(found)  # type: ignore[arg-type]


def usd_per_million(*, fill: float, event_s: float, invocation_s: float) -> float:
    """The price of a million such events."""
    return MILLION * dollars(units(fill=fill, event_s=event_s, invocation_s=invocation_s))
