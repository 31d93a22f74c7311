"""The envelope: what is an event, what is refused and why, and that its text is never changed."""

import json

import pytest

from edge.numbering import stamp
from eventplane import fast_reader, strict_json
from eventplane.envelope import parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.hops import sent_on
from eventplane.limits import MAX_DEPTH, MAX_EVENT_BYTES, MAX_HOPS, MAX_SENT_EVENT_BYTES
from parts.replay.order import marked

GOOD = {"specversion": "1.0", "id": "1", "source": "/homes/1/voice", "type": "org.example.help.v1"}


def text(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


def reason_of(raw: bytes | str) -> str:
    with pytest.raises(EnvelopeError) as caught:
        parse_event(raw)
    return caught.value.reason


@pytest.mark.parametrize("before", ["", "x" * 250, "x" * 499, "é" * 500])
def test_a_number_has_1000_characters_at_most_wherever_it_stands(before: str) -> None:
    def data(digits: int) -> str:
        return text(note=f"x{before}")[:-1] + ',"data":[' + "7" * digits + ',"' + "7" * 3_000 + '"]}'

    assert parse_event(data(1_000)).json == data(1_000)
    assert reason_of(data(1_001)) == "number_too_long"


def test_text_passes_through_untouched() -> None:
    raw = b' { "type":"t" ,"source" : "/a","id":"\\u00e9","specversion":"1.0", "data" : [1.0, 1e308,  "x"]}\n'
    assert parse_event(raw).json.encode() == raw


def test_attributes_keep_their_types_and_null_is_unset() -> None:
    event = parse_event(text(urgent=True, most=2**31 - 1, least=-(2**31), subject=None))
    assert event.attributes == {**GOOD, "urgent": True, "most": 2**31 - 1, "least": -(2**31)}
    assert event.attributes["urgent"] is True


@pytest.mark.source("P12")
def test_listing_1_of_the_paper_is_an_event() -> None:
    listing = {
        "specversion": "1.0",
        "type": "caru.sensor.voice",
        "source": "crn:eu:::device:device:TEST-DEVICE",
        "id": "A234-1234-1234",
        "time": "2018-04-05T17:31:00Z",
        "contenttype": "application/protobuf",
        "data_base64": "aGVscA==",
    }
    event = parse_event(json.dumps(listing))
    assert event.attributes["contenttype"] == "application/protobuf"
    assert event.data() == b"help"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xef\xbb\xbf" + text().encode(), "byte_order_mark"),
        (b"\xff{}", "not_utf8"),
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"nonsense", "not_json"),
        (text() + "x", "not_json"),
        (text()[:-1] + ',"x":NaN}', "not_json"),
        (text()[:-1] + ',"x":-Infinity}', "not_json"),
        (text()[:-1] + ',"x":' + "9" * 5_000 + "}", "number_too_long"),
        (text()[:-1] + ',"data":' + "9" * 1_001 + "}", "number_too_long"),
        (text()[:-1] + ',"data":[{"a":-0.' + "1" * 998 + "}]}", "number_too_long"),
        (text()[:-1] + ',"data":1e' + "0" * 999 + "}", "number_too_long"),
        (text()[:-1] + ',"data":{"v":1e999}}', "number_too_large"),
        (text()[:-1] + ',"data":[-1.5E+400]}', "number_too_large"),
        (text()[:-1] + ',"data":' + "9" * 400 + ".0}", "number_too_large"),
        (text(dataschema="https://example.org/s#a"), "attribute_value"),
        (text()[:-1] + ',"id":"2"}', "duplicate_key"),
        (text()[:-1] + ',"data":{"a":1,"a":2}}', "duplicate_key"),
        (text()[:-1] + ',"data":"\\ud800"}', "lone_surrogate"),
        (text()[:-1] + ',"data":' + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1) + "}", "too_deep"),
        (text()[:-1] + ',"data":' + "[" * 100_000 + "]" * 100_000 + "}", "too_large"),
        (text()[:-1] + ',"data":' + "[" * 40_000 + "]" * 40_000 + "}", "too_deep"),
        (text(data="x" * MAX_EVENT_BYTES), "too_large"),
        ("[]", "not_an_object"),
        ('"text"', "not_an_object"),
        ("null", "not_an_object"),
        (text(data=1, data_base64="AA=="), "data_twice"),
        (text(data_base64="A"), "data_base64"),
        (text(data_base64="A A="), "data_base64"),
        (text(data_base64=1), "data_base64"),
        (text(Upper="x"), "attribute_name"),
        (text(**{"with-hyphen": "x"}), "attribute_name"),
        (text(**{"line\n": "x"}), "attribute_name"),
        (text(**{"": "x"}), "attribute_name"),
        (text(**{"n" * 65: "x"}), "attribute_name"),
        (text(number=2**31), "attribute_value"),
        (text(number=1.5), "attribute_value"),
        (text(nested={}), "attribute_value"),
        (text(control="a\x00b"), "attribute_value"),
        (text(id=""), "attribute_value"),
        (text(id=7), "attribute_value"),
        (text(type=True), "attribute_value"),
        (text(specversion="0.3"), "attribute_value"),
        (text(source="not a uri"), "attribute_value"),
        (text(time="yesterday"), "attribute_value"),
        (text(control="a\x7fb"), "attribute_value"),
        (text(control="\xe9\x85"), "attribute_value"),
        (text(control="\ufdd0"), "attribute_value"),
        (text(expirytime="soon"), "attribute_value"),
        (text(dataschema="relative/schema"), "attribute_value"),
        (text(datacontenttype="json"), "attribute_value"),
        (text(subject=""), "attribute_value"),
        (text(severitynumber=0), "attribute_value"),
        (text(severitynumber=25), "attribute_value"),
        (text(severitynumber=True), "attribute_value"),
        (text(severitynumber=17.0), "attribute_value"),
        (text(severitytext=""), "attribute_value"),
        (text(traceparent="4bf92f3577b34da6"), "attribute_value"),
        (text(traceparent=True), "attribute_value"),
        (text(tracestate=1), "attribute_value"),
        (text(sequence=""), "attribute_value"),
        (text(partitionkey=""), "attribute_value"),
        (text(expirytime=0), "attribute_value"),
        (text(recordedtime="12:00"), "attribute_value"),
        ("\ufeff" + text(), "byte_order_mark"),
        (text(data="~").replace("~", "\ud800"), "lone_surrogate"),
        *((text(routerhops=count), "attribute_value") for count in ("1", -1, True, 1.5, 2**31)),
        (text(id=None), "missing_attribute"),
        ("{}", "missing_attribute"),
    ],
)
def test_malformed_events_are_refused_with_a_reason(raw: bytes | str, reason: str) -> None:
    assert reason_of(raw) == reason


@pytest.mark.parametrize(
    ("extension", "says"),
    [
        ({"severitynumber": "17"}, "'severitynumber': a String is given, an Integer is needed"),
        ({"sequence": True}, "'sequence': a Boolean is given, a String is needed"),
    ],
)
def test_a_refusal_names_the_attribute_and_what_it_must_be(extension: dict[str, object], says: str) -> None:
    with pytest.raises(EnvelopeError, match=says):
        parse_event(text(**extension))


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "Application/vnd.a-b.c+json; charset=utf-8",
        'multipart/mixed; boundary="a;\\\\\\" b"; q=1',
        "text/plain; title*=utf-8'en'a%20b",
    ],
)
def test_media_types_with_any_parameters_pass(media_type: str) -> None:
    assert parse_event(text(datacontenttype=media_type)).attributes["datacontenttype"] == media_type


@pytest.mark.parametrize("size", [MAX_EVENT_BYTES, MAX_EVENT_BYTES + 1])
@pytest.mark.parametrize("character", ["x", "é"])
def test_a_text_has_the_size_of_its_bytes(character: str, size: int) -> None:
    room = size - len(text(data=""))
    raw = text(data="~").replace(
        "~", character * (room // len(character.encode())) + "x" * (room % len(character.encode()))
    )
    assert len(raw.encode()) == size
    for form in (raw, raw.encode()):
        if size > MAX_EVENT_BYTES:
            assert reason_of(form) == "too_large"
        else:
            assert parse_event(form).json == raw


MEMBERS = '"specversion":"1.0","id":"1","source":"/a","type":"t"'
"""In the rows below: three dots."""


@pytest.mark.parametrize(
    ("before", "attributes", "after"),
    [
        ("{...}", {"deviceepoch": "e", "hop": 7}, '{"deviceepoch":"e","hop":7,...}'),
        (' \n{ ... ,"data" : 1.0}', {"hop": 1}, '{"hop":1, ... ,"data" : 1.0}'),
        ('{...,"hop":null,"data":[1.50]}', {"hop": 1}, '{...,"hop":1,"data":[1.50]}'),
        ('{...,"h\\u006fp":2}', {"hop": 3}, '{...,"h\\u006fp":3}'),
        ('{...,"data":{"hop":1}}', {"hop": 2}, '{"hop":2,...,"data":{"hop":1}}'),
        ('{...,"data":"\\"hop\\":1"}', {"hop": 2}, '{"hop":2,...,"data":"\\"hop\\":1"}'),
    ],
    ids=["in front", "before spaces", "where it is unset", "spelt with escapes", "in data", "quoted in data"],
)
def test_only_the_attribute_changes(before: str, attributes: dict[str, str | int], after: str) -> None:
    written = parse_event(before.replace("...", MEMBERS)).with_attributes(attributes)
    assert written.json == after.replace("...", MEMBERS)
    assert written == parse_event(written.json)


def test_a_stamp_never_replaces_an_attribute() -> None:
    with pytest.raises(EnvelopeError, match="reserved_attribute"):
        parse_event(text(deviceepoch="mine")).stamped(deviceepoch="e1")


def test_written_events_are_strict() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t"}, {"temperature": 21.5})
    assert event.data() == {"temperature": 21.5}
    assert event.attributes["datacontenttype"] == "application/json"
    with pytest.raises(ValueError, match="Out of range float"):
        write_event({"id": "1", "source": "/a", "type": "t"}, float("nan"))


def test_neither_a_hop_nor_a_mark_is_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t"}, {"a": 1})

    def again(*_: object) -> None:
        raise AssertionError("the event is parsed again")

    monkeypatch.setattr(fast_reader, "attributes_of", again)
    monkeypatch.setattr(strict_json, "loads", again)
    changed = marked(sent_on(event), 0)
    monkeypatch.undo()
    assert changed == parse_event(changed.json)


def test_each_hop_is_counted_up_to_a_limit() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t"})
    for number in range(1, MAX_HOPS + 1):
        event = sent_on(event)
        assert event.attributes["routerhops"] == number
    with pytest.raises(EnvelopeError, match="sent on 9 times, 8 are allowed") as caught:
        sent_on(event)
    assert caught.value.reason == "hop_limit"


def test_an_event_without_room_for_its_hops_is_too_large() -> None:
    room = MAX_EVENT_BYTES - len(write_event({"id": "1", "source": "/a", "type": "t"}, "").json)
    with pytest.raises(EnvelopeError, match=f"send at most {MAX_SENT_EVENT_BYTES}") as caught:
        sent_on(write_event({"id": "1", "source": "/a", "type": "t"}, "x" * room))
    assert caught.value.reason == "too_large"


def test_the_largest_event_has_room() -> None:
    bare = len(write_event({"id": "1", "source": "/a", "type": "t"}, "").json)
    largest = write_event({"id": "1", "source": "/a", "type": "t"}, "x" * (MAX_SENT_EVENT_BYTES - bare))
    event = stamp(largest, "e" * 16, 10**11)
    for _ in range(MAX_HOPS):
        event = sent_on(event)
    assert marked(event, 0).attributes["replayedtime"]


def test_a_duplicate_member_is_found_in_time_linear_in_the_members() -> None:
    """Each name was compared with all: 100 kB of names took seconds of a function."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

    names = [*map(str, range(1_000)), "last", "last"]
    with pytest.raises(EnvelopeError, match="'last' appears more than once"):
        strict_json._unique_members([(Name(each), None) for each in names])
    assert compared < 10 * len(names)
