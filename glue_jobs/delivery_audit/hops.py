"""The names of an event's hops on its way up, in latencies and findings."""

from __future__ import annotations

from enum import StrEnum


class Hop(StrEnum):
    """From where to where."""

    DEVICE_TO_CLOUD = "device_to_cloud"
    """From the producer's `recordedtime` to acceptance by IoT Core."""
    CLOUD_TO_INBOX = "cloud_to_inbox"
    """From acceptance, at IoT Core or a cloud service's outbox, to the destination's inbox."""
    DEVICE_TO_INBOX = "device_to_inbox"
    """All the way."""
    TAP = "tap"
    """From acceptance by IoT Core to the archive."""
