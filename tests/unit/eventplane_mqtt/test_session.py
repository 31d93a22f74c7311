"""A session without a network: what it sends and reports for what a broker answers."""

from dataclasses import replace
from pathlib import Path

import pytest

from eventplane_mqtt import Endpoint, Login, TlsFiles, codec
from eventplane_mqtt.mailbox import Acknowledged, Connected, LinkName, Received
from eventplane_mqtt.session import Session
from eventplane_mqtt.tls import TlsTransport
from tests.unit.eventplane_mqtt import broker_packets as broker

ENDPOINT = Endpoint("h", 1, "c", True, 30, 5.0)
V5 = replace(ENDPOINT, protocol="5")
TLS = replace(ENDPOINT, tls=TlsFiles(Path("ca"), Path("crt"), Path("key")))
LOGIN = replace(ENDPOINT, login=Login("me", Path("password")))
UP = Connected(LinkName.CLOUD, 2)
T = codec.topic_name("t")


class Wire:
    """A session and its clock; `sent` is what it has to send since the last look."""

    def __init__(self, endpoint: Endpoint = ENDPOINT) -> None:
        self.now = 100.0
        self.session = Session(endpoint, LinkName.CLOUD, 2)
        self.session.start(self.now)

    def sent(self) -> bytes:
        data = self.session.take_bytes(1_000_000)
        if data:
            self.session.sent(self.now)
        return data

    def receive(self, *packets: bytes) -> list[object]:
        """What it reports for these."""
        self.session.receive(b"".join(packets), self.now)
        return list(self.session.take_messages())

    def wait(self, seconds: float) -> bytes:
        """What it sends after so much time."""
        self.now += seconds
        self.session.tick(self.now)
        return self.sent()


def up(endpoint: Endpoint = ENDPOINT, properties: bytes = b"") -> Wire:
    wire = Wire(endpoint)
    assert wire.receive(broker.connack(endpoint.version, properties=properties)) == [UP]
    wire.sent()
    return wire


def ended(wire: Wire) -> str:
    assert wire.session.ended is not None
    return wire.session.ended


def test_it_subscribes_to_eight_filters_at_a_time_and_is_up_when_all_are_confirmed() -> None:
    topics = tuple(f"t{number}" for number in range(17))
    wire = Wire(replace(ENDPOINT, subscriptions=topics))
    wire.sent()
    assert wire.receive(broker.connack()) == []
    parts = [codec.encode_subscribe(4, 1 + n, topics[8 * n : 8 * n + 8], 1) for n in range(3)]
    assert wire.sent() == b"".join(parts)
    assert wire.receive(broker.suback(1, b"\1" * 8), broker.suback(3, b"\1")) == []
    assert wire.receive(broker.suback(3, b"\1"), broker.suback(9, b"\1")) == []
    assert wire.receive(broker.suback(2, b"\1" * 8)) == [UP]


@pytest.mark.parametrize(("properties", "owner"), [(b"", 1 << 27), (b"\x29\x00", 0)])
def test_subscriptions_name_their_owner_if_the_broker_knows_them(properties: bytes, owner: int) -> None:
    wire = Wire(replace(V5, subscriptions=("t",), owner=1 << 27))
    wire.sent()
    wire.receive(broker.connack(5, properties=properties))
    assert wire.sent() == codec.encode_subscribe(5, 1, ["t"], 1, owner)


def test_a_refused_subscription_ends_it_and_names_the_filter() -> None:
    wire = Wire(replace(V5, subscriptions=("good", "bad")))
    wire.receive(broker.connack(5))
    wire.sent()
    assert wire.receive(broker.suback(1, b"\x01\x87", 5)) == []
    assert "SUBSCRIBE refused for bad (not authorized)" in ended(wire)
    assert wire.sent() == codec.encode_disconnect(5)


def test_it_stands_without_subscriptions(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(replace(ENDPOINT, subscriptions=("bad",), needs_subscriptions=False))
    wire.receive(broker.connack())
    assert wire.receive(broker.suback(1, b"\x80")) == [UP]
    assert "SUBSCRIBE refused for bad" in caplog.text


@pytest.mark.parametrize(
    ("endpoint", "answer", "reason"),
    [
        (TLS, broker.connack(reason=5), "CONNECT refused: not authorized; see that the certificate"),
        (LOGIN, broker.connack(reason=5), "not authorized; see that the broker knows this user name"),
        (LOGIN, broker.connack(reason=4), "bad user name or password; see that the broker knows this user"),
        (ENDPOINT, broker.connack(reason=5), "not authorized; see whether the broker wants a user name"),
        (ENDPOINT, broker.connack(reason=77), "unknown reason 0x4d"),
        (V5, broker.connack(4, reason=1), "unsupported protocol version; set local.protocol"),
        (V5, broker.connack(5, 0x97, b"\x1f\x00\x04much"), "CONNECT refused: quota exceeded (much)"),
        (V5, broker.connack(5, 0x85), "client id 'c'"),
        (V5, b"", "and that it knows MQTT 5 (else set protocol to 3.1.1)"),
        (ENDPOINT, broker.publish(b"t", b""), "PUBLISH: it came before CONNACK"),
        (ENDPOINT, b"HTTP/1.1 400 Bad Request\r\n", "broke the protocol"),
    ],
)
def test_a_refusal_says_why(endpoint: Endpoint, answer: bytes, reason: str) -> None:
    wire = Wire(endpoint)
    assert wire.receive(answer) == []
    wire.session.lost(None)
    assert reason in ended(wire)


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (broker.connack(5), "CONNACK: a second one"),
        (broker.disconnect(0x8E), "disconnected by the broker: session taken over; another connection"),
        (broker.disconnect(0x8B, b"update"), "server shutting down (update)"),
        (b"\x50\x02\x00\x01", "PUBREC: first byte 0x50, a broker must not send it"),
    ],
)
def test_a_connection_ends_with_the_broker_s_reason(packet: bytes, reason: str) -> None:
    wire = up(V5)
    reports = wire.receive(
        broker.publish(b"t", b"before", 1, 5), packet, broker.publish(b"t", b"after", 2, 5)
    )
    assert reports == [Received(LinkName.CLOUD, 2, 1, "t", b"before")]
    assert reason in ended(wire)
    assert wire.session.publish("t", b"") == wire.session.ping() == 0


@pytest.mark.parametrize(
    ("packets", "reason"),
    [
        ([broker.suback(1, b"\1\1")], "2 answers to 1 filters"),
        ([broker.publish(b"t", b"", 1), broker.suback(1, b"\x80")], "SUBSCRIBE refused for t"),
        ([broker.publish(b"t", b"", 1)], "no answer to SUBSCRIBE within 5.0 s"),
    ],
    ids=["it does not fit", "it refuses after a backlog", "it is missing despite a backlog"],
)
def test_a_wrong_or_missing_suback_ends_it(packets: list[bytes], reason: str) -> None:
    wire = Wire(replace(ENDPOINT, clean_session=False, subscriptions=("t",)))
    wire.receive(broker.connack(present=True), *packets)
    wire.wait(5)
    assert reason in ended(wire)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([], "instead of CONNACK; see that the certificate is active and its policy allows client id 'c'"),
        ([broker.connack()], "instead of SUBACK; see its access rules"),
        ([broker.connack(), broker.suback(1, b"\1")], "connection lost: the broker hung up"),
    ],
)
def test_when_the_broker_hangs_up_the_reason_says_where(answers: list[bytes], reason: str) -> None:
    wire = Wire(replace(TLS, subscriptions=("a",)))
    wire.receive(*answers)
    wire.session.lost(None)
    assert reason in ended(wire)


def test_ids_are_never_in_use_twice_and_when_they_run_out_that_ends_it() -> None:
    wire = up()
    assert [wire.session.publish("t", b"") for _ in range(65_534)] == list(range(1, 65_535))
    wire.receive(broker.puback(2), broker.puback(3))
    assert [wire.session.publish("t", b"") for _ in range(4)] == [65_535, 2, 3, 0]
    assert "65535 publishes without a PUBACK" in ended(wire)


def test_an_acknowledgement_counts_once_and_only_for_what_was_sent() -> None:
    wire = up(V5)
    mids = [wire.session.publish("t", b"") for _ in range(2)]
    reports = wire.receive(*map(broker.puback, (7, *mids, *mids)))
    assert reports == [Acknowledged(LinkName.CLOUD, 2, mid) for mid in mids]
    mid = wire.session.publish("t", b"")
    assert wire.receive(broker.puback(mid, 0x97)) == [Acknowledged(LinkName.CLOUD, 2, mid, "quota exceeded")]
    mid = wire.session.publish("t", b"")
    assert wire.receive(broker.puback(mid, 0x10)) == [Acknowledged(LinkName.CLOUD, 2, mid)]


def test_at_qos_0_there_is_no_id_and_nothing_to_wait_for() -> None:
    wire = up()
    assert wire.session.publish("t", b"x", qos=0) == 0
    assert wire.sent() == codec.encode_publish(4, T, b"x", 0)


def test_what_is_larger_than_the_broker_takes_is_not_sent_but_refused() -> None:
    wire = up(V5, properties=b"\x27\x00\x00\x00\x64")
    mid = wire.session.publish("t", bytes(100))
    assert wire.sent() == b""
    (report,) = wire.session.take_messages()
    assert isinstance(report, Acknowledged)
    assert (report.mid, report.failure) == (mid, "packet too large: 108 bytes, the broker takes 100")


def test_subscribe_takes_no_part_of_the_window() -> None:
    wire = Wire(replace(V5, clean_session=False, subscriptions=("t",)))
    wire.sent()
    wire.receive(broker.connack(5, properties=b"\x21\x00\x01", present=True), broker.publish(b"t", b"", 0, 5))
    wire.sent()
    mids = [wire.session.publish("t", b"") for _ in range(2)]
    assert wire.sent() == codec.encode_publish(5, T, b"", mids[0])


def test_an_idle_session_pings() -> None:
    wire = up()
    assert wire.session.deadline() == wire.now + 30
    assert wire.wait(29) == b""
    wire.session.publish("t", b"")
    assert wire.sent()
    assert wire.wait(29) == b""
    assert wire.wait(1) == codec.PINGREQ
    assert wire.wait(29) == b""
    wire.receive(broker.PINGRESP)
    assert wire.wait(1) == codec.PINGREQ


def test_messages_of_a_broker_prove_that_it_is_alive() -> None:
    wire = up()
    assert wire.wait(30) == codec.PINGREQ
    wire.wait(29)
    assert len(wire.receive(broker.publish(b"t", b""))) == 1
    assert wire.wait(29) == b""
    assert wire.session.ended is None
    wire.wait(1)
    assert "no answer to PINGREQ within 30 s" in ended(wire)


def test_a_small_packet_shares_no_tls_record_with_a_large_one_behind_it() -> None:
    wire = up()
    wire.session.ping()
    wire.session.publish("t", bytes(300))
    assert wire.session.take_bytes(TlsTransport.piece_bytes) == codec.PINGREQ


def test_a_pingreq_that_waits_behind_other_bytes_has_its_time_from_when_they_moved() -> None:
    wire = up()
    assert wire.wait(30) == codec.PINGREQ
    behind = wire.session.queued_bytes
    wire.wait(20)
    wire.session.progressed(behind - 1, wire.now)
    wire.wait(29)
    wire.session.progressed(behind, wire.now)  # it has left: what follows it proves nothing
    assert wire.session.ended is None
    wire.wait(1)
    assert "no answer to PINGREQ within 30 s" in ended(wire)


def test_each_pingresp_answers_the_oldest_question() -> None:
    wire = up()
    assert wire.wait(30) == codec.PINGREQ
    mid = wire.session.ping()
    assert mid > 65_535  # nothing that a publish could have
    assert wire.sent() == codec.PINGREQ
    assert wire.receive(broker.PINGRESP) == []
    assert wire.receive(broker.PINGRESP) == [Acknowledged(LinkName.CLOUD, 2, mid)]
    assert wire.receive(broker.PINGRESP) == []


def test_the_brokers_own_keepalive_counts() -> None:
    wire = up(V5, properties=b"\x13\x00\x05")
    assert wire.wait(5) == codec.PINGREQ


def test_without_keepalive_no_ping_is_sent() -> None:
    wire = up(replace(ENDPOINT, keepalive_s=0))
    assert wire.session.deadline() is None
    assert wire.wait(1_000_000) == b""
    assert wire.session.ended is None


@pytest.mark.parametrize(("answers", "packet"), [([], "CONNECT"), ([broker.connack()], "SUBSCRIBE")])
def test_an_answer_that_does_not_come_ends_it(answers: list[bytes], packet: str) -> None:
    wire = Wire(replace(ENDPOINT, subscriptions=("a",)))
    if answers:
        wire.wait(4)
        wire.receive(*answers)
    assert wire.session.deadline() == wire.now + 5
    wire.wait(5)
    assert f"no answer to {packet} within 5.0 s" in ended(wire)


def test_disconnect_follows_what_was_published_and_ends_acknowledging() -> None:
    wire = up()
    mid = wire.session.publish("t", b"x")
    wire.receive(broker.publish(b"t", b"", 4))
    wire.session.close()
    wire.session.acknowledge(4)
    assert not wire.session.disconnect_is_out
    assert wire.sent() == codec.encode_publish(4, T, b"x", mid) + codec.encode_disconnect(4)
    assert wire.session.disconnect_is_out
    reports = wire.receive(broker.puback(mid), broker.publish(b"t", b"", 5))
    assert reports == [Acknowledged(LinkName.CLOUD, 2, mid)]
    wire.session.lost(None)
    assert ended(wire) == "closed"


def test_bytes_are_handed_out_in_whole_packets_up_to_a_limit() -> None:
    wire = up()
    sizes = [100, 100, 1_000, 10]
    packets = [
        codec.encode_publish(4, T, bytes(size), wire.session.publish("t", bytes(size))) for size in sizes
    ]
    assert wire.session.take_bytes(250) == packets[0] + packets[1]
    assert wire.session.take_bytes(250) == packets[2]
    assert wire.session.take_bytes(250) == packets[3]
    assert wire.session.take_bytes(250) == b""


def test_a_backlog_before_suback_is_progress_and_makes_a_resumed_session_usable() -> None:
    wire = Wire(replace(ENDPOINT, clean_session=False, subscriptions=("t",)))
    assert wire.receive(broker.connack(present=True)) == []
    first, *others = [broker.publish(b"t", b"%d" % number, number) for number in range(1, 10)]
    up, received = wire.receive(first)
    assert up == UP
    assert received == Received(LinkName.CLOUD, 2, 1, "t", b"1")
    assert wire.session.publish("t", b"x")
    for packet in others:
        assert wire.wait(4) != b""
        assert len(wire.receive(packet)) == 1
        wire.session.acknowledge(1)
        wire.session.publish("t", b"x")
    assert wire.receive(broker.suback(1, b"\1")) == []
    wire.sent()
    assert wire.wait(29) == b""
    assert wire.session.ended is None


def test_a_new_session_is_not_up_before_suback() -> None:
    wire = Wire(replace(ENDPOINT, subscriptions=("t",)))
    assert len(wire.receive(broker.connack(), broker.publish(b"t", b"", 1))) == 1
    assert wire.session.publish("t", b"x") == 0


def test_while_it_does_not_read_nothing_is_presumed_dead_and_pings_go_on() -> None:
    wire = up()
    assert wire.wait(30) == codec.PINGREQ
    for _ in range(5):
        wire.now += 30
        wire.session.tick(wire.now, reading=False)
        assert wire.sent() == codec.PINGREQ
    deadline = wire.session.deadline()
    assert deadline == wire.now + 30
    assert wire.wait(29) == b""  # it reads again: the answer has a full interval
    wire.wait(30)
    assert "no answer to PINGREQ" in ended(wire)


def test_a_ping_that_cannot_be_sent_is_not_due_again_at_once() -> None:
    wire = up()
    wire.now += 30
    for _ in range(3):
        wire.session.tick(wire.now, reading=False)
    assert wire.session.take_bytes(1_000) == codec.PINGREQ


def test_while_it_does_not_read_a_suback_may_take_its_time() -> None:
    wire = Wire(replace(ENDPOINT, clean_session=False, subscriptions=("t",)))
    wire.receive(broker.connack(present=True), broker.publish(b"t", b"", 1))
    for _ in range(3):
        wire.now += 60
        wire.session.tick(wire.now, reading=False)
    wire.wait(4)
    assert wire.session.ended is None


def test_messages_beyond_the_room_wait_undecoded_and_so_does_what_follows() -> None:
    wire = up()
    packets = [broker.publish(b"t", bytes(1_000), number) for number in range(1, 6)]
    mid = wire.session.publish("t", b"x")
    wire.session.receive(b"".join(packets) + broker.puback(mid), wire.now, room=2_000)
    assert [each.mid for each in wire.session.take_messages()] == [1, 2]  # type: ignore[union-attr]
    assert wire.session.has_undecoded
    wire.session.decode(room=1)
    assert [each.mid for each in wire.session.take_messages()] == [3]  # type: ignore[union-attr]
    wire.session.decode()
    assert not wire.session.has_undecoded
    assert wire.session.take_messages()[-1] == Acknowledged(LinkName.CLOUD, 2, mid)


def test_after_disconnect_nothing_waits_for_room() -> None:
    wire = up()
    wire.session.close()
    wire.session.receive(broker.publish(b"t", b"", 1), wire.now, room=0)
    assert not wire.session.has_undecoded


def test_at_qos_0_what_exceeds_its_room_is_dropped_and_counted_and_qos_1_is_not() -> None:
    wire = up()
    flood = [broker.publish(b"t", bytes(1_000))] * 10
    wire.session.receive(b"".join([*flood, broker.publish(b"t", b"alarm", 1)]), wire.now, 10_000, 2_000)
    messages = wire.session.take_messages()
    assert [each.mid for each in messages] == [0, 0, 1]  # type: ignore[union-attr]
    assert wire.session.dropped == 8


def test_what_the_broker_kept_at_qos_0_waits_for_room_like_the_rest() -> None:
    wire = Wire(replace(ENDPOINT, clean_session=False, subscriptions=("t",)))
    wire.receive(broker.connack(present=True))
    backlog = [broker.publish(b"t", bytes(1_000))] * 10
    flood = [broker.publish(b"t", bytes(1_000))] * 10
    wire.session.receive(b"".join([*backlog, broker.suback(1, b"\1"), *flood]), wire.now, 5_000, 1_000)
    received = 0
    while wire.session.has_undecoded:
        received += sum(isinstance(each, Received) for each in wire.session.take_messages())
        wire.session.decode(5_000, 1_000)
    received += len(wire.session.take_messages())
    assert (received, wire.session.dropped) == (len(backlog), len(flood))


def test_where_acknowledgements_must_be_read_a_message_beyond_the_room_comes_again_later() -> None:
    session = Session(ENDPOINT, LinkName.CLOUD, 2, drops=True)
    session.start(0.0)
    session.receive(broker.connack(), 0.0)
    mid = session.publish("t", b"x")
    session.take_messages()
    session.receive(broker.publish(b"t", b"down", 1) + broker.puback(mid), 0.0, room=0)
    assert session.take_messages() == [Acknowledged(LinkName.CLOUD, 2, mid)]
    assert session.dropped == 1
    session.take_bytes(1_000)
    session.acknowledge(1)
    assert session.take_bytes(1_000) == b""
    session.receive(broker.publish(b"t", b"down", 1, duplicate=True), 0.0, room=1)
    assert session.take_messages() == [Received(LinkName.CLOUD, 2, 1, "t", b"down", duplicate=True)]


def test_a_payload_beyond_the_limit_is_reported_with_its_beginning_and_size() -> None:
    wire = up(replace(ENDPOINT, max_packet_bytes=100_000))
    (message,) = wire.receive(broker.publish(b"t", bytes(200_000), 1))
    assert message == Received(LinkName.CLOUD, 2, 1, "t", bytes(4096), oversize=200_000)
    wire.session.acknowledge(1)
    assert wire.sent() == codec.encode_puback(1)


def test_a_message_that_is_of_no_use_is_acknowledged_at_once_and_takes_no_room() -> None:
    session = Session(ENDPOINT, LinkName.URGENT, 2, skips=lambda _, payload: payload == b"reading")
    session.start(0.0)
    session.receive(broker.connack(), 0.0)
    session.take_messages()
    session.take_bytes(1_000)
    packets = [broker.publish(b"t", b"reading", number) for number in range(1, 100)]
    alarm = broker.publish(b"t", b"alarm", 100)
    session.receive(b"".join([*packets, broker.publish(b"t", b"reading"), alarm]), 0.0, room=1)
    assert session.take_messages() == [Received(LinkName.URGENT, 2, 100, "t", b"alarm")]
    assert session.take_bytes(1_000) == b"".join(map(codec.encode_puback, range(1, 100)))
    assert session.dropped == 0


def test_it_leaves_topics_and_the_answer_frees_the_id() -> None:
    wire = up()
    wire.session.unsubscribe(("a/b",))
    assert wire.sent() == b"\xa2\x07\x00\x01\x00\x03a/b"
    assert wire.receive(b"\xb0\x02\x00\x01") == [Acknowledged(LinkName.CLOUD, 2, 1)]
    wire.session.end("over")
    wire.session.unsubscribe(("a/b",))
    assert wire.sent() == b""
