"""Every event comes through MQTT, in both modes, and the SDK's binary mode says the same."""

import json
from urllib.parse import unquote

from cloudevents.core.bindings.http import HTTPMessage, from_binary_event, to_binary_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from eventplane.attributes import INTEGERS, attribute_text
from eventplane.envelope import Envelope, EnvelopeError
from eventplane.mqtt_binding import from_message, to_binary, to_structured
from tests.property.test_envelope_properties import EVENTS

CONTENT_TYPES = st.none() | st.sampled_from(
    ["application/json", "text/plain", "a/b+json", "application/cloudevents+json", "application/octet-stream"]
)
NAMES = st.sampled_from(["id", "source", "type", "specversion", "note", "data", "Big"])
PROPERTIES = st.lists(st.tuples(NAMES, st.text(max_size=5)))
GOOD = (("specversion", "1.0"), ("id", "1"), ("source", "/a"), ("type", "t"))


@given(EVENTS)
def test_structured_mode_changes_nothing(event: Envelope) -> None:
    message = to_structured(event)
    assert from_message(message.content_type, message.user_properties, message.payload) == event


@given(EVENTS)
def test_binary_mode_keeps_data_and_attributes_as_texts(event: Envelope) -> None:
    message = to_binary(event)
    again = from_message(message.content_type, message.user_properties, message.payload)
    assert again.data() == event.data()
    assert again.attributes == {
        name: value if name in INTEGERS else attribute_text(value) for name, value in event.attributes.items()
    }
    assert to_binary(again) == message


@given(CONTENT_TYPES, PROPERTIES, st.binary(max_size=60))
def test_any_message_is_an_event_or_a_named_refusal(
    content_type: str | None, properties: list[tuple[str, str]], payload: bytes
) -> None:
    try:
        event = from_message(content_type, properties, payload)
    except EnvelopeError as error:
        assert error.reason
    else:
        assert to_binary(event).payload == payload


@given(st.sampled_from([None, "text/plain", "application/octet-stream"]), st.binary(max_size=60))
def test_any_bytes_come_through(content_type: str | None, payload: bytes) -> None:
    assert to_binary(from_message(content_type, GOOD, payload)).payload == payload


@given(EVENTS)
def test_the_sdk_s_binary_mode_carries_the_same(event: Envelope) -> None:
    ours = to_binary(event)
    theirs = to_binary_event(JSONFormat().read(CloudEvent, event.json))
    # HTTP has a prefix and escapes; the SDK writes a Boolean as Python does and adds a time of its own.
    attributes = {
        name.removeprefix("ce-"): unquote(value).lower()
        for name, value in theirs.headers.items()
        if name not in ("content-type", "ce-time")
    }
    assert {name: value.lower() for name, value in ours.user_properties} == attributes
    assert ours.content_type == theirs.headers.get("content-type")
    if isinstance(event.data(), dict) and event.data():  # other JSON it writes as Python does, or not at all
        assert json.loads(ours.payload) == json.loads(theirs.body)


@given(EVENTS)
def test_the_sdk_reads_our_binary_mode(event: Envelope) -> None:
    ours = to_binary(event)
    headers = {f"ce-{name}": value for name, value in ours.user_properties if name.isascii()}
    if ours.content_type is not None:
        headers["content-type"] = ours.content_type
    theirs = from_binary_event(HTTPMessage(headers, ours.payload))
    assert (theirs.get_source(), theirs.get_type()) == (event.source, event.type)
