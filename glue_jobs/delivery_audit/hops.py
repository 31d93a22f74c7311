"""The names of an event's hops: where it can be lost, and over which its latency is taken."""

from __future__ import annotations

from enum import StrEnum


class Hop(StrEnum):
    """A stretch of the way, at the end of which somebody answers for the event. Findings name one."""

    DEVICE_CLOUD = "device_cloud"
    """From the device's store to acceptance by IoT Core, which is where the tap sees it."""
    IOT_RULE = "iot_rule"
    """From IoT Core's acknowledgement, by the device's word, to the rule's queues, where the tap begins."""
    ROUTER = "router"
    """From acceptance, at IoT Core or a cloud service's outbox, to the inbox."""
    INBOX_CONSUMER = "inbox_consumer"
    """From the inbox to its consumer; seen where the consumer is a webhook."""
    ARCHIVE = "archive"
    """The records themselves: what is missing, damaged or contradicts itself there accuses nobody."""


class Span(StrEnum):
    """From where to where a latency is taken."""

    DEVICE_TO_CLOUD = "device_to_cloud"
    """From the producer's `recordedtime` to acceptance by IoT Core."""
    CLOUD_TO_INBOX = "cloud_to_inbox"
    """From acceptance, at IoT Core or a cloud service's outbox, to the destination's inbox."""
    DEVICE_TO_INBOX = "device_to_inbox"
    """All the way."""
    INBOX_TO_CONSUMER = "inbox_to_consumer"
    """From the inbox to the endpoint's answer, or to the end of trying."""
