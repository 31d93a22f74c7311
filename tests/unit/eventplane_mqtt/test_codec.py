"""Packets against the bytes that the standard prescribes."""

import tracemalloc

import pytest

from eventplane_mqtt.codec import (
    PINGREQ,
    ConnAck,
    Decoder,
    Disconnect,
    Packet,
    PingResp,
    ProtocolError,
    PubAck,
    Publish,
    SubAck,
    UnsendableError,
    encode_connect,
    encode_disconnect,
    encode_puback,
    encode_publish,
    encode_subscribe,
    encode_unsubscribe,
    topic_name,
)
from tests.unit.eventplane_mqtt import broker_packets as broker

LIMIT = 1000
T = topic_name("a/b")


def decode(data: bytes, version: int = 4) -> list[Packet]:
    return list(Decoder(version, LIMIT).feed(data))


@pytest.mark.source("P6")
@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (
            encode_connect(4, "me", clean=True, keepalive_s=60),
            "10 0e 00 04 4d 51 54 54 04 02 00 3c 00 02 6d 65",
        ),
        (
            encode_connect(4, "me", clean=False, keepalive_s=300),
            "10 0e 00 04 4d 51 54 54 04 00 01 2c 00 02 6d 65",
        ),
        (
            encode_connect(5, "me", clean=False, keepalive_s=0),
            "10 14 00 04 4d 51 54 54 05 00 00 00 05 11 ff ff ff ff 00 02 6d 65",
        ),
        (
            encode_connect(5, "", clean=True, keepalive_s=1),
            "10 0d 00 04 4d 51 54 54 05 02 00 01 00 00 00",
        ),
        (
            encode_connect(4, "me", clean=True, keepalive_s=60, username="u", password=b"\xff\x00"),
            "10 15 00 04 4d 51 54 54 04 c2 00 3c 00 02 6d 65 00 01 75 00 02 ff 00",
        ),
        (
            encode_connect(5, "me", clean=True, keepalive_s=1, username="u", password=b"p"),
            "10 15 00 04 4d 51 54 54 05 c2 00 01 00 00 02 6d 65 00 01 75 00 01 70",
        ),
        (encode_subscribe(4, 1, ["a", "b/#"], 1), "82 0c 00 01 00 01 61 01 00 03 62 2f 23 01"),
        (encode_subscribe(5, 0x102, ["a"], 0), "82 07 01 02 00 00 01 61 00"),
        (encode_subscribe(5, 1, ["a"], 1, 128), "82 0a 00 01 03 0b 80 01 00 01 61 01"),
        (encode_unsubscribe(4, 1, ["a", "b/#"]), "a2 0a 00 01 00 01 61 00 03 62 2f 23"),
        (encode_unsubscribe(5, 0x102, ["a"]), "a2 06 01 02 00 00 01 61"),
        (encode_publish(4, T, b"hi", 0), "30 07 00 03 61 2f 62 68 69"),
        (encode_publish(4, T, b"", 10, retain=True), "33 07 00 03 61 2f 62 00 0a"),
        (encode_publish(5, T, b"hi", 10), "32 0a 00 03 61 2f 62 00 0a 00 68 69"),
        (encode_puback(0xFFFE), "40 02 ff fe"),
        (PINGREQ, "c0 00"),
        (encode_disconnect(4, 0x82), "e0 00"),
        (encode_disconnect(5), "e0 00"),
        (encode_disconnect(5, 0x82), "e0 01 82"),
    ],
)
def test_what_we_send_is_what_the_standard_prescribes(packet: bytes, expected: str) -> None:
    assert packet.hex(" ") == expected


@pytest.mark.parametrize("size", [0, 121, 122, 16_377, 16_378, 2_097_145, 2_097_146])
def test_a_length_takes_as_many_bytes_as_it_needs(size: int) -> None:
    packet = encode_publish(4, T, bytes(size), 1)
    assert list(Decoder(4, len(packet)).feed(packet)) == [Publish("a/b", bytes(size), 1, False, False)]


@pytest.mark.parametrize(
    "send",
    [
        lambda: topic_name(""),
        lambda: topic_name("a/+"),
        lambda: topic_name("#"),
        lambda: topic_name("a\0b"),
        lambda: topic_name("\ud800"),
        lambda: topic_name("x" * 65_536),
        lambda: encode_connect(4, "\0", clean=True, keepalive_s=1),
        lambda: encode_subscribe(4, 1, ["ok", "\udfff"], 1),
    ],
)
def test_texts_that_mqtt_cannot_carry_are_refused(send: object) -> None:
    with pytest.raises(UnsendableError) as error:
        send()  # type: ignore[operator]
    assert error.value.problem


@pytest.mark.source("P6")
@pytest.mark.parametrize(
    ("version", "data", "expected"),
    [
        (4, broker.connack(present=True), ConnAck(True, 0, {})),
        (4, broker.connack(reason=5), ConnAck(False, 5, {})),
        (
            5,
            broker.connack(5, properties=b"\x13\x00\x1e\x21\x00\x64"),
            ConnAck(False, 0, {0x13: 30, 0x21: 100}),
        ),
        (
            5,
            broker.connack(5, 0x87, b"\x1f\x00\x02no\x26\x00\x01a\x00\x01b"),
            ConnAck(False, 0x87, {0x1F: "no"}),
        ),
        (5, broker.connack(4, reason=1), ConnAck(False, 1, {})),
        (4, broker.suback(7, b"\x01\x80"), SubAck(7, b"\x01\x80")),
        (5, broker.suback(7, b"\x87", 5), SubAck(7, b"\x87")),
        (4, broker.puback(9), PubAck(9, 0)),
        (5, broker.puback(9), PubAck(9, 0)),
        (5, broker.puback(9, 0x97), PubAck(9, 0x97)),
        (5, broker.puback(9, 0x10, b"\x1f\x00\x01x"), PubAck(9, 0x10)),
        (4, broker.PINGRESP, PingResp()),
        (5, b"\xe0\x00", Disconnect(0, "")),
        (5, b"\xe0\x01\x8e", Disconnect(0x8E, "")),
        (5, broker.disconnect(0x8E, b"bye"), Disconnect(0x8E, "bye")),
        (4, broker.publish(b"t", b"x"), Publish("t", b"x", 0, False, False)),
        (4, broker.publish("ü".encode(), b"", 3, duplicate=True), Publish("ü", b"", 3, True, False)),
        (5, broker.publish(b"t", b"x", 3, 5, properties=b"\x01\x01"), Publish("t", b"x", 3, False, False)),
    ],
)
def test_what_a_broker_sends_is_read(version: int, data: bytes, expected: Packet) -> None:
    assert decode(data + data, version) == [expected, expected]


OURS, THEIRS = 1 << 27 | 5, 1 << 27 | 7
_OURS, _THEIRS = (b"\x0b" + bytes((each & 0x7F | 0x80, 0x80, 0x80, 0x40)) for each in (OURS, THEIRS))


@pytest.mark.parametrize(
    ("properties", "foreign"),
    [
        (_OURS, False),
        (_THEIRS, True),
        (b"\x01\x01" + _THEIRS, True),
        (_THEIRS + _OURS, False),
        (_OURS + b"\x26\0\1a\0\1b", False),
        # Its session was one of MQTT 3.1.1, which an earlier version used.
        (b"", False),
    ],
)
def test_a_message_for_another_owner_is_foreign(properties: bytes, foreign: bool) -> None:
    data = broker.publish(b"t", b"x", 3, 5, properties=properties)
    expected = Publish("t", b"x", 3, False, False, foreign=foreign)
    assert list(Decoder(5, LIMIT, OURS).feed(data + data)) == [expected, expected]
    # Whoever has no owner takes everything.
    assert list(Decoder(5, LIMIT).feed(data)) == [expected._replace(foreign=False)]
    cut = broker.packet(0x32, b"\0\1t\0\3" + bytes((len(properties) + 1,)) + properties)
    with pytest.raises(ProtocolError):
        list(Decoder(5, LIMIT, OURS).feed(cut + data))


@pytest.mark.parametrize("properties", [_OURS + b"\xff", b"\xff" + _OURS], ids=["2.0", "2.1"])
def test_senders_properties_are_not_read(properties: bytes) -> None:
    (found,) = Decoder(5, LIMIT, OURS).feed(broker.publish(b"t", b"x", 3, 5, properties=properties))
    assert found == Publish("t", b"x", 3, False, False)


def test_properties_that_are_too_large_leave_no_payload() -> None:
    properties, payload = b"\xd2\x0f" + b"\x26\0\1a\0\1b" * 286, bytes(3_000)
    data = broker.packet(0x32, b"\0\1t\0\3" + properties + payload) + broker.PINGRESP
    expected = Publish("t", payload, 3, False, False)
    assert list(Decoder(5, 10_000, OURS).feed(data)) == [expected, PingResp()]
    (found, following) = Decoder(5, 1_000, OURS).feed(data)
    assert following == PingResp()
    assert found == expected._replace(payload=b"", oversize=len(data) - 1_000 - 2)


@pytest.mark.parametrize(
    ("version", "data", "name"),
    [
        (4, b"\x00\x00", "reserved packet"),
        (4, b"\x10\x00", "CONNECT"),
        (4, b"\x50\x02\x00\x01", "PUBREC"),
        (4, b"\xb0\x02\x00\x00", "UNSUBACK"),
        (4, b"\xc0\x00", "PINGREQ"),
        (4, b"\xe0\x00", "DISCONNECT"),
        (5, b"\xf0\x00", "AUTH"),
        (4, b"\x40\xff\xff\xff\xff", "PUBACK"),
        (4, b"\x40\xff\xff\xff\x7f", "PUBACK"),
        (4, b"\x30\x00", "PUBLISH"),
        (4, b"\x30\x01\x00", "PUBLISH"),
        (4, b"\x30\x02\x00\x01", "PUBLISH"),
        (4, b"\x30\x02\x00\x00", "PUBLISH"),
        (4, b"\x32\x04\x00\x01t\x00", "PUBLISH"),
        (4, broker.publish(b"t", b"").replace(b"\x30", b"\x36"), "PUBLISH"),
        (4, b"\x32\x05\x00\x01t\x00\x00", "PUBLISH"),
        (4, broker.publish(b"\xff", b""), "PUBLISH"),
        (4, broker.publish(b"a\0", b""), "PUBLISH"),
        (4, broker.publish(b"a/#", b""), "PUBLISH"),
        (5, b"\x32\x05\x00\x01t\x00\x01", "PUBLISH"),
        (5, b"\x32\x05\x00\x01t\x00\x01\x00", "PUBLISH"),
        (5, broker.publish(b"t", b"", 1, 5, properties=b"\x23\x00\x01"), "PUBLISH"),
        (5, broker.publish(b"t", b"", 1, 5, properties=b"\x7f\x00"), "PUBLISH"),
        (4, b"\x41\x02\x00\x01", "PUBACK"),
        (4, broker.puback(0), "PUBACK"),
        (4, broker.puback(1, 0), "PUBACK"),
        (4, b"\x40\x01\x00", "PUBACK"),
        (5, broker.puback(1, 0, b"\x1f\x00\x05x"), "PUBACK"),
        (5, broker.puback(1, 0, b"\x1f\x00\x01\xff"), "PUBACK"),
        (5, broker.puback(1, 0, b"\x1f\x00\x01\0"), "PUBACK"),
        (5, broker.packet(0x40, b"\x00\x01\x00\x80\x80\x80\x80\x00"), "PUBACK"),
        (4, b"\x20\x01\x00", "CONNACK"),
        (4, b"\x20\x02\x02\x00", "CONNACK"),
        (4, broker.connack(5), "CONNACK"),
        (5, broker.connack(4), "CONNACK"),
        (5, broker.connack(5, properties=b"\x21\x00\x00"), "CONNACK"),
        (5, broker.connack(5, properties=b"\x13\x00\x01\x13\x00\x01"), "CONNACK"),
        (4, b"\x90\x01\x00", "SUBACK"),
        (4, b"\xd0\x01\x00", "PINGRESP"),
    ],
)
def test_a_malformed_packet_is_refused_by_name(version: int, data: bytes, name: str) -> None:
    with pytest.raises(ProtocolError) as error:
        decode(data, version)
    assert error.value.packet == name


def test_packets_before_the_first_error_are_returned_one_by_one() -> None:
    packets = Decoder(4, LIMIT).feed(broker.puback(1) + broker.publish(b"t", b"") + b"\x00\x00")
    assert [next(packets), next(packets)] == [PubAck(1, 0), Publish("t", b"", 0, False, False)]
    with pytest.raises(ProtocolError):
        next(packets)


def test_the_limit_counts_the_whole_packet() -> None:
    packet = broker.packet(0x90, b"\0\1" + bytes(100))
    assert list(Decoder(4, len(packet)).feed(packet))
    with pytest.raises(ProtocolError, match=f"the limit of {len(packet) - 1}"):
        list(Decoder(4, len(packet) - 1).feed(packet[:4]))


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("piece", [1_000, 65_536, 1_000_000])
def test_of_a_publish_beyond_the_limit_the_beginning_is_kept(version: int, piece: int) -> None:
    payload = bytes(number % 251 for number in range(500_000))
    data = broker.publish(b"t", payload, 7, version) + broker.puback(1)
    decoder = Decoder(version, 300_000)
    tracemalloc.start()
    try:
        packets = [
            packet
            for start in range(0, len(data), piece)
            for packet in decoder.feed(data[start : start + piece])
        ]
        assert tracemalloc.get_traced_memory()[1] < 300_000 + 2 * min(piece, len(data))
    finally:
        tracemalloc.stop()
    assert packets == [Publish("t", payload[:4096], 7, False, False, oversize=500_000), PubAck(1, 0)]


def test_no_memory_is_reserved_for_a_claimed_length() -> None:
    decoder = Decoder(4, 2**29)
    tracemalloc.start()
    try:
        assert list(decoder.feed(b"\x30\xff\xff\xff\x7f" + bytes(10))) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
