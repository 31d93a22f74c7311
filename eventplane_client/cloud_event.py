"""Events as the CloudEvents SDK has them. The SDK is loaded only by who uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import Reason
from eventplane_client.errors import extras

if TYPE_CHECKING:
    from cloudevents.core.base import BaseCloudEvent

    AnyEvent: TypeAlias = Envelope | BaseCloudEvent | Mapping[str, Any] | bytes | str
    """An event as the library, the SDK, a dictionary, or JSON has it."""


def envelope_of(event: AnyEvent) -> Envelope:
    """The event, checked, whatever it is written as. Raises `EnvelopeError`."""
    if isinstance(event, Envelope):
        return event
    if isinstance(event, bytes | str):
        return parse_event(event)
    if isinstance(event, Mapping):
        try:
            return write_event({name: event[name] for name in event if name != "data"}, event.get("data"))
        except (TypeError, ValueError, RecursionError) as error:
            raise EnvelopeError(Reason.NOT_JSON, f"{error}; give values that JSON has") from error
    if not hasattr(event, "get_attributes"):
        known = "an Envelope, a dictionary, JSON, or cloudevents.core.v1.event.CloudEvent"
        raise EnvelopeError(Reason.NOT_AN_OBJECT, f"{type(event).__name__} is no event; give {known}")
    with extras():
        from cloudevents.core.formats.json import JSONFormat

    return parse_event(JSONFormat().write(event))


def cloud_event_of(event: Envelope) -> BaseCloudEvent:
    """The event as the SDK's `CloudEvent`. Raises `MissingPackageError`."""
    with extras():
        from cloudevents.core.formats.json import JSONFormat
        from cloudevents.core.v1.event import CloudEvent

    return JSONFormat().read(CloudEvent, event.json)
