"""Whom an event is for and what it is about, by what its sender says."""

import json
from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract import Downlink
from eventplane.downlink.addressing import MAX_AHEAD_MS, Addressed, Target, addressed
from eventplane.downlink.desired import Desired, transmission
from eventplane.downlink.wire import RESERVED, DownlinkError
from eventplane.envelope import parse_event
from eventplane.limits import MAX_DOWNLINK_EVENT_BYTES, MAX_EVENT_BYTES
from eventplane.names import REPLY_TYPE
from eventplane.reasons import Reason
from parts.fleet.lifecycle import grouped, made
from tests.unit.eventplane.downlink.events import KEY, NOW_MS, event


def read(kind: Downlink = Downlink.STATE, expiry_s: int | None = None, **attributes: Any) -> Addressed:
    given = {"statekey": KEY, "stateversion": "7", **attributes}
    sent = json.loads(event("1", {"bpm": 40}).json) | given
    text = json.dumps({name: value for name, value in sent.items() if value is not None})
    return addressed(parse_event(text), kind, NOW_MS, expiry_s)


def reason(kind: Downlink = Downlink.STATE, **attributes: Any) -> str:
    with pytest.raises(DownlinkError) as caught:
        read(kind, **attributes)
    assert caught.value.detail
    return caught.value.reason


@pytest.mark.source("K1")
def test_one_device_all_devices_or_a_group() -> None:
    assert read().target == Target(thing="home-1")
    assert read(todevice="*").target == Target()
    assert read(todevice=None, togroup="north").target == Target(group="north")


def test_a_key_that_is_made_from_a_sender_cannot_be_named() -> None:
    made = read(Downlink.COMMAND, statekey=None).key
    for kind in Downlink:
        with pytest.raises(DownlinkError, match="without `statekey`") as caught:
            read(kind, statekey=made, senderservice="other")
        assert caught.value.reason == Reason.INVALID_STATE_KEY


@pytest.mark.parametrize("key", ["lock/door/front", "no key", True, None])
def test_a_reply_has_the_key_of_its_sender_whatever_it_names(key: str | bool | None) -> None:
    other = {"senderservice": "other"}
    reply = read(Downlink.COMMAND, type=REPLY_TYPE, statekey=key, **other)
    assert reply.key == read(Downlink.COMMAND, statekey=None, **other).key
    assert reply.key != read(Downlink.COMMAND, statekey=None).key


@pytest.mark.parametrize("group", ["ward.3", "a~b", "x" * 100])
def test_every_group_of_the_fleet_can_be_addressed(group: str) -> None:
    assert grouped(made("home-1", 0), frozenset({group}), 0).groups == {group}
    assert read(todevice=None, togroup=group).target == Target(group=group)


@pytest.mark.parametrize(
    ("attributes", "word"),
    [
        ({"todevice": None}, Reason.NO_DEVICE),
        *(
            ({"todevice": None, "togroup": each}, Reason.UNKNOWN_GROUP)
            for each in ("north:1", "x" * 101, "", 7)
        ),
        ({"togroup": "north"}, Reason.TWO_ADDRESSES),
        ({"todevice": "two words"}, Reason.UNKNOWN_DEVICE),
        ({"todevice": 7}, Reason.UNKNOWN_DEVICE),
        ({"todevice": "x" * 121}, Reason.UNKNOWN_DEVICE),
        ({"todevice": "a/b"}, Reason.UNKNOWN_DEVICE),
        ({"todevice": "renewal-home-1"}, Reason.UNKNOWN_DEVICE),
        ({"todevice": "home\u0661"}, Reason.UNKNOWN_DEVICE),
        ({"statekey": None}, Reason.NO_STATE_KEY),
        ({"statekey": "a/b"}, Reason.INVALID_STATE_KEY),
        ({"statekey": "a/b/c/d"}, Reason.INVALID_STATE_KEY),
        ({"statekey": "a//c"}, Reason.INVALID_STATE_KEY),
        ({"statekey": "a/b/" + "c" * 101}, Reason.INVALID_STATE_KEY),
        ({"statekey": "a/b/#"}, Reason.INVALID_STATE_KEY),
        ({"statekey": True}, Reason.INVALID_STATE_KEY),
        ({"stateversion": "1.5"}, Reason.INVALID_STATE_VERSION),
        ({"stateversion": "-1"}, Reason.INVALID_STATE_VERSION),
        ({"stateversion": "\u0661"}, Reason.INVALID_STATE_VERSION),
        ({"stateversion": "1" * 19}, Reason.INVALID_STATE_VERSION),
        ({"stateversion": True}, Reason.INVALID_STATE_VERSION),
        ({"stateversion": None}, Reason.INVALID_STATE_VERSION),
        ({"stateuid": "a b"}, Reason.INVALID_STATE_UID),
        ({"stateuid": 1}, Reason.INVALID_STATE_UID),
        ({"statedelete": "yes"}, Reason.INVALID_STATE_DELETE),
        ({"statedelete": 1}, Reason.INVALID_STATE_DELETE),
        *(({name: "1"}, Reason.RESERVED_ATTRIBUTE) for name in RESERVED),
    ],
)
def test_each_malformed_attribute_is_refused_by_name(attributes: dict[str, Any], word: str) -> None:
    assert reason(**attributes) == word


def test_a_version_is_a_number_or_the_time() -> None:
    assert read(stateversion="007").message.version == 7
    assert read(stateversion=7).message.version == 7
    assert read(Downlink.COMMAND, stateversion="9" * 18).message.version == 10**18 - 1
    assert read(stateversion=None, time="1970-01-01T00:00:01.5Z").message.version == 1_500
    assert read(stateversion=None, time="1969-01-01T00:00:00Z").message.version == 0
    assert read(Downlink.COMMAND, stateversion=None).message.version == NOW_MS


@pytest.mark.parametrize(
    ("attributes", "is_taken"),
    [
        ({"stateversion": str(NOW_MS + MAX_AHEAD_MS)}, True),
        ({"stateversion": str(NOW_MS + MAX_AHEAD_MS + 1)}, False),
        ({"stateversion": "9" * 18}, False),
        ({"stateversion": None, "time": "2099-01-01T00:00:00Z"}, False),
        ({"stateversion": "9" * 18, "statedelete": True}, False),
    ],
)
def test_a_future_time_burns_no_version(attributes: dict[str, Any], is_taken: bool) -> None:
    if is_taken:
        assert read(**attributes).message.version == NOW_MS + MAX_AHEAD_MS
        return
    with pytest.raises(DownlinkError, match="desired reset") as caught:
        read(**attributes)
    assert caught.value.reason == Reason.VERSION_JUMP


def test_keyless_commands_keep_their_order() -> None:
    one, other = read(Downlink.COMMAND, statekey=None), read(Downlink.COMMAND, statekey=None, source="/x")
    assert one.key == read(Downlink.COMMAND, statekey=None).key != other.key
    assert one.key != read(Downlink.COMMAND, statekey=None, senderservice="other").key
    assert one.key.startswith("command/source/")


def test_only_commands_expire() -> None:
    assert read(Downlink.COMMAND).message.expires_at_ms is None
    assert read(Downlink.COMMAND, expiry_s=60).message.expires_at_ms == NOW_MS + 60_000
    early = read(Downlink.COMMAND, expiry_s=60, expirytime="2026-01-01T00:00:05Z")
    assert early.message.expires_at_ms == NOW_MS + 5_000
    assert read(expiry_s=60, expirytime="2026-01-01T00:00:05Z").message.expires_at_ms is None


def test_a_tombstone_is_a_state() -> None:
    assert read(statedelete=True).message.is_deleted
    assert read(statedelete="true").message.is_deleted
    assert not read(statedelete=False).message.is_deleted
    assert reason(Downlink.COMMAND, statedelete=True) == Reason.INVALID_STATE_DELETE


def test_the_largest_event_still_fits() -> None:
    part = "k" * 100
    empty = event("1", "", statekey=f"{part}/{part}/{part}", stateuid="u" * 100, stateversion="9" * 18)
    room = MAX_DOWNLINK_EVENT_BYTES - len(empty.json)
    largest = parse_event(empty.json.replace('"data":""', f'"data":"{"x" * room}"'))
    wanted = addressed(largest, Downlink.STATE, 10**18)
    message = replace(wanted.message, version=10**18 - 1)
    item = Desired(thing="home-1", key=wanted.key, kind=wanted.kind, fence=10**17, reset=10**13)
    text = transmission(item, message, NOW_MS)
    # The device numbers it as well.
    assert len(text) + 200 <= MAX_EVENT_BYTES
    assert text.endswith(largest.json[1:])
    too_large = parse_event(empty.json.replace('"data":""', f'"data":"{"x" * (room + 1)}"'))
    with pytest.raises(DownlinkError) as caught:
        addressed(too_large, Downlink.STATE, NOW_MS)
    assert caught.value.reason == Reason.TOO_LARGE_FOR_DOWNLINK
