"""The MQTT binding of CloudEvents 1.0.2: an event as content type, user properties and payload of a publish.

MQTT 3.1.1 has only payloads, so it has only structured mode: the payload is the event in JSON format, and
`parse_event` and `Envelope.json` are all there is to it. MQTT 5 has both modes, told apart by the content
type. In binary mode an attribute is a text: an Integer or Boolean arrives as a String, unless its name says
what it is (`attributes.INTEGERS`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from eventplane.attributes import INTEGERS, AttributeValue, attribute_text
from eventplane.data_member import data_of, with_data
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.limits import MAX_MQTT_STRING_BYTES

STRUCTURED_JSON = "application/cloudevents+json"
"""The content type of an event in JSON format."""

_CLOUDEVENTS = "application/cloudevents"
_CONTENT_TYPE = "datacontenttype"
_INTEGER = re.compile("0|-?[1-9][0-9]{0,9}")
_NOT_ATTRIBUTES = frozenset({_CONTENT_TYPE, "data", "data_base64"})


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """What an MQTT 5 publish carries of an event; `content_type` None: the property is absent."""

    content_type: str | None
    user_properties: tuple[tuple[str, str], ...]
    payload: bytes


def to_structured(event: Envelope) -> MqttMessage:
    """`event` in structured mode: its exact text. For MQTT 3.1.1 the payload alone."""
    return MqttMessage(STRUCTURED_JSON, (), event.json.encode("utf-8"))


def to_binary(event: Envelope) -> MqttMessage:
    """`event` in binary mode: the payload is its data, nothing else.

    Raises `EnvelopeError` (`too_large`, `data_not_text`) for what MQTT cannot carry.
    """
    properties = tuple(
        (name, attribute_text(value)) for name, value in event.attributes.items() if name != _CONTENT_TYPE
    )
    for name, text in properties:
        if len(text.encode("utf-8")) > MAX_MQTT_STRING_BYTES:
            raise EnvelopeError(
                "too_large",
                f"attribute {name!r} has more than {MAX_MQTT_STRING_BYTES} bytes; send the event structured",
            )
    payload, content_type = data_of(event)
    return MqttMessage(content_type, properties, payload)


def from_message(
    content_type: str | None, user_properties: Iterable[tuple[str, str]], payload: bytes
) -> Envelope:
    """The event of an MQTT 5 publish, in whichever mode. Raises `EnvelopeError`.

    In structured mode the payload alone counts, as user properties are copies at best.
    """
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type == STRUCTURED_JSON:
        return parse_event(payload)
    if media_type.startswith(_CLOUDEVENTS):
        raise EnvelopeError(
            "unsupported_format",
            f"content type {content_type!r}: send one event as {STRUCTURED_JSON}, or in binary mode",
        )
    return _from_binary(content_type, user_properties, payload)


def _from_binary(
    content_type: str | None, user_properties: Iterable[tuple[str, str]], payload: bytes
) -> Envelope:
    members: dict[str, AttributeValue] = {}
    for name, value in user_properties:
        if name in _NOT_ATTRIBUTES:
            remedy = "it is the content type" if name == _CONTENT_TYPE else "it is the payload"
            raise EnvelopeError("attribute_name", f"user property {name!r}: leave it out, {remedy}")
        if name in members:
            raise EnvelopeError("duplicate_key", f"user property {name!r} appears more than once")
        # Canonical digits only, so that the text is the same on the way out.
        members[name] = int(value) if name in INTEGERS and _INTEGER.fullmatch(value) else value
    if content_type is not None:
        members[_CONTENT_TYPE] = content_type
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    return parse_event(with_data(text, content_type, payload))
