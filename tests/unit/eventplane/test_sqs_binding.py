"""Events as SQS messages: the body is the event, hints are what SQS takes."""

import base64
import gzip
import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_BATCH_BYTES, MAX_PACKED_MESSAGE_BYTES, MAX_SQS_ATTRIBUTES
from eventplane.sqs_binding import (
    COUNT,
    REPLAYED_HINT,
    HintsError,
    SqsMessage,
    pack,
    send_request,
    split,
    to_message,
)


def event(**more: str) -> Envelope:
    return write_event({"id": "1", "source": "/a", "type": "t", **more}, {"value": "ä"})


def test_characters_that_sqs_refuses_travel_as_escapes() -> None:
    awkward = parse_event(
        '{"specversion":"1.0","id":"1","source":"/a","type":"t","data":"\ufffe\uffff\U0001fffe"}'
    )
    body = to_message(awkward).body
    assert not {"\ufffe", "\uffff"} & set(body)
    assert json.loads(body) == json.loads(awkward.json)
    assert parse_event(body).data() == awkward.data()


def test_the_body_is_the_event() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = {"traceparent": parent, "tracestate": "a=1", "sequence": "7", "partitionkey": "kitchen"}
    sent = event(time="2026-03-01T12:00:00Z", **traced)
    message = to_message(sent, {"route": "alarms"})
    assert message.body is sent.json
    assert message.hints == {
        "ce_id": "1",
        "ce_source": "/a",
        "ce_type": "t",
        "ce_time": "2026-03-01T12:00:00Z",
        "route": "alarms",
    }
    # SQS counts the bytes of the body, and of the names, types and values of attributes.
    assert (
        replace(message, hints={"hint": "ä"}).bytes
        == len(sent.json.encode()) + len("hint") + len("String") + 2
    )


@pytest.mark.parametrize(
    ("hints", "reason"),
    [({f"h{at}": "x" for at in range(MAX_SQS_ATTRIBUTES)}, "13 hints"), ({"route": ""}, "empty")],
)
def test_hints_that_sqs_refuses_are_refused_before(hints: dict[str, str], reason: str) -> None:
    with pytest.raises(HintsError, match=reason):
        to_message(event(), hints)


def test_order_is_by_partition_key_or_source() -> None:
    one, other = to_message(event(id="1")), to_message(event(id="2"))
    assert one.group == other.group != to_message(event(partitionkey="b")).group
    assert one.deduplication != other.deduplication
    assert to_message(event(note="later")).deduplication == one.deduplication
    replayed = {
        to_message(event(replayedtime=each)).deduplication
        for each in ("2026-03-01T00:00:00Z", "2026-03-01T00:00:01Z")
    }
    assert len({one.deduplication, *replayed}) == 3
    unmarked = to_message(event(), {REPLAYED_HINT: "2026-03-01T00:00:00Z"})
    assert unmarked.deduplication in replayed
    assert len(one.group) <= 128


def test_the_group_is_the_only_sender() -> None:
    senders = [
        {"senderdevice": "home-1", "senderservice": "voice"},
        {"senderdevice": "home-1", "senderservice": "device", "partitionkey": "other"},
        {"senderdevice": "home-2", "senderservice": "voice"},
        {"senderservice": "carers"},
        {},
    ]
    events = [event(id=str(at), **attributes) for at, attributes in enumerate(senders)]
    one, same, other, service, unknown = (to_message(each).tenant for each in events)
    assert len({one, other, service, unknown}) == 4
    assert (one, unknown) == (same, "")
    assert all(0 < len(each) <= 128 and each.isalnum() for each in (one, other, service))
    packed = [message.tenant for count in (2, 3) for message in pack(events[:count], {}, 10)]
    assert packed == [one, ""]


def test_only_a_request_for_a_fifo_queue_names_group_and_copy() -> None:
    sent, url = event(), "https://sqs/outbox"
    message, request = to_message(sent), send_request(url, sent)
    assert request == {
        "QueueUrl": url,
        "MessageBody": message.body,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in message.hints.items()
        },
    }
    assert send_request(f"{url}.fifo", sent) == {
        **request,
        "QueueUrl": f"{url}.fifo",
        "MessageGroupId": message.group,
        "MessageDeduplicationId": message.deduplication,
    }


def readings(count: int, size: int = 300) -> list[Envelope]:
    noise = Random(7)
    return [
        write_event({"id": f"{at}", "source": "/a", "type": "t"}, noise.randbytes(size // 2).hex())
        for at in range(count)
    ]


def restored(messages: list[SqsMessage]) -> list[Envelope]:
    return [parse_event(text) for message in messages for text in split(message.body)]


def test_events_that_fit_one_request_are_a_plain_batch() -> None:
    events = readings(100)
    (message,) = pack(events, {"route": "r"}, 250)
    assert message.body == "[" + ",".join(each.json for each in events) + "]"
    assert message.hints == {"route": "r", COUNT: "100"}
    assert restored([message]) == events == list(message.events)


def test_events_that_do_not_fit_are_compressed_while_that_helps() -> None:
    events = readings(400)
    first, *others = pack(events, {"route": "r"}, 400)
    assert first.body.startswith("H4sI")
    assert len(first.events) > 160  # plain
    assert restored([first, *others]) == events
    assert json.loads(gzip.decompress(base64.b64decode(first.body)))[0]["id"] == "0"


@given(
    st.lists(st.integers(0, 40_000), min_size=1, max_size=20),
    st.integers(1, 20),
    st.sampled_from(["x", "ä", "\uffff", "\U0001f600"]),
)
def test_every_pack_has_its_bounds_and_nothing_is_lost(sizes: list[int], most: int, letter: str) -> None:
    events = [
        write_event({"id": str(at), "source": "/a", "type": "t"}, letter * (size // len(letter.encode())))
        for at, size in enumerate(sizes)
    ]
    messages = list(pack(events, {"route": "r"}, most))
    assert [each.key for each in restored(messages)] == [each.key for each in events]
    for message in messages:
        assert 1 <= len(message.events) <= most
        assert message.bytes <= MAX_PACKED_MESSAGE_BYTES or len(message.events) == 1
        if len(message.events) == 1:
            assert message == to_message(message.events[0], {"route": "r"})


def test_a_compressed_bomb_is_refused() -> None:
    bomb = base64.b64encode(gzip.compress(b" " * (MAX_BATCH_BYTES + 1), mtime=0)).decode()
    with pytest.raises(EnvelopeError, match="too_large"):
        split(bomb)
