"""A message of a mapped program becomes an event whose attributes, data and id are as declared."""

import json
from typing import Any

import pytest

from eventplane.contract.mapping import TopicMapping, convert, find, overlap, pointer_problem, topic_problem
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import Reason

TOPIC = "zigbee2mqtt/kitchen/motion"
NOW = "2024-05-01T12:00:00.000Z"


def mapping(topic: str = "zigbee2mqtt/{room}/motion", **settings: Any) -> TopicMapping:
    return TopicMapping("zigbee", "motion", topic, "org.example.motion.v1", **settings)


def event(message: bytes, topic: str = TOPIC, of: TopicMapping | None = None, **settings: Any) -> Envelope:
    """The event that a message becomes."""
    declared = of or mapping(**settings)
    levels = declared.levels(topic)
    assert levels is not None
    said = convert(declared, topic, levels, message)
    assert said is not None
    return parse_event(said.event("home-1", NOW, said.derived_id(7, 0)))


def test_the_source_is_the_topic_on_the_device() -> None:
    found = event(b'{"occupancy": true}')
    assert found.source == "/devices/home-1/zigbee/zigbee2mqtt/kitchen/motion"
    assert (found.type, found.attributes["time"]) == ("org.example.motion.v1", NOW)
    odd = event(b"{}", "a/b \u00fc%?#/c", mapping("a/{x}/c"))
    assert odd.source == "/devices/home-1/zigbee/a/b%20%C3%BC%25%3F%23/c"


def test_the_payload_passes_as_it_is() -> None:
    text = '{ "temperature" : 21.50, "name": "K\u00fcche" }'
    assert event(text.encode()).json.endswith(f'"data":{text}}}')


def test_attributes_and_data_come_from_levels_constants_and_pointers() -> None:
    attributes = {
        "subject": "flat/{room}",
        "link": {"pointer": "/q/0"},
        "severitynumber": 9,
        "gone": {"pointer": "/x"},
    }
    data = {"state": "moved", "room": "{room}", "battery": {"pointer": "/b~1c"}, "off": {"pointer": "/n"}}
    found = event(b'{"q": [5], "b/c": 12.5, "n": null}', attributes=attributes, data=data)
    named = {"subject": "flat/kitchen", "link": 5, "severitynumber": 9}
    assert {name: found.attributes.get(name) for name in attributes} == {**named, "gone": None}
    assert found.data() == {"state": "moved", "room": "kitchen", "battery": 12.5}


def test_text_is_one_string() -> None:
    assert event(b"ON", payload="text").data() == "ON"
    assert event(b"ON", payload="text", data={"state": {"pointer": ""}}).data() == {"state": "ON"}
    with pytest.raises(EnvelopeError) as caught:
        event(b"ON")
    assert caught.value.reason == Reason.NOT_JSON


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xff", Reason.NOT_UTF8),
        (b'{"a": 1, "a": 2}', Reason.DUPLICATE_KEY),
        (b"NaN", Reason.NOT_JSON),
        (b"[" * 1000 + b"]" * 1000, Reason.TOO_DEEP),
        (b'"' + b"x" * 100_000 + b'"', Reason.TOO_LARGE),
        (b'{"s": {}}', Reason.ATTRIBUTE_VALUE),
        (b'{"s": 1.5}', Reason.ATTRIBUTE_VALUE),
    ],
)
def test_what_does_not_fit_is_refused(payload: bytes, reason: Reason) -> None:
    with pytest.raises(EnvelopeError) as caught:
        event(payload, attributes={"subject": {"pointer": "/s"}})
    assert caught.value.reason == reason


def test_no_attribute_replaces_what_the_device_sets() -> None:
    claims = {"source": "/homes/1/voice", "type": "org.example.alarm.v1", "id": "1", "specversion": "2"}
    found = event(b"{}", attributes=claims)
    assert (found.source, found.type) == (event(b"{}").source, "org.example.motion.v1")
    assert found.id != "1"


@pytest.mark.parametrize(
    ("when", "payload", "is_event"),
    [
        ({"/on": True}, b'{"on": true}', True),
        ({"/on": True}, b'{"on": 1}', False),
        ({"/on": 1}, b'{"on": true}', False),
        ({"/on": 1}, b'{"on": 1.0}', True),
        ({"/on": True, "/n": "x"}, b'{"on": true}', False),
        ({"/0/a": "x"}, b'[{"a": "x"}]', True),
        ({"": 5}, b"5", True),
    ],
)
def test_when_says_which_messages_are_events(when: dict[str, Any], payload: bytes, is_event: bool) -> None:
    assert (convert(mapping(when=when), TOPIC, {"room": "kitchen"}, payload) is not None) is is_event


def test_an_id_is_the_message_s_own_or_its_packet_s() -> None:
    declared = mapping(id="/uuid")
    assert event(b'{"uuid": "u-1"}', of=declared).id == "u-1"
    assert event(b'{"uuid": 0}', of=declared).id == "0"
    derived = {event(payload, of=declared).id for payload in (b"{}", b'{"uuid": true}', b'{"uuid": ""}')}
    assert len(derived) == 3
    message = convert(declared, TOPIC, {"room": "kitchen"}, b"{}")
    assert message is not None
    ids = {message.derived_id(mid, attempt) for mid in (7, 8) for attempt in (0, 1)}
    assert len(ids) == 4
    assert message.derived_id(7, 0) == event(b"{}").id


@pytest.mark.parametrize(
    ("pattern", "topic", "levels"),
    [
        ("a/{x}/c", "a/b/c", {"x": "b"}),
        ("a/{x}/{y}", "a//c", {"x": "", "y": "c"}),
        ("a/+/c", "a/b/c", {}),
        ("a/#", "a", {}),
        ("a/{x}/#", "a/b/c/d", {"x": "b"}),
        ("a/{x}", "a/b/c", None),
        ("a/{x}/#", "a", None),
        ("a/b", "a/c", None),
    ],
)
def test_levels_of_a_topic(pattern: str, topic: str, levels: dict[str, str] | None) -> None:
    assert mapping(pattern).levels(topic) == levels


@pytest.mark.parametrize(
    "topic",
    ["", 5, None, "eventplane/x/outbox", "/eventplane/x", "$SYS/x", "+/x", "#", "{a}/x", "a//b", "a/b/",
     "a/#/b", "a/b+", "a/{x}y", "a/{X}", "a/{x}/{x}", "a/}", " a", "a/\n", "a/\0", "a/" + "b" * 200],
)  # fmt: skip
def test_a_wrong_pattern_is_named(topic: object) -> None:
    assert topic_problem(topic)


@pytest.mark.parametrize(("one", "other", "expected"), [
    ("a/b", "a/b", True), ("a/{x}", "a/+", True), ("a/{x}/c", "a/b/{y}", True), ("a/#", "a", True),
    ("a/#", "a/b/c", True), ("a/b/#", "a/{x}", True), ("a/b", "a/c", False), ("a/b", "a/b/c", False),
    ("a/+", "a", False), ("a/b/#", "a/c/#", False), ("a/b/#", "a", False),
])  # fmt: skip
def test_patterns_that_share_a_topic(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected


def test_pointers_by_the_examples_of_rfc_6901() -> None:
    document = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}
    expected = {"": document, "/foo": ["bar", "baz"], "/foo/0": "bar", "/": 0, "/a~1b": 1, "/c%d": 2,
                "/i\\j": 5, '/k"l': 6, "/ ": 7, "/m~0n": 8}  # fmt: skip
    assert {pointer: find(document, pointer) for pointer in expected} == expected
    nowhere = ["/foo/2", "/foo/-", "/foo/00", "/foo/1x", "/foo/0/x", "/x", "/foo/9999999999"]
    assert {find(document, each) for each in nowhere} == {None}
    assert all(pointer_problem(each) for each in ("foo", "/~", "/a~2", 5, None))
    assert not any(map(pointer_problem, [*expected, *nowhere]))


def test_a_mapping_is_written_without_defaults() -> None:
    members = {"topic": "a/{x}", "type": "t", "when": {"/on": True}}
    assert TopicMapping("zigbee", "m", **members).document() == members
    assert json.dumps(mapping(data={}).document()["data"]) == "{}"
