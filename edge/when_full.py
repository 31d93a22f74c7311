"""What becomes of new events of an outbox for whose priority there is no room."""

from __future__ import annotations

from enum import StrEnum

from eventplane.contract import Channel


class WhenFull(StrEnum):
    """Leave the event with its sender, or take it in the place of the oldest that is not more urgent."""

    REFUSE = "refuse"
    DROP_OLDEST = "drop_oldest"


def when_full(channel: Channel) -> WhenFull:
    """The setting of `channel`."""
    return WhenFull(getattr(channel, "when_full", WhenFull.REFUSE))
