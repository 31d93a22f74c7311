"""Events as MQTT messages: which mode, which bytes, and what is refused."""

import json

import pytest

from eventplane.envelope import EnvelopeError, parse_event, write_event
from eventplane.limits import MAX_MQTT_STRING_BYTES
from eventplane.mqtt_binding import STRUCTURED_JSON, MqttMessage, from_message, to_binary, to_structured

GOOD = (("specversion", "1.0"), ("id", "1"), ("source", "/a"), ("type", "t"))


def reason_of(content_type: str | None, properties: tuple[tuple[str, str], ...], payload: bytes) -> str:
    with pytest.raises(EnvelopeError) as caught:
        from_message(content_type, properties, payload)
    return caught.value.reason


def event(**members: object) -> str:
    return json.dumps({**dict(GOOD), **members})


def test_structured_mode_is_the_exact_text() -> None:
    held = parse_event(' {"type":"t", "id":"1","source":"/a","specversion":"1.0","data" : 1.0}\n')
    message = to_structured(held)
    assert message == MqttMessage(STRUCTURED_JSON, (), held.json.encode())
    assert from_message("Application/CloudEvents+JSON; charset=utf-8", (), message.payload) == held


def test_structured_mode_does_not_look_at_user_properties() -> None:
    assert from_message(STRUCTURED_JSON, (("id", "other"),), event().encode()).id == "1"


def test_binary_mode_is_attributes_as_texts_and_data_as_bytes() -> None:
    held = parse_event(event(count=3, urgent=True, datacontenttype="text/plain", data="é\n"))
    message = to_binary(held)
    assert message.content_type == "text/plain"
    assert message.user_properties == (*GOOD, ("count", "3"), ("urgent", "true"))
    assert message.payload == "é\n".encode()


def test_an_attribute_that_is_always_an_integer_stays_one_in_binary_mode() -> None:
    message = to_binary(parse_event(event(severitynumber=17)))
    assert message.user_properties == (*GOOD, ("severitynumber", "17"))
    again = from_message(message.content_type, message.user_properties, message.payload)
    assert again.attributes["severitynumber"] == 17


@pytest.mark.parametrize(
    ("content_type", "payload"),
    [
        ("application/json", b' {"a": 1.0,\n"b":[1e400]} \r\n'),
        ("application/vnd.example+json; charset=utf-8", b"null"),
        ("Text/JSON", b'"\\u00e9"'),
        ("text/plain", b"\xff\x00 {"),
        (None, b"{}"),
        ("application/json", b""),
        ("image/png", b""),
    ],
)
def test_binary_mode_keeps_the_bytes_of_the_data(content_type: str | None, payload: bytes) -> None:
    held = from_message(content_type, GOOD, payload)
    assert held.attributes.get("datacontenttype") == content_type
    assert to_binary(held) == MqttMessage(content_type, GOOD, payload)


def test_json_stands_in_data_and_all_else_in_base64() -> None:
    assert from_message("application/json", GOOD, b"{}").json.endswith('"data":{}}')
    assert from_message("text/plain", GOOD, b"{}").json.endswith('"data_base64":"e30="}')
    assert "data" not in json.loads(from_message("text/plain", GOOD, b"").json)


def test_data_without_a_content_type_is_json_and_says_so() -> None:
    assert to_binary(parse_event(event(data={"a": 1}))).content_type == "application/json"
    assert to_binary(parse_event(event())).content_type is None
    assert to_binary(parse_event(event(data_base64="AA=="))) == MqttMessage(None, GOOD, b"\x00")


@pytest.mark.parametrize(
    ("content_type", "properties", "payload", "reason"),
    [
        ("application/cloudevents-batch+json", (), b"[]", "unsupported_format"),
        ("application/cloudevents+avro", GOOD, b"", "unsupported_format"),
        (STRUCTURED_JSON, GOOD, b"nonsense", "not_json"),
        (None, (), b"", "missing_attribute"),
        (None, (), b"x", "missing_attribute"),
        (None, (*GOOD, ("id", "2")), b"", "duplicate_key"),
        (None, (*GOOD, ("Room", "2")), b"", "attribute_name"),
        (None, (*GOOD, ("data", "2")), b"", "attribute_name"),
        (None, (*GOOD, ("data_base64", "AA==")), b"", "attribute_name"),
        (None, (*GOOD, ("datacontenttype", "text/plain")), b"", "attribute_name"),
        (None, (*GOOD, ("subject", "")), b"", "attribute_value"),
        (None, (*GOOD, ("room", "\ud800")), b"", "lone_surrogate"),
        (None, (*GOOD, ("severitynumber", "017")), b"", "attribute_value"),
        (None, (*GOOD, ("severitynumber", "ERROR")), b"", "attribute_value"),
        ("nonsense", GOOD, b"", "attribute_value"),
        ("application/json", GOOD, b"{", "not_json"),
        ("application/json", GOOD, b'1,"subject":"x"', "not_json"),
        ("application/json", GOOD, b'{"a":1,"a":2}', "duplicate_key"),
        ("application/json", GOOD, b"\xff", "not_utf8"),
        ("application/json", GOOD, b'\xef\xbb\xbf"x"', "byte_order_mark"),
        ("text/plain", GOOD, b"x" * 100_000, "too_large"),
    ],
)
def test_what_is_no_event_is_refused_with_a_reason(
    content_type: str | None, properties: tuple[tuple[str, str], ...], payload: bytes, reason: str
) -> None:
    assert reason_of(content_type, properties, payload) == reason


def test_what_mqtt_cannot_carry_is_refused() -> None:
    long = write_event({"id": "1", "source": "/a", "type": "t", "note": "x" * (MAX_MQTT_STRING_BYTES + 1)})
    with pytest.raises(EnvelopeError, match=r"too_large.*'note'.*structured"):
        to_binary(long)
    with pytest.raises(EnvelopeError, match="data_not_text"):
        to_binary(parse_event(event(datacontenttype="text/plain", data={})))
