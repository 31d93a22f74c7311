"""The envelope: what is an event, what is refused and why, and that its text is never changed."""

import json

import pytest

from eventplane.envelope import parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_DEPTH, MAX_EVENT_BYTES

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


def test_attributes_keep_their_types() -> None:
    event = parse_event(text(count=3, urgent=True, note="x"))
    assert (event.attributes["count"], event.attributes["urgent"], event.attributes["note"]) == (3, True, "x")
    assert event.claim == ("/homes/1/voice", "1")


def test_null_attribute_is_unset() -> None:
    assert "subject" not in parse_event(text(subject=None)).attributes


@pytest.mark.source("P12")
def test_listing_1_of_the_router_paper_is_an_event_with_contenttype_as_extension() -> None:
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
        (text(source="/%zz"), "attribute_value"),
        (text(time="yesterday"), "attribute_value"),
        (text(time="2023-02-30T00:00:00Z"), "attribute_value"),
        (text(time="2023-02-03T24:00:00Z"), "attribute_value"),
        (text(time="2023-02-03T00:60:00Z"), "attribute_value"),
        (text(time="2023-02-03T00:00:61Z"), "attribute_value"),
        (text(time="0000-02-03T00:00:00Z"), "attribute_value"),
        (text(time="2023-W05-1T00:00:00Z"), "attribute_value"),
        (text(time="\u0662023-02-03T00:00:00Z"), "attribute_value"),
        (text(time="2023-02-03T00:00:00+00:60"), "attribute_value"),
        (text(control="a\x7fb"), "attribute_value"),
        (text(control="\xe9\x85"), "attribute_value"),
        (text(control="\ufdd0"), "attribute_value"),
        (text(dataschema="https://a.example/%zz"), "attribute_value"),
        (text(dataschema="https:"), "attribute_value"),
        (text(time="2023-02-03T00:00:00"), "attribute_value"),
        (text(time="2023-02-03T00:00:00+24:00"), "attribute_value"),
        (text(expirytime="soon"), "attribute_value"),
        (text(dataschema="relative/schema"), "attribute_value"),
        (text(datacontenttype="json"), "attribute_value"),
        (text(subject=""), "attribute_value"),
        (text(source="http://[::1"), "attribute_value"),
        (text(dataschema="1:2"), "attribute_value"),
        (text(time="2023-13-01T00:00:00Z"), "attribute_value"),
        (text(time="2023-02-29T00:00:00Z"), "attribute_value"),
        (text(time="2023-04-31T00:00:00Z"), "attribute_value"),
        (text(time="2023-01-00T00:00:00Z"), "attribute_value"),
        (text(time="2023-01-32T00:00:00Z"), "attribute_value"),
        (text(severitynumber=0), "attribute_value"),
        (text(severitynumber=25), "attribute_value"),
        (text(severitynumber=-1), "attribute_value"),
        (text(severitynumber="17"), "attribute_value"),
        (text(severitynumber=True), "attribute_value"),
        (text(severitynumber=17.0), "attribute_value"),
        (text(severitytext=""), "attribute_value"),
        (text(severitytext=17), "attribute_value"),
        (text(traceparent="4bf92f3577b34da6"), "attribute_value"),
        (text(traceparent=True), "attribute_value"),
        (text(tracestate=1), "attribute_value"),
        (text(sequence=""), "attribute_value"),
        (text(sequence=1), "attribute_value"),
        (text(partitionkey=""), "attribute_value"),
        (text(expirytime=0), "attribute_value"),
        (text(recordedtime="12:00"), "attribute_value"),
        ("\ufeff" + text(), "byte_order_mark"),
        (text(data="~").replace("~", "\ud800"), "lone_surrogate"),
        (text(id=None), "missing_attribute"),
        ("{}", "missing_attribute"),
    ],
)
def test_what_is_no_event_is_refused_with_a_reason(raw: bytes | str, reason: str) -> None:
    assert reason_of(raw) == reason


@pytest.mark.parametrize(
    "time", ["2016-12-31T23:59:60Z", "2023-02-03T04:05:06.123456789Z", "2023-02-03t04:05:06+05:30"]
)
def test_timestamps_of_any_precision_pass(time: str) -> None:
    assert parse_event(text(time=time)).attributes["time"] == time


@pytest.mark.parametrize(
    "time", ["2024-02-29T00:00:00Z", "2023-12-31T23:59:59-00:00", "0001-01-01T00:00:00Z"]
)
def test_every_day_of_the_calendar_passes(time: str) -> None:
    assert parse_event(text(time=time)).attributes["time"] == time


@pytest.mark.parametrize(
    "extensions",
    [
        {"severitynumber": 1, "severitytext": "TRACE"},
        {"severitynumber": 24},
        {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1,b=2"},
        {"tracestate": ""},
        {"sequence": "0001", "partitionkey": "room"},
    ],
)
def test_known_extensions_pass_with_their_types(extensions: dict[str, object]) -> None:
    assert extensions.items() <= parse_event(text(**extensions)).attributes.items()


@pytest.mark.parametrize(
    ("extension", "says"),
    [
        ({"severitynumber": "17"}, "'severitynumber': a String is given, an Integer is needed"),
        ({"severitynumber": 25}, r"'severitynumber': a severity is 1 \(TRACE\) to 24 \(FATAL\)"),
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


def test_texts_of_any_script_pass() -> None:
    assert (
        parse_event(text(subject="Küche \u200b\U0001f600")).attributes["subject"] == "Küche \u200b\U0001f600"
    )


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


@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1])
def test_integers_of_32_bits_pass(value: int) -> None:
    assert parse_event(text(number=value)).attributes["number"] == value


def test_stamps_stand_in_front_and_leave_the_rest_alone() -> None:
    event = parse_event('  {"id":"1","source":"/a","type":"t","specversion":"1.0","data":1.0}')
    stamped = event.stamped(deviceepoch="e1", devicesequence="000000000007")
    assert stamped.json == (
        '{"deviceepoch":"e1","devicesequence":"000000000007",'
        '"id":"1","source":"/a","type":"t","specversion":"1.0","data":1.0}'
    )
    assert parse_event(stamped.json) == stamped


@pytest.mark.parametrize("name", ['"deviceepoch"', '"devic\\u0065epoch"'])
def test_a_stamp_takes_the_place_of_an_unset_attribute(name: str) -> None:
    event = parse_event(f'{{"id":"1",{name}:null,"source":"/a","type":"t","specversion":"1.0"}}')
    stamped = event.stamped(deviceepoch="e1")
    assert stamped.json == f'{{"id":"1",{name}:"e1","source":"/a","type":"t","specversion":"1.0"}}'
    assert parse_event(stamped.json) == stamped


def test_a_stamp_never_replaces_an_attribute() -> None:
    with pytest.raises(EnvelopeError, match="reserved_attribute"):
        parse_event(text(deviceepoch="mine")).stamped(deviceepoch="e1")


def test_written_events_are_strict() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t"}, {"temperature": 21.5})
    assert event.data() == {"temperature": 21.5}
    assert event.attributes["datacontenttype"] == "application/json"
    with pytest.raises(ValueError, match="Out of range float"):
        write_event({"id": "1", "source": "/a", "type": "t"}, float("nan"))
