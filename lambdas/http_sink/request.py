"""An event as an HTTP request, by the CloudEvents HTTP binding of the official SDK.

The SDK's own event cuts a time to microseconds and writes JSON anew. So its binding gets the event's exact
attributes and text through the SDK's `Format`, and only puts them where the specification wants them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat

from eventplane.attributes import attribute_text
from eventplane.contract import WebhookMode
from eventplane.envelope import Envelope, data_of
from eventplane.errors import EnvelopeError
from eventplane.reasons import Reason


@dataclass(frozen=True, slots=True)
class Request:
    """What is posted. `id` is the same for every attempt at the event, and covers what the body does not."""

    id: str
    headers: Mapping[str, str] = field(hash=False)
    body: bytes


def to_request(event: Envelope, mode: WebhookMode) -> Request:
    """The request that carries `event`. Raises `EnvelopeError` where its content type cannot be kept."""
    if mode is WebhookMode.STRUCTURED:
        message = to_structured(cast(BaseCloudEvent, event), _Exact(event.json.encode()))
        return Request(_digest(event.key), message.headers, message.body)
    data, content_type = data_of(event)
    attributes = {name: attribute_text(value) for name, value in event.attributes.items()}
    if content_type is not None:
        if not content_type.isascii():
            raise EnvelopeError(
                Reason.ATTRIBUTE_VALUE, "datacontenttype is not ASCII, which no HTTP header carries"
            )
        attributes["datacontenttype"] = content_type
    message = to_binary(cast(BaseCloudEvent, _Attributes(attributes)), _Exact(data))
    # A signature covers id and body only: through the id it covers the attributes in the headers as well.
    return Request(
        _digest(f"{name}:{value}" for name, value in sorted(message.headers.items())),
        message.headers,
        message.body,
    )


class _Exact(JSONFormat):
    """Writes what it is given, whatever the event says."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def write(self, event: BaseCloudEvent) -> bytes:  # noqa: ARG002 - the SDK's signature
        return self._body

    def write_data(self, data: Any, datacontenttype: str | None) -> bytes:  # noqa: ARG002 - the SDK's signature
        return self._body


class _Attributes:
    """The part of an SDK event that its binary binding asks for."""

    def __init__(self, attributes: dict[str, str]) -> None:
        self._attributes = attributes

    def get_attributes(self) -> dict[str, str]:
        return self._attributes

    def get_data(self) -> None:
        return None


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
