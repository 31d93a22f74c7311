"""Events as SQS messages: the body is the event, hints are what SQS takes."""

from __future__ import annotations

import json

import pytest

from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.limits import MAX_SQS_ATTRIBUTES
from eventplane.sqs_binding import HintsError, SqsMessage, to_message


def event(**more: str) -> Envelope:
    return write_event({"id": "1", "source": "/a", "type": "t", **more}, {"value": "ä"})


def test_the_body_is_the_event_untouched() -> None:
    plain = parse_event(' {"type":"t","id":"1", "source":"/a","specversion":"1.0","data":1.0}')
    assert to_message(plain).body is plain.json
    assert parse_event(to_message(plain).body) == plain


def test_characters_that_sqs_refuses_travel_as_escapes() -> None:
    awkward = parse_event(
        '{"specversion":"1.0","id":"1","source":"/a","type":"t","data":"\ufffe\uffff\U0001fffe"}'
    )
    body = to_message(awkward).body
    assert not {"\ufffe", "\uffff"} & set(body)
    assert json.loads(body) == json.loads(awkward.json)
    assert parse_event(body).data() == awkward.data()


def test_hints_name_the_event_and_what_the_sender_adds() -> None:
    message = to_message(event(time="2026-03-01T12:00:00Z"), {"route": "alarms"})
    assert message.hints == {
        "ce_id": "1",
        "ce_source": "/a",
        "ce_type": "t",
        "ce_time": "2026-03-01T12:00:00Z",
        "route": "alarms",
    }


def test_the_size_is_that_of_body_names_types_and_values() -> None:
    held = event()
    assert SqsMessage(held, {"hint": "ä"}).bytes == len(held.json.encode()) + len("hint") + len("String") + 2


@pytest.mark.parametrize(
    ("hints", "reason"),
    [({f"h{at}": "x" for at in range(MAX_SQS_ATTRIBUTES)}, "13 hints"), ({"route": ""}, "empty")],
)
def test_hints_that_sqs_refuses_are_refused_before(hints: dict[str, str], reason: str) -> None:
    with pytest.raises(HintsError, match=reason):
        to_message(event(), hints)


def test_what_traces_and_orders_travels_in_the_body_alone() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = event(traceparent=parent, tracestate="a=1", sequence="7", partitionkey="kitchen")
    assert to_message(traced).hints == to_message(event()).hints
    assert parse_event(to_message(traced).body) == traced


def test_order_is_by_partition_key_or_source_and_copies_are_known_by_source_and_id() -> None:
    one, other = to_message(event(id="1")), to_message(event(id="2"))
    assert one.group == other.group != to_message(event(partitionkey="b")).group
    assert one.deduplication != other.deduplication
    assert to_message(event(note="later")).deduplication == one.deduplication
    assert len(one.group) <= 128
