"""The hop count: added, counted up, bounded, and nothing else of the event's text touched."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.numbering import stamp
from eventplane import fast_reader, strict_json
from eventplane.envelope import hops_of, parse_event, sent_on, write_event
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES, MAX_HOPS, MAX_SENT_EVENT_BYTES
from eventplane.replay import marked

HEAD = '"specversion":"1.0","id":"1","source":"/a","type":"t"'


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("{" + HEAD + "}", '{"routerhops":1,' + HEAD + "}"),
        (" \n{ " + HEAD + ' ,"data" : 1.0}', '{"routerhops":1, ' + HEAD + ' ,"data" : 1.0}'),
        ("{" + HEAD + ',"routerhops" : 1 ,"data":{"routerhops":1}}', None),
        ("{" + HEAD + ',"routerhops":null}', "{" + HEAD + ',"routerhops":1}'),
        ("{" + HEAD + ',"router\\u0068ops":2}', "{" + HEAD + ',"router\\u0068ops":3}'),
        ("{" + HEAD + ',"data":"\\"routerhops\\":1"}', None),
    ],
)
def test_one_hop_more_and_nothing_else(event: str, expected: str | None) -> None:
    before = parse_event(event)
    after = sent_on(before)
    assert hops_of(after) == hops_of(before) + 1
    assert json.loads(after.json) == {**json.loads(event), "routerhops": hops_of(after)}
    if expected:
        assert after.json == expected


@given(
    data=st.recursive(
        st.none() | st.integers(-9, 9) | st.text(), lambda inner: st.dictionaries(st.text(), inner)
    ),
    hops=st.none() | st.integers(0, MAX_HOPS - 1),
)
def test_whatever_the_data_it_stays(data: object, hops: int | None) -> None:
    attributes = {"id": "1", "source": "/a", "type": "t"} | ({} if hops is None else {"routerhops": hops})
    event = write_event(attributes, data)
    after = sent_on(event)
    assert after.data() == event.data()
    assert dict(after.attributes) == {**event.attributes, "routerhops": (hops or 0) + 1}


def test_neither_a_hop_nor_a_mark_is_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t"}, {"a": 1})

    def again(*_: object) -> None:
        raise AssertionError("the event is parsed again")

    monkeypatch.setattr(fast_reader, "attributes_of", again)
    monkeypatch.setattr(strict_json, "loads", again)
    changed = marked(sent_on(event), 0)
    monkeypatch.undo()
    assert changed == parse_event(changed.json)


def test_there_is_a_limit() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t"})
    for _ in range(MAX_HOPS):
        event = sent_on(event)
    with pytest.raises(EnvelopeError, match="sent on 9 times, 8 are allowed") as caught:
        sent_on(event)
    assert caught.value.reason == "hop_limit"


def test_an_event_without_room_for_it_is_too_large() -> None:
    room = MAX_EVENT_BYTES - len(write_event({"id": "1", "source": "/a", "type": "t"}, "").json)
    with pytest.raises(EnvelopeError, match=f"send at most {MAX_SENT_EVENT_BYTES}") as caught:
        sent_on(write_event({"id": "1", "source": "/a", "type": "t"}, "x" * room))
    assert caught.value.reason == "too_large"


def test_what_senders_can_count_on_has_room_for_all_that_the_plane_puts_in_front() -> None:
    bare = len(write_event({"id": "1", "source": "/a", "type": "t"}, "").json)
    largest = write_event({"id": "1", "source": "/a", "type": "t"}, "x" * (MAX_SENT_EVENT_BYTES - bare))
    event = stamp(largest, "e" * 16, 10**11)
    for _ in range(MAX_HOPS):
        event = sent_on(event)
    assert marked(event, 0).attributes["replayedtime"]


@pytest.mark.parametrize("value", ['"1"', "-1", "true", "1.5", "2147483648"])
def test_what_is_no_count_is_refused(value: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse_event("{" + HEAD + ',"routerhops":' + value + "}")
    assert caught.value.reason == "attribute_value"
