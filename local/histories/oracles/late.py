"""After healing all ends within a time that the contract implies; what a reconciler had to mend is late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from eventplane_client.resequencer import GAP_TIMEOUT_S
from local.histories.cloud import PLANE
from local.histories.oracles.finding import Finding
from local.histories.story import ORDERED_INBOX

if TYPE_CHECKING:
    from local.histories.history import History

ALARM_S: Final = 60.0
OTHERS_S: Final = 600.0
"""After healing, seconds; for a device's outbox its batching delay comes on top, and for an inbox that is
sorted the wait for what is missing."""


def judged(history: History) -> Iterator[Finding]:
    """Look at when each event was handled."""
    for (reader, *key), times in history.handled.done.items():
        known = history.said.get(tuple(key))  # type: ignore[arg-type]
        if known is None:
            continue
        said_s, _, service, event = known
        outbox = history.contract.channel(f"{service}.outbox")
        is_urgent = ".alarm." in event.type
        limit_s = ALARM_S if is_urgent else OTHERS_S + outbox.batching_delay_ms / 1_000
        if history.story.is_ordered and reader == ORDERED_INBOX:
            limit_s += GAP_TIMEOUT_S + PLANE.inbox_visibility_s
        if times[0] > max(said_s, history.healed_s) + limit_s:
            yield Finding(
                f"late{' alarm' if is_urgent else ''} at {reader}",
                f"{key}: {times[0] - history.healed_s:.0f} s after healing",
            )
