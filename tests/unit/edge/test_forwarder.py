import json
from collections.abc import Callable

import pytest

from edge.errors import SpoolError
from edge.forwarder import Stop
from eventplane.device_reports import DISCARDED, MANIFEST
from eventplane.envelope import Envelope, parse_event
from eventplane.names import EPOCH, SEQUENCE
from eventplane.reasons import Outcome
from eventplane.receipts import SPOOL_FULL, Receipt, digest, write_receipts
from eventplane_client.mqtt import MAX_MESSAGE_BYTES
from eventplane_mqtt.mailbox import Connected, LinkName
from tests.unit.edge.builders import noise, state
from tests.unit.edge.fakes import ALARM, DEAD_LETTER, Device, MakeDevice, damage, event, ordered

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD


@pytest.mark.source("P4", "C-W2")
def test_it_is_stored_then_acknowledged_in_order(device: Device) -> None:
    messages = [device.from_service(event(f"e{n}")) for n in range(3)]
    device.turn(*messages)
    assert device.local.last.acknowledged == [each.mid for each in messages]
    assert device.receipts() == [Receipt(digest(each.payload)) for each in messages]
    assert len(device.local.last.published) == 1
    assert device.spool.backlog() == {"device.outbox": 3}


def connect_without_session(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt to commit what comes with the connection fails."""
    device.local.last.resumed = False
    damage(device, monkeypatch, "commit")
    generation = device.links[LOCAL].generation
    device.turn(Connected(LOCAL, generation), device.from_service(event(f"e{generation}")))
    device.turn(after=61.0)


def test_a_forgotten_session_is_reported(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ("eventplane/+/outbox", "session_lost")
    assert device.not_stored()[lost] == 0
    for times in (1, 2, 3):
        if times == 2:
            device.restart(connected=False)
        else:
            device.disconnect(LOCAL)
        connect_without_session(device, monkeypatch)
        assert device.not_stored()[lost] == times
    assert device.forwarder.counts.sessions_lost == 2


def test_a_first_connection_has_no_session_to_miss(make: MakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    device = make(connected=False, settled=False)
    connect_without_session(device, monkeypatch)
    assert not device.not_stored()


@pytest.mark.parametrize(
    ("service", "named"),
    [("display", {"subject": "show"}), ("call", {"type": ALARM})],
    ids=["ack", "receipt"],
)
def test_what_the_home_broker_never_takes_is_a_letter(
    device: Device, service: str, named: dict[str, str]
) -> None:
    """It was sent again without end, and all behind it with it."""
    device.send(event("large", **named))
    mids = [mid for mid, topic, _ in device.local.last.published if topic == f"eventplane/{service}/inbox"]
    failure = "packet too large: 99 bytes, the broker takes 98"
    device.turn(*(device.puback(each, LOCAL, failure) for each in mids))
    device.turn(after=1.0)
    device.acknowledge_all()
    (letter,) = device.letters()
    assert letter.data()["reason"] == "too_large"
    assert "99 bytes, the broker takes 98; raise max_packet_size" in letter.json
    device.turn(after=3_600.0)
    assert (device.ids_at(service), device.spool.backlog().get(f"{service}.inbox", 0)) == (["large"], 0)


def test_what_the_home_broker_refuses_now_is_sent_again(device: Device) -> None:
    device.send(event("e", subject="show"))
    (mid,) = [mid for mid, topic, _ in device.local.last.published if topic == "eventplane/display/inbox"]
    device.turn(device.puback(mid, LOCAL, "not authorized"))
    device.turn(after=3_600.0)
    assert (device.ids_at("display"), device.letters()) == (["e", "e"], [])


def test_no_message_of_receipts_is_larger_than_the_broker_takes(device: Device) -> None:
    sent = device.from_service(event("e"))
    device.turn(*[sent] * 5_000)
    assert len(device.receipts()) == 5_000
    assert max(len(payload) for _, _, payload in device.local.last.published) < MAX_MESSAGE_BYTES


@pytest.mark.source("P4", "P6", "K2")
def test_a_failed_commit_acknowledges_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SpoolError(device.path, "disk full", "make room")

    monkeypatch.setattr(device.spool, "commit", fail)
    for message in (device.from_service(event("e", subject="show")), device.from_cloud(state(1))):
        with pytest.raises(SpoolError):
            device.turn(message)
    assert device.local.last.acknowledged == device.cloud.last.acknowledged == []
    assert device.local.last.published == []


@pytest.mark.parametrize("changes", [{"generation": 0}, {"mid": 0}], ids=["a bygone connection", "QoS 0"])
def test_what_cannot_be_acknowledged_is_stored(device: Device, changes: dict[str, int]) -> None:
    device.turn(device.from_service(event("e"))._replace(**changes))
    assert device.spool.backlog() == {"device.outbox": 1}
    assert device.local.last.acknowledged == []


def test_a_repetition_is_receipted_and_not_stored_again(device: Device) -> None:
    device.send(event("e"), event("e"))
    device.send(event("e"))
    assert device.spool.backlog() == {"device.outbox": 1}
    assert len(device.receipts()) == 3
    assert len(device.local.last.acknowledged) == 3


@pytest.mark.source("F3")
def test_events_are_numbered_without_gaps_through_a_crash(device: Device) -> None:
    device.send(event("a"), event("b"))
    epoch = device.spool.epoch
    device.restart()
    device.send(event("c"))
    stamps = [parse_event(row.json).attributes for row in device.spool.read("device.outbox", 1, 0, 10)]
    assert [each[SEQUENCE] for each in stamps] == [f"{number:012d}" for number in (2, 3, 4, 5)]
    assert [each["id"] for each in stamps] == ["a", "b", f"{epoch}-4", "c"]
    assert {each[EPOCH] for each in stamps} == {epoch}


@pytest.mark.source("P17")
def test_a_refused_event_takes_no_number_of_an_ordered_inbox(make: MakeDevice) -> None:
    device = make(plane=ordered(), capacity_bytes=64 * 1024)
    for number in range(12):
        device.send(*(event(f"{number}-{each}", pad=noise(4_000, 3 * number + each)) for each in range(3)))
    assert {each.refused for each in device.receipts()} == {None, SPOOL_FULL}
    stored = [parse_event(row.json) for row in device.spool.read("device.outbox", 1, 0, 100)]
    numbers = [int(str(each.attributes["orderin"]).rpartition("/")[2]) for each in stored]
    assert numbers == list(range(1, len(stored) + 1))
    assert list(device.spool.counted.values()) == [len(stored)]


@pytest.mark.source("P-W4")
@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"garbage", "not_json"),
        (b'{"specversion":"1.0"}', "missing_attribute"),
        (event("e", "com.example.unknown").json.encode(), "unrouted"),
        (event("e", deviceepoch="forged").json.encode(), "reserved_attribute"),
        (event("e", orderin="cloud/normal/0123abcd/1").json.encode(), "reserved_attribute"),
        (event("e", pad="x" * (96 * 1024 - 150)).json.encode(), "too_large"),
        # Nearly as large as the broker lets through.
        (b"x" * 999_000, "too_large"),
        # The detail quotes what it complains about; with the original it must still fit an event.
        (event("e", "x" * 60_000).json.encode(), "unrouted"),
        (b'{"%s":1,"%s":2}' % (b"k" * 40_000, b"k" * 40_000), "duplicate_key"),
    ],
)
def test_what_cannot_be_delivered_becomes_a_dead_letter(device: Device, payload: bytes, reason: str) -> None:
    bad = device.from_service(payload)
    device.turn(bad, device.from_service(event("good")))
    assert len(device.local.last.acknowledged) == 2
    assert device.receipts()[0] == Receipt(digest(payload), reason)
    letter = device.waiting()[0]
    assert letter.type == DEAD_LETTER
    assert letter.source == "/devices/thing/router"
    assert letter.attributes["deadletterreason"] == reason
    assert letter.attributes["time"] == "2024-05-01T12:16:40.000Z"
    data = json.loads(letter.json)["data"]
    assert data["channel"] == "sensor.outbox"
    assert data["original_bytes"] == len(payload)


@pytest.mark.parametrize("message", [b"garbage", event("e")])
def test_a_repetition_is_known_after_a_crash(device: Device, message: bytes | Envelope) -> None:
    for _ in range(2):
        device.send(message)
        device.restart()
    waiting = device.spool.read("device.outbox", 1, 0, 10)
    assert len(waiting) == 1


def test_undeclared_receipts_are_ignored(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    receipts = write_receipts([Receipt("of what display handled")])  # its inbox has no receipts any more
    device.turn(
        device.receipt_of("display", receipts),
        device.question_of("retired", "1", "k"),
        device.announcement_of("retired"),
    )
    assert device.spool.backlog() == {"device.outbox": 0}
    assert len(device.local.last.acknowledged) == 3
    assert "eventplane/display/inbox/receipts ignored" in caplog.text


class TestInbox:
    def test_with_receipts_only_the_receipt_ends_it(self, device: Device) -> None:
        device.send(event("fire", ALARM))
        device.turn(*(device.puback(mid, LOCAL) for mid, _, _ in device.local.last.published))
        assert device.spool.backlog()["call.inbox"] == 1
        receipt = Receipt(digest(device.delivered("call")[0]))
        device.turn(device.receipt_of("call", write_receipts([receipt, Receipt("unknown")])))
        assert device.spool.backlog() == {"call.inbox": 0, "device.outbox": 1}

    def test_without_receipts_the_brokers_acknowledgement_ends_it(self, device: Device) -> None:
        device.send(event("news", subject="show"))
        assert len(device.delivered("display")) == 1
        device.turn(*(device.puback(mid, LOCAL) for mid, _, _ in device.local.last.published))
        assert device.spool.backlog() == {"display.inbox": 0, "device.outbox": 1}

    @pytest.mark.source("N6")
    @pytest.mark.parametrize("again", [lambda device: device.reconnect(LOCAL), Device.restart])
    def test_a_restart_makes_it_come_again(self, device: Device, again: Callable[[Device], None]) -> None:
        device.send(event("fire", ALARM))
        again(device)
        assert device.ids_at("call") == ["fire"]

    @pytest.mark.parametrize("said", ["no_line", "two\nlines", "", "\ud800", "x" * 100_000])
    def test_a_refusal_becomes_a_dead_letter_whatever_its_reason(self, device: Device, said: str) -> None:
        device.send(event("fire", ALARM))
        device.confirm(refused=said)
        assert device.spool.backlog() == {"call.inbox": 0, "device.outbox": 2}
        letter = device.waiting()[0]
        is_word = said == "no_line"
        assert letter.attributes["deadletterreason"] == (said if is_word else "refused")
        assert letter.data()["channel"] == "call.inbox"
        assert is_word or repr(said)[:100] in letter.data()["detail"]

    @pytest.mark.source("C4")
    def test_expired_at_its_reader_is_no_letter(self, device: Device) -> None:
        device.send(event("fire", ALARM, expirytime="9000-01-01T00:00:00Z"))
        device.confirm(refused="expired")
        assert device.spool.backlog() == {"call.inbox": 0, "device.outbox": 1}
        assert device.forwarder.counts.discards == {(Outcome.EXPIRED, "expirytime"): 1}
        (told,) = device.spool.loss_reports()
        assert (told.destination, told.outcome, told.reason) == ("call.inbox", Outcome.EXPIRED, "expirytime")

    @pytest.mark.source("C4")
    def test_a_reader_cannot_say_so_of_an_event_that_does_not_expire(self, device: Device) -> None:
        device.send(event("fire", ALARM, subject="expirytime"))
        device.confirm(refused="expired")
        assert device.spool.backlog() == {"call.inbox": 0, "device.outbox": 2}
        assert device.forwarder.counts.discards == {}

    @pytest.mark.parametrize("nonsense", [b"nonsense", b"[" * 200_000])
    def test_malformed_receipts_are_ignored(self, device: Device, nonsense: bytes) -> None:
        device.send(event("fire", ALARM))
        device.turn(device.receipt_of("call", nonsense))
        assert device.spool.backlog()["call.inbox"] == 1
        assert len(device.local.last.acknowledged) == 2


def test_a_stop_lets_deliveries_in_flight_end(device: Device) -> None:
    device.inbound = [
        [device.from_service(event("fire", ALARM))],
        [Stop()],
        [],
        [device.puback(1)],
        [device.puback(2)],
    ]
    device.forwarder.run()
    assert device.spool.backlog() == {"call.inbox": 1, "device.outbox": 0}
    assert device.local.last.closed
    assert device.cloud.last.closed


def test_a_stop_waits_no_longer_than_its_limit(device: Device) -> None:
    device.inbound = [[device.from_service(event("fire", ALARM)), Stop()]]
    before = device.time.seconds
    device.forwarder.run()
    assert device.time.seconds - before <= 5
    assert device.spool.backlog()["device.outbox"] == 2  # with the last manifest


def stop(device: Device) -> None:
    device.inbound = [[Stop()]]
    device.forwarder.run()


def test_what_waits_in_the_mailbox_at_the_end_is_stored(device: Device) -> None:
    """What came at QoS 0 is sent by no one a second time."""
    device.inbound += [[Stop()], [device.from_service(event("late"))]]
    device.forwarder.run()
    assert [each.id for each in device.waiting()] == ["late"]


def test_a_stop_states_all_that_was_stored_and_sends_it(device: Device) -> None:
    """Without it nobody knows what the last hour before a stop should have brought to the cloud."""
    device.inbound = [[device.from_service(event(f"e{n}")) for n in range(3)], [Stop()]]
    device.forwarder.run()
    *events, manifest = device.sent_up()
    assert [each.id for each in events] == ["e0", "e1", "e2"]
    assert (manifest.type, manifest.data()["final"]) == (MANIFEST, True)
    stated = device.statement(manifest)
    assert (stated["first"], stated["last"], stated["count"]) == (2, 4, 3)
    assert int(str(manifest.attributes["devicesequence"])) == device.spool.next_sequence - 1


def test_losses_are_reported_before_the_last_manifest_so_that_it_states_them(device: Device) -> None:
    device.send(event("e"))
    device.resize(device.spool.space.used_bytes)
    device.send(event("full"))
    device.resize(100 * device.spool.space.capacity_bytes)
    stop(device)
    *_, report, manifest = device.sent_up()
    assert (report.type, manifest.type) == (DISCARDED, MANIFEST)
    number = int(str(report.attributes["devicesequence"]))
    stated = device.statement(manifest)
    assert stated["last"] == number == int(str(manifest.attributes["devicesequence"])) - 1


def test_a_restart_loop_stores_no_manifests_of_nothing(device: Device) -> None:
    before = device.spool.next_sequence
    for _ in range(3):
        stop(device)
        device.restart(connected=False)
    assert device.spool.next_sequence == before


def test_a_stop_does_not_send_a_long_backlog(device: Device) -> None:
    device.send(*(event(f"e{n}") for n in range(101)))
    device.connect()
    device.cloud.last.published.clear()
    stop(device)
    assert MANIFEST not in [each.type for each in device.sent_up()]
    waiting = device.spool.read("device.outbox", 1, 0, 200)
    assert parse_event(waiting[-1].json).type == MANIFEST


def test_a_stop_without_a_connection_is_quick(device: Device) -> None:
    device.send(*(event(f"e{n}") for n in range(2)))
    device.disconnect(CLOUD)
    device.inbound = [[Stop()]]
    before = device.time.seconds
    device.forwarder.run()
    assert device.time.seconds == before
    assert device.spool.backlog()["device.outbox"] == 3  # stored, and sent after the next start
