"""What goes over the wire, both ways, and what is no such thing."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import Downlink
from eventplane.downlink.desired import Deletion, Desired, Identity, KeyedEvent, Phase
from eventplane.downlink.device import AcknowledgementError, from_data, rejected, stored, to_data
from eventplane.downlink.table import DESIRED, INDEX_KEY
from eventplane.downlink.wire import DownlinkError, received
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.reasons import Reason
from tests.unit.eventplane.downlink.events import KEY, command, deletion, incoming, sent, state, wanted

parts = st.text("ab.~-_09", min_size=1, max_size=4)
keys = st.builds("{}/{}/{}".format, parts, parts, parts)
texts = st.text(max_size=4)
numbers = st.integers(0, 10**18 - 1)
messages = st.builds(
    KeyedEvent,
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
    state=st.sampled_from(Phase),
    attempts=numbers,
    sent=st.none() | st.builds(Identity, numbers, texts, texts, texts),
    waiting=st.lists(messages, max_size=3).map(tuple),
    deletes=st.dictionaries(parts, numbers, max_size=3).map(
        lambda each: tuple(map(Deletion._make, sorted(each.items(), key=lambda one: (one[1], one[0]))))
    ),
    recent=st.lists(texts, max_size=3).map(tuple),
    last_order=numbers,
    acknowledged_uid=texts,
    acknowledged_version=st.none() | numbers,
    epoch=texts,
    fence=numbers,
    due_at_ms=st.none() | numbers,
    revision=numbers.map(lambda each: each + 1),
)


@given(items)
def test_an_item_is_read_as_it_was_written(item: Desired) -> None:
    written = DESIRED.to_item(item)
    assert DESIRED.from_item(written) == item
    # Only items that are due some time are in the index.
    assert (INDEX_KEY in written) is (item.due_at_ms is not None)


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
def test_malformed_attributes_are_refused(members: dict[str, Any]) -> None:
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
