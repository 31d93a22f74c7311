"""Events as the CloudEvents SDK has them. The SDK is loaded only by who uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventplane.envelope import Envelope, parse_event

if TYPE_CHECKING:
    from cloudevents.core.base import BaseCloudEvent


def envelope_of(event: Envelope | BaseCloudEvent | bytes | str) -> Envelope:
    """The event, checked, whatever it is written as. Raises `EnvelopeError`."""
    if isinstance(event, Envelope):
        return event
    if isinstance(event, bytes | str):
        return parse_event(event)
    from cloudevents.core.formats.json import JSONFormat

    return parse_event(JSONFormat().write(event))


def cloud_event_of(event: Envelope) -> BaseCloudEvent:
    """The event as the SDK's `CloudEvent`."""
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    return JSONFormat().read(CloudEvent, event.json)
