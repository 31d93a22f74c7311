"""MQTT against everything that a broker can send, in any pieces; the mailbox under any puts and waits."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from eventplane_mqtt import Endpoint, codec
from eventplane_mqtt.codec import ConnAck, Decoder, Packet, ProtocolError, Publish
from eventplane_mqtt.mailbox import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    Acknowledged,
    Connected,
    LinkName,
    Mailbox,
    Message,
    Received,
)
from eventplane_mqtt.session import Session
from tests.unit.eventplane_mqtt import broker_packets as broker

LIMIT = 2_000

versions = st.sampled_from([4, 5])
mids = st.integers(1, 65_535)
topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=40)
payloads = st.binary(max_size=300)


def from_broker(version: int) -> st.SearchStrategy[bytes]:
    """A good packet of any kind."""
    return st.one_of(
        st.builds(lambda present: broker.connack(version, present=present), st.booleans()),
        st.builds(broker.suback, mids, st.binary(min_size=1, max_size=8), st.just(version)),
        st.builds(
            lambda topic, payload, mid: broker.publish(topic.encode(), payload, mid, version),
            topics, payloads, st.integers(0, 65_535),
        ),
        st.builds(broker.puback, mids),
        st.just(broker.PINGRESP),
        *([st.builds(broker.disconnect, st.integers(0, 255))] if version == 5 else []),
    )  # fmt: skip


streams = st.one_of(
    st.binary(max_size=200),
    versions.flatmap(lambda version: st.lists(from_broker(version), max_size=8).map(b"".join)),
    st.builds(
        lambda good, bad: b"".join(good) + bad, st.lists(from_broker(4), max_size=5), st.binary(max_size=40)
    ),
)


def decode(version: int, pieces: Iterable[bytes]) -> list[Packet | str]:
    """The packets, and the error that ended them if there was one."""
    decoder = Decoder(version, LIMIT)
    found: list[Packet | str] = []
    try:
        for piece in pieces:
            found.extend(decoder.feed(piece))
    except ProtocolError as error:
        found.append(str(error))
    return found


def cut(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(each % (len(data) + 1) for each in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(
    version=versions,
    topic=topics,
    payload=payloads,
    mid=st.integers(0, 65_535),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_round_trip(version: int, topic: str, payload: bytes, mid: int, flags: tuple[bool, bool]) -> None:
    duplicate, retain = flags
    data = codec.encode_publish(version, codec.topic_name(topic), payload, mid, retain=retain)
    # We never send a duplicate; brokers do.
    data = bytes([data[0] | duplicate << 3]) + data[1:]
    assert decode(version, [data]) == [Publish(topic, payload, mid, duplicate, retain)]


@given(version=versions, data=streams, cuts=st.lists(st.integers(0, 10_000), max_size=20))
def test_however_it_is_cut_the_same_packets_come_out(version: int, data: bytes, cuts: list[int]) -> None:
    whole = decode(version, [data])
    assert decode(version, cut(data, cuts)) == whole
    assert decode(version, [data[i : i + 1] for i in range(len(data))]) == whole


@given(version=versions, packets=st.data())
def test_good_packets_come_out_one_for_one(version: int, packets: st.DataObject) -> None:
    sent = packets.draw(st.lists(from_broker(version), max_size=10))
    found = decode(version, [b"".join(sent)])
    assert len(found) == len(sent)
    assert not any(isinstance(each, str) for each in found)


@given(
    keepalive=st.none() | st.integers(0, 65_535),
    maximum=st.none() | st.integers(1, 65_535),
    size=st.none() | st.integers(1, 268_435_455),
    text=st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    users=st.lists(st.tuples(topics, topics), max_size=2),
)
def test_properties_are_read_as_paho_writes_them(
    keepalive: int | None,
    maximum: int | None,
    size: int | None,
    text: str | None,
    users: list[tuple[str, str]],
) -> None:
    theirs = Properties(PacketTypes.CONNACK)
    ours: dict[int, object] = {}
    named = {
        0x13: ("ServerKeepAlive", keepalive), 0x21: ("ReceiveMaximum", maximum),
        0x27: ("MaximumPacketSize", size), 0x1F: ("ReasonString", text),
    }  # fmt: skip
    for identifier, (name, value) in named.items():
        if value is not None:
            setattr(theirs, name, value)
            ours[identifier] = value
    if users:
        theirs.UserProperty = users
    theirs.TopicAliasMaximum = 3
    packet = broker.packet(0x20, b"\0\0" + theirs.pack())
    assert decode(5, [packet]) == [ConnAck(False, 0, {**ours, 0x22: 3})]


def started(version: int) -> Session:
    endpoint = Endpoint(
        "h", 1, "c", False, 30, 5.0, ("t",), protocol="5" if version == 5 else "3.1.1", max_packet_bytes=LIMIT
    )
    session = Session(endpoint, LinkName.LOCAL, 1)
    session.start(0.0)
    return session


@given(version=versions, pieces=st.lists(streams, max_size=6), accepted=st.booleans())
def test_a_session_survives_any_broker(version: int, pieces: list[bytes], accepted: bool) -> None:
    session = started(version)
    if accepted:
        session.receive(broker.connack(version) + broker.suback(1, b"\1", version), 0.0)
        assert any(isinstance(each, Connected) for each in session.take_messages())
    for now, piece in enumerate(pieces):
        session.receive(piece, float(now))
        session.tick(float(now))
        for message in session.take_messages():
            if isinstance(message, Received):
                session.acknowledge(message.mid)
        session.publish("t", b"x")
    assert session.ended != ""
    if session.ended is not None:
        assert session.publish("t", b"x") == 0


actions = st.one_of(
    st.tuples(st.just("receive"), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("acknowledge"), st.integers(1, 5), st.just(False)),
)


@given(st.lists(actions, max_size=40))
def test_a_puback_waits_for_all_of_its_id(steps: list[tuple[str, int, bool]]) -> None:
    session = started(4)
    session.receive(broker.connack() + broker.suback(1, b"\1"), 0.0)
    session.take_messages()
    session.take_bytes(10_000)
    in_hand = Counter[int]()
    for action, mid, duplicate in steps:
        before, expected = in_hand[mid], b""
        if action == "receive":
            session.receive(broker.publish(b"t", b"x", mid, duplicate=duplicate), 0.0)
            reported = len(session.take_messages())
            assert reported == (not (duplicate and before))
            in_hand[mid] += reported
        else:
            session.acknowledge(mid)
            in_hand[mid] = max(0, before - 1)
            expected = codec.encode_puback(mid) if before == 1 else b""
        assert session.take_bytes(10_000) == expected


@pytest.mark.source("P-W6")
@given(acknowledged=st.lists(st.integers(0, 30), max_size=60))
@pytest.mark.parametrize("maximum", [1, 3, 65_535])
def test_publishes_keep_to_the_window(maximum: int, acknowledged: list[int]) -> None:
    session = started(5)
    properties = b"\x21" + maximum.to_bytes(2, "big")
    session.receive(broker.connack(5, properties=properties) + broker.suback(1, b"\1", 5), 0.0)
    session.take_messages()
    session.take_bytes(10_000)
    open_ids: list[int] = []
    waiting = [session.publish("t", b"x") for _ in range(20)]
    assert len(set(waiting)) == 20
    for choice in [*acknowledged, *[0] * 20]:
        data = session.take_bytes(100_000)
        open_ids += [each.mid for each in Decoder(5, LIMIT).feed(data) if isinstance(each, Publish)]
        assert len(open_ids) <= maximum
        if open_ids:
            mid = open_ids.pop(choice % len(open_ids))
            session.receive(broker.puback(mid), 0.0)
            assert session.take_messages() == [Acknowledged(LinkName.LOCAL, 1, mid)]
            waiting.remove(mid)
    assert waiting == []


SHARE_BYTES = 200_000

sizes = st.sampled_from([0, 100, 5_000, 90_000, BATCH_BYTES + 1])
mailbox_steps = st.one_of(
    st.tuples(st.sampled_from(list(LinkName)), st.lists(sizes, min_size=1, max_size=8)),
    st.tuples(st.just("many"), st.sampled_from(list(LinkName))),
    st.tuples(st.just("control"), st.none()),
    st.tuples(st.just("wait"), st.none()),
)


@given(st.lists(mailbox_steps, max_size=40))
def test_every_message_is_taken_once_in_the_order_of_its_link(actions: list[tuple[object, object]]) -> None:
    mailbox: Mailbox[Message] = Mailbox()
    shares = {each: mailbox.share(each, SHARE_BYTES) for each in LinkName}
    put: dict[object, list[Message]] = {each: [] for each in (*LinkName, "control")}
    taken: dict[object, list[Message]] = {each: [] for each in put}
    paused: set[LinkName] = set()

    def take() -> list[Message]:
        is_urgent_waiting = shares[LinkName.URGENT].waiting > 0
        batch = mailbox.wait(0)
        received = [each for each in batch if isinstance(each, Received)]
        control = [each for each in batch if not isinstance(each, Received)]
        assert batch[: len(control)] == control
        taken["control"] += control
        assert len(received) <= BATCH_MESSAGES
        large = [each for each in received if each.memory_bytes > BATCH_BYTES]
        assert sum(each.memory_bytes for each in received if each not in large) <= BATCH_BYTES + 100_000
        assert len(large) <= len(LinkName)
        assert not is_urgent_waiting or received[0].link is LinkName.URGENT
        for each in received:
            taken[each.link].append(each)
        return batch

    for kind, argument in actions:
        if kind == "wait":
            take()
        elif kind == "control":
            put["control"].append(Acknowledged(LinkName.CLOUD, 1, len(put["control"])))
            mailbox.put(put["control"][-1])
        else:
            link = argument if kind == "many" else kind
            assert isinstance(link, LinkName)
            lengths = [0] * 600 if kind == "many" else argument
            assert isinstance(lengths, list)
            if not shares[link].may_read(lambda link=link: paused.discard(link)):  # type: ignore[misc]
                paused.add(link)
                continue
            messages = [
                Received(link, 1, len(put[link]) + n, "t", bytes(size)) for n, size in enumerate(lengths)
            ]
            shares[link].put(messages)
            put[link] += messages
        for link, share in shares.items():
            assert share.waiting == len(put[link]) - len(taken[link])
    while take():
        pass
    assert taken == put
    assert not paused
    assert all(share.waiting_bytes == 0 for share in shares.values())
