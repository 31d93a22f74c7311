"""What receipts from the tap would cost, for which devices would keep acknowledged events (ADR 29)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from benchmarks.cost.deployment import MONTH_H, MONTH_S, Deployment
from benchmarks.cost.prices import Units

_CALL_S: Final = 0.010
"""How long the tap's writer would wait for a publish to a device, seconds. Estimated: calls in one region."""

_COPIES: Final = 2
"""A message from the cloud is metered as it comes to IoT Core and as it goes to the device."""

_WRITER: Final = "archive-writer"


def receipts(deployment: Deployment, frames: float, *, hourly: bool = False) -> Units:
    """Return the units a month of the receipts of a device that sends `frames` a month.

    Each batch of the tap's writer answers the devices of its frames with the numbers that it wrote, without
    any state. `hourly` gathers them in a table, which each batch reads and writes, until the hour ends.
    """
    writer = deployment.functions[_WRITER]
    (window_s,) = (each.window_s for each in deployment.mappings if each.function == _WRITER)
    batches = min(frames, MONTH_S / max(1, window_s))
    published = min(batches, MONTH_H) if hourly else batches
    state = {"dynamodb_read": batches, "dynamodb_write": batches} if hourly else {}
    calls = published + (2 * batches if hourly else 0)
    gb_s = calls * _CALL_S * writer.memory_mib / 1024
    return Counter({"iot_message": _COPIES * published, "lambda_gb_s": gb_s, **state})  # type: ignore[arg-type, dict-item]
