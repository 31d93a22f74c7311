"""What goes over the wire, both ways, and what is no such thing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import Downlink
from eventplane.downlink.desired import Desired, Message, State
from eventplane.downlink.device import (
    AcknowledgementError,
    from_data,
    rejected,
    stored,
    to_data,
)
from eventplane.downlink.table import (
    INDEX_KEY,
    due_request,
    from_item,
    page_request,
    read_request,
    remove_request,
    sort_key,
    to_item,
    write_request,
)
from eventplane.downlink.wire import DownlinkError, received
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.fleet import bucket_of
from eventplane.reasons import Reason
from tests.unit.eventplane.downlink.events import KEY, command, deletion, incoming, sent, state, wanted

parts = st.text("ab.~-_09", min_size=1, max_size=4)
keys = st.builds("{}/{}/{}".format, parts, parts, parts)
texts = st.text(max_size=4)
numbers = st.integers(0, 10**18 - 1)
messages = st.builds(
    Message,
    uid=texts,
    version=numbers,
    is_deleted=st.booleans(),
    sender=texts,
    source=texts,
    id=texts,
    text=texts,
    order=numbers,
    expires_at_ms=st.none() | numbers,
)
items = st.builds(
    Desired,
    thing=st.text(min_size=1, max_size=4),
    key=keys,
    kind=st.sampled_from(Downlink),
    owner=texts,
    reset=numbers,
    message=st.none() | messages,
    state=st.sampled_from(State),
    attempts=numbers,
    sent=st.none() | st.tuples(numbers, texts, texts, texts),
    waiting=st.lists(messages, max_size=3).map(tuple),
    deletes=st.dictionaries(parts, numbers).map(
        lambda each: tuple(sorted(each.items(), key=lambda one: (one[1], one[0])))
    ),
    recent=st.lists(texts, max_size=3).map(tuple),
    last_order=numbers,
    acknowledged_uid=texts,
    acknowledged_version=st.none() | numbers,
    epoch=texts,
    fence=numbers,
    due_at_ms=st.none() | numbers,
    revision=numbers,
)


@given(items)
def test_an_item_is_read_as_it_was_written(item: Desired) -> None:
    written = to_item(item)
    assert from_item(written) == item
    # Only items that are due some time are in the index.
    assert (INDEX_KEY in written) is (item.due_at_ms is not None)


def test_requests_are_conditional_and_name_one_device() -> None:
    item = Desired(thing="home-1", key=KEY, kind=Downlink.STATE, due_at_ms=5)
    assert write_request("t", item)["ConditionExpression"] == "attribute_not_exists(#k)"
    assert write_request("t", item)["Item"]["revision"] == {"N": "1"}
    later = replace(item, revision=7)
    for request in (write_request("t", later), remove_request("t", later)):
        assert request["ConditionExpression"] == "#r = :r"
        assert request["ExpressionAttributeValues"] == {":r": {"N": "7"}}
    key = {"thing": {"S": "home-1"}, "sk": {"S": f"s#{KEY}"}}
    assert remove_request("t", later)["Key"] == key
    assert read_request("t", "home-1", sort_key(Downlink.STATE, KEY))["Key"] == key
    assert page_request("t", "home-1", 10, f"s#{KEY}")["ExclusiveStartKey"] == key
    assert "ExclusiveStartKey" not in page_request("t", "home-1", 10)
    asked = due_request("t", bucket_of("home-1"), 9, 25)
    assert (asked["Limit"], asked["ExpressionAttributeValues"][":d"]) == (25, {"N": "9"})
    assert asked["ExpressionAttributeValues"][":b"] == to_item(item)["work"]


def test_downlink_attributes_are_put_in_front_of_the_sender_s_text() -> None:
    gone = incoming(sent(state(1, "a"), deletion(2, "a")))
    assert gone.is_deleted
    assert gone.event.json.startswith(f'{{"downkind":"state","downkey":"{KEY}","downversion":"1",')
    assert gone.event.json.endswith(deletion(2, "a").message.text[1:])
    assert (gone.uid, gone.version, gone.order, gone.fence) == ("a", 1, 0, 0)
    opened = incoming(wanted(command("open", 4)))
    assert (opened.kind, opened.key, opened.version, opened.is_deleted) == (
        Downlink.COMMAND,
        "lock/door/front",
        4,
        False,
    )
    assert opened.order > 0


def _changed(**members: Any) -> Envelope:
    plain = incoming(wanted(state(1))).event.json
    document = json.loads(plain) | members
    return parse_event(json.dumps({name: value for name, value in document.items() if value is not None}))


@pytest.mark.parametrize(
    "members",
    [
        {"downkind": "wish"},
        {"downkind": None},
        {"downkey": "a/b"},
        {"downkey": 5},
        {"downuid": "a b"},
        {"downversion": "x"},
        {"downversion": None},
        {"downfence": "-1"},
        {"downorder": "5"},
        {"downkind": "command"},
        {"downkind": "command", "downorder": "0"},
        {"downkind": "command", "downorder": "x"},
    ],
)
def test_malformed_downlink_attributes_are_refused_on_the_device(
    members: dict[str, Any],
) -> None:
    with pytest.raises(DownlinkError) as caught:
        received(_changed(**members))
    assert caught.value.reason == Reason.NOT_FOR_A_DEVICE


@pytest.mark.source("K2")
def test_acknowledgements_travel_together() -> None:
    first, second = (
        replace(incoming(wanted(state(1, "a"))), version=10**18 - 1),
        incoming(wanted(command("open", 4))),
    )
    acks = (stored(first), rejected(second, "no_such_door", "x" * 9_999))
    event = write_event({"id": "1", "source": "/s", "type": "t"}, to_data(acks, "life"))
    assert from_data(event.data()) == (acks, "life")
    assert len(acks[1].detail) == 500


GOOD = to_data([stored(incoming(wanted(command("open", 4))))], "life")


@pytest.mark.parametrize(
    "changed",
    [
        None,
        [],
        {"acknowledged": []},
        {"acknowledged": [], "epoch": ""},
        {"acknowledged": {}, "epoch": "e"},
        {"acknowledged": [5], "epoch": "e"},
        *(
            {"acknowledged": [GOOD["acknowledged"][0] | wrong], "epoch": "e"}
            for wrong in (
                {"key": "a"},
                {"key": None},
                {"source": ""},
                {"sender": 5},
                {"id": 5},
                {"version": "-1"},
                {"version": "9" * 5_000},
                {"version": 10**900},
                {"version": None},
                {"order": "x"},
                {"fence": 1.5},
                {"kind": "wish"},
                {"kind": None},
                {"kind": []},
                {"result": "perhaps"},
                {"reason": 5},
            )
        ),
    ],
)
def test_malformed_acknowledgements_are_refused(changed: Any) -> None:
    with pytest.raises(AcknowledgementError):
        from_data(changed)


@given(st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda each: st.lists(each)))
def test_any_other_data_is_refused_as_an_acknowledgement(data: Any) -> None:
    with pytest.raises(AcknowledgementError):
        from_data({"acknowledged": [data], "epoch": "e"})
