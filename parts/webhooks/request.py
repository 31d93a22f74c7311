"""An event as an HTTP request, by the CloudEvents HTTP binding of the official SDK.

The SDK's own event cuts a time to microseconds and writes JSON anew. So its binding gets the event's exact
attributes and text through the SDK's `Format`, and only puts them where the specification wants them.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any, Final, cast

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat

from eventplane.attributes import attribute_text
from eventplane.contract import WebhookMode
from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError
from eventplane.payloads import data_of, is_json
from eventplane.reasons import Reason
from eventplane.strict_json import member_spans


@dataclass(frozen=True, slots=True)
class Posted:
    """A request. `id` is the same for every attempt at the event, and covers what the body does not."""

    id: str
    headers: Mapping[str, str] = field(hash=False)
    body: bytes


def to_request(event: Envelope, mode: WebhookMode) -> Posted:
    """Return the request that carries `event`. Raises `EnvelopeError` if its content type cannot be kept."""
    data, content_type = (b"", None) if mode is WebhookMode.STRUCTURED else data_of(event)
    if not data or str(content_type).lower().startswith(_STRUCTURED):
        # Of binary mode, too: a request without a payload is not permitted (CloudEvents http-webhook, 2.1); a
        # receiver would take data of such a type for the event itself (CloudEvents HTTP binding, 3).
        message = to_structured(cast(BaseCloudEvent, event), _Exact(event.json.encode()))
        return Posted(_digest(event.key), message.headers, message.body)
    attributes = {name: attribute_text(value) for name, value in event.attributes.items()}
    if content_type is not None:
        if not content_type.isascii():
            raise EnvelopeError(
                Reason.ATTRIBUTE_VALUE, "datacontenttype is not ASCII, which no HTTP header carries"
            )
        attributes["datacontenttype"] = content_type
        # JSON is UTF-8 whatever a charset says (RFC 8259, 8.1 and 11).
        if not is_json(content_type) and "data_base64" not in {name for name, *_ in member_spans(event.json)}:
            data = _in_charset(data, content_type)
    message = to_binary(cast(BaseCloudEvent, _Attributes(attributes)), _Exact(data))
    # A signature covers id and body only: through the id it covers the attributes in the headers as well.
    return Posted(
        _digest(f"{name}:{value}" for name, value in sorted(message.headers.items())),
        message.headers,
        message.body,
    )


_STRUCTURED: Final = "application/cloudevents"
"""How the content types of requests begin whose body has the event, or several."""

_XML: Final = re.compile(r"^[^;]*[/+]xml\s*(;|$)", re.IGNORECASE)
_XML_ENCODING: Final = re.compile(rb"""^<\?xml[^>]*?\sencoding\s*=\s*["']([^"']+)""")

_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"})
"""Codecs of Python that are no charset of a text; `idna` takes a time that grows with the square."""


def _in_charset(data: bytes, content_type: str) -> bytes:
    """Return text in UTF-8 in the charset that its content type, or its XML declaration, names.

    Raises `EnvelopeError` (`charset`).
    """
    head = Message()
    head["content-type"] = content_type  # it reads parameters whose quoted values have a semicolon
    charset = head.get_param("charset")
    declared = charset.encode() if isinstance(charset, str) and charset else None
    if declared is None and _XML.match(content_type) and (xml := _XML_ENCODING.match(data)):
        declared = xml[1]
    if declared is None:
        return data
    name = declared.decode("ascii", "replace")
    try:
        if codecs.lookup(name).name not in _NO_CHARSETS:
            return data.decode().encode(name)
        problem = "no charset of a text"
    except (LookupError, ValueError) as error:
        problem = str(error)
    detail = f"{name:.40}: {problem:.200}; declare a charset that has all of its characters, such as utf-8"
    raise EnvelopeError(Reason.CHARSET, detail)


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
