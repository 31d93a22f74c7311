"""What the uplink sends, when, and what ends a delivery: seen through the whole forwarder."""

import base64
import random
from datetime import timedelta

import pytest

from edge.delivery_queues import DeliveryCursor
from edge.spool.store import READ_CHARACTERS
from eventplane.envelope import Envelope, parse_event
from eventplane.reasons import Outcome
from eventplane_mqtt.mailbox import Disconnected, LinkName
from tests.unit.edge.fakes import (
    ALARM,
    CHORE,
    DEAD_LETTER,
    READING,
    TOPIC,
    URGENT_TOPIC,
    Device,
    MakeDevice,
    event,
    ids,
)

CLOUD = LinkName.CLOUD


def test_fresh_events_are_not_read_back(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.spool, "read", lambda *_: pytest.fail("its text is in memory"))
    for n in range(3):
        device.send(event(f"e{n}"), event(f"fire{n}", ALARM))
    device.turn(after=1.0)
    assert device.uplinked() == [["fire0"], ["fire1"], ["fire2"], ["e0", "e1", "e2"]]
    assert len(device.delivered("call")) == 3


def test_a_batch_forms_while_another_is_unacknowledged(device: Device) -> None:
    device.send(event("a"))
    device.turn(after=0.3)
    device.send(event("b"))
    device.send(event("c"), after=1.0)
    assert device.uplinked() == [["a"]]
    device.turn(device.puback(1))
    assert device.uplinked() == [["a"], ["b", "c"]]
    device.send(*(event(f"e{n}") for n in range(10)))
    device.turn(device.puback(2), device.puback(3))
    device.send(event("d"), after=1.0)
    assert len(device.uplinked()) == 4
    device.turn(device.puback(4), after=1.0)
    assert device.uplinked()[4] == ["d"]


def test_urgent_overtakes_a_backlog_and_finds_room_in_the_window(device: Device) -> None:
    device.prove_line()
    device.send(*(event(f"e{n}") for n in range(100)))
    assert len(device.uplinked()) == 9
    device.send(event("fire", ALARM))
    assert device.uplinked()[9] == ["fire"]
    device.send(event("flood", ALARM))
    assert len(device.uplinked()) == 10


def test_nothing_goes_before_an_alarm_that_waits_for_the_first_answers_of_a_line(device: Device) -> None:
    alarms = [f"fire{n}" for n in range(20)]
    for each in alarms:
        device.send(event(each, ALARM))
    device.send(event("reading"), after=5.0)
    sent = [id for ids in device.uplinked() for id in ids]
    assert 1 < len(sent) < 20
    assert sent == alarms[: len(sent)]
    device.acknowledge_all()
    assert [id for ids in device.uplinked() for id in ids] == [*alarms, "reading"]


def test_low_waits_also_for_normal_that_is_too_large_to_be_read_at_once(make: MakeDevice) -> None:
    device = make(connected=False, batch_events=50)
    device.send(*(event(f"e{n}", pad="x" * 95_000) for n in range(8)))
    device.send(event("low", CHORE))
    device.connect()
    device.acknowledge_all()
    device.turn(after=1.0)
    assert [id for ids in device.uplinked() for id in ids] == [*(f"e{n}" for n in range(8)), "low"]


@pytest.mark.parametrize(("waiting", "soon"), [(ALARM, True), (READING, False)])
def test_an_alarm_ends_the_backoff(make: MakeDevice, waiting: str, soon: bool) -> None:
    device = make()
    while (device.cloud_link.deadline() or 0) < device.time.seconds + 35:
        device.turn(Disconnected(CLOUD, device.cloud_link.generation, "gone"), after=61)
    before = device.cloud_link.deadline()
    device.send(event("waits", waiting))
    due = device.cloud_link.deadline()
    assert due is not None
    assert (due == before) is not soon
    assert (due <= device.time.seconds + 5) is soon


@pytest.mark.source("P4", "P-W5")
def test_only_a_puback_of_the_current_connection_ends_a_delivery(device: Device) -> None:
    device.send(event("fire", ALARM))
    device.turn(device.puback(99))
    assert device.spool.backlog()["device.outbox"] == 1
    late = device.puback(1)
    device.reconnect(CLOUD)
    assert device.uplinked() == [["fire"]]
    device.turn(late)
    assert device.spool.backlog()["device.outbox"] == 1
    device.turn(device.puback(1))
    assert device.spool.backlog()["device.outbox"] == 0


def test_what_is_left_of_a_backlog_waits_for_a_batch_like_anything_else(device: Device) -> None:
    device.send(event("a"))
    device.turn(after=0.3)
    device.send(*(event(f"e{n}") for n in range(5)))
    device.turn(device.puback(2))
    device.reconnect(CLOUD)
    assert device.uplinked() == []
    device.turn(after=0.3)
    assert device.uplinked() == [["a"]]


@pytest.mark.source("P-W2")
def test_after_a_crash_only_what_was_unacknowledged_comes_again(device: Device) -> None:
    device.send(*(event(f"e{n}") for n in range(15)))
    assert [len(batch) for batch in device.uplinked()] == [5, 5, 5]
    device.turn(device.puback(1), device.puback(3))
    device.restart()
    device.turn(after=1.0)
    assert device.uplinked() == [[f"e{n}" for n in range(5, 10)]]


def test_a_missing_puback_forces_a_new_connection(device: Device) -> None:
    device.send(event("fire", ALARM))
    stuck = device.cloud.last
    device.turn(after=29.0)
    assert not stuck.abandoned
    device.turn(after=1.0)
    assert stuck.abandoned
    device.turn(Disconnected(CLOUD, device.cloud_link.generation, "late news"), after=61.0)
    device.connect(CLOUD)
    assert device.uplinked() == [["fire"]]


def test_urgent_goes_at_once_apart_and_on_a_topic_of_its_own(device: Device) -> None:
    device.send(event("a"), event("fire", ALARM))
    assert device.uplinked() == [["fire"]]
    device.turn(after=0.3)
    assert [topic for _, topic, _ in device.cloud.last.published] == [URGENT_TOPIC, TOPIC]


class TestRefusal:
    """MQTT 5 says why a publish failed."""

    @pytest.mark.parametrize("failure", ["Not authorized", "topic name invalid", "unspecified error"])
    def test_other_failures_end_no_delivery(self, device: Device, failure: str) -> None:
        for _ in range(10):
            device.send(event("fire", ALARM))
            device.turn(device.puback(1, failure=failure))
            assert device.cloud.last.abandoned
            device.redial(CLOUD)
        assert device.spool.backlog()["device.outbox"] == 1

    def test_the_quota_slows_it_down_and_the_publish_comes_again(self, device: Device) -> None:
        device.send(*(event(f"e{n}") for n in range(5)))
        device.turn(device.puback(1, failure="Quota exceeded"))
        assert device.uplinked() == [["e0", "e1", "e2", "e3", "e4"]] * 2
        assert not device.cloud.last.abandoned
        device.turn(device.puback(2))
        assert device.spool.backlog() == {"device.outbox": 0}
        assert device.forwarder.uplink.publisher.pace.slowed == 1

    def test_a_batch_is_split_until_the_one_that_is_refused_is_found(self, device: Device) -> None:
        device.send(*(event(f"e{n}") for n in range(5)))
        device.turn(device.puback(1, failure="payload format invalid"))
        mid = 1
        while mid < len(device.uplinked()):
            failure = "payload format invalid" if "e3" in device.uplinked()[mid] else None
            mid += 1
            device.turn(device.puback(mid, failure=failure))
        letter = device.waiting()[0]
        assert letter.attributes["deadletterreason"] == "refused_by_cloud"
        assert '"id":"e3"' in base64.b64decode(letter.data()["original_base64"]).decode()


class TestPoison:
    """MQTT 3.1.1 has no refusal: the broker hangs up."""

    @pytest.mark.parametrize("type", [READING, ALARM, CHORE])
    def test_a_poison_event_is_a_letter(self, device: Device, type: str) -> None:
        device.disconnect(CLOUD)
        device.send(*(event(f"e{n}", type) for n in range(12)))
        device.relay(poison="e7")
        sent = {id for wire in device.cloud.all for _, _, payload in wire.published for id in ids(payload)}
        assert {f"e{n}" for n in range(12)} <= sent
        assert device.spool.backlog()["device.outbox"] == 0
        (letter,) = device.letters()
        assert letter.attributes["deadletterreason"] == "refused_by_cloud"
        assert '"id":"e7"' in base64.b64decode(letter.data()["original_base64"]).decode()

    @pytest.mark.parametrize(("type", "refused"), [(READING, TOPIC), (ALARM, URGENT_TOPIC)])
    def test_a_refused_topic_makes_no_letter(self, device: Device, type: str, refused: str) -> None:
        device.send(event("a", type), after=1.0)
        for _ in range(40):
            device.turn(after=1.0)
            published = device.cloud.last.published
            assert published[0][1] == refused
            device.reconnect(CLOUD)
        assert device.letters() == []
        assert device.spool.backlog()["device.outbox"] == 1

    def test_the_dead_letter_of_a_dead_letter_is_small(self, device: Device) -> None:
        device.send(b"x" * 60_000)
        device.turn(after=1.0)
        device.turn(device.puback(1, failure="packet too large"))
        (waiting,) = device.spool.read("device.outbox", 1, 0, 10)
        assert len(waiting.json) < 10_000
        assert parse_event(waiting.json).type == DEAD_LETTER

    @pytest.mark.parametrize("payload", [event("e"), b"x" * 60_000])
    def test_letters_end_when_all_is_refused(self, device: Device, payload: Envelope | bytes) -> None:
        device.send(payload)
        for _ in range(10):
            device.turn(after=1.0)
            while device.cloud.last.answered < len(device.cloud.last.published):
                mid, _, _ = device.cloud.last.published[device.cloud.last.answered]
                device.cloud.last.answered += 1
                device.turn(device.puback(mid, failure="packet too large"))
        assert device.forwarder.counts.discards[Outcome.DROPPED, "refused_by_cloud"] >= 1
        assert device.spool.next_sequence < 8

    def test_a_letter_keeps_the_whole_event(self, device: Device) -> None:
        spoken = event("e", subject=DEAD_LETTER, pad="x" * 20_000)
        device.send(spoken)
        device.turn(after=1.0)
        device.turn(device.puback(1, failure="packet too large"))
        (waiting,) = device.spool.read("device.outbox", 1, 0, 10)
        original = base64.b64decode(parse_event(waiting.json).data()["original_base64"])
        assert len(original) > 20_000

    @pytest.mark.parametrize("is_silent", [False, True], ids=["hangs up", "swallows everything"])
    def test_an_outage_makes_no_dead_letter(self, device: Device, is_silent: bool) -> None:
        device.send(*(event(f"e{n}") for n in range(7)))
        for _ in range(40):
            if is_silent:
                device.turn(after=30.0)
                device.redial(CLOUD)
            else:
                device.reconnect(CLOUD)
        assert device.spool.backlog() == {"device.outbox": 7}
        assert is_silent or device.uplinked() == [[]]  # after hang-ups it probes first
        device.acknowledge_all()
        device.turn(after=1.0)
        device.acknowledge_all()
        assert device.spool.backlog() == {"device.outbox": 0}
        assert device.spool.next_sequence == 9

    def test_an_early_end_makes_no_letter(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        """The connection answers the probe; when the event's turn comes it is over: no packet id."""
        device.send(event("fire", ALARM))
        for _ in range(3):
            device.reconnect(CLOUD)
        for _ in range(20):
            monkeypatch.setattr(device.cloud.last, "publish", lambda *_, **__: 0)
            device.turn(device.puback(1))
            device.reconnect(CLOUD)
        assert device.spool.backlog()["device.outbox"] == 1
        assert device.letters() == []
        assert device.spool.next_sequence == 3

    @pytest.fixture
    def suspecting(self, make: MakeDevice) -> Device:
        """The cloud hung up at an alarm three times; the next one probes, and the alarm has expired."""
        device = make(batch_events=250)
        device.send(event("fire", ALARM, time="2024-05-01T12:00:00Z", expirytime="2024-05-01T12:10:00Z"))
        for _ in range(3):
            device.reconnect(CLOUD)
        assert device.cloud.last.published == [(1, URGENT_TOPIC, b"[]")]
        device.time.seconds += 600.0
        return device

    @pytest.mark.parametrize("type", [READING, ALARM])
    def test_publishes_are_shared_again(self, suspecting: Device, type: str) -> None:
        suspecting.turn(suspecting.puback(1))
        suspecting.send(*(event(f"e{n}", type) for n in range(20)))
        suspecting.turn(after=1.0)
        assert suspecting.uplinked()[1][:20] == [f"e{n}" for n in range(20)]

    def test_an_expired_suspect_holds_nothing(self, suspecting: Device) -> None:
        suspecting.turn(suspecting.puback(1, failure="Not authorized"))
        suspecting.redial(CLOUD)
        suspecting.send(event("reading"), after=1.0)
        suspecting.turn(after=1.0)
        assert [each.id for each in suspecting.sent_up(READING)] == ["reading"]

    def test_alarms_go_by_their_own_topic(self, device: Device) -> None:
        device.send(event("reading"))
        for number in range(20):
            device.turn(after=1.0)
            assert device.cloud.last.published[-1][1] == TOPIC
            device.disconnect(CLOUD)
            device.send(event(f"fire{number}", ALARM))
            device.connect(CLOUD)
            assert device.uplinked() == [[f"fire{number}"]]
            device.turn(device.puback(1))
        assert device.letters() == []
        assert device.spool.backlog()["device.outbox"] == 1

    def test_an_alarm_that_is_sent_again_on_the_same_connection_stays_a_suspect(self, device: Device) -> None:
        device.send(event("fire", ALARM))
        for _ in range(3):
            device.reconnect(CLOUD)
        for _ in range(5):
            device.turn(device.puback(1))
            device.turn(device.puback(2, failure="Quota exceeded"))
            assert device.uplinked() == [[], ["fire"], ["fire"]]
            device.reconnect(CLOUD)
        device.turn(after=1.0)
        assert len(device.letters()) == 1


class TestPace:
    def test_it_keeps_to_the_publishes_of_a_second_and_wakes_up_for_more(self, make: MakeDevice) -> None:
        device = make(window=100, batch_events=1, publishes_per_s=20)
        device.prove_line()
        device.send(*(event(f"e{n}") for n in range(50)))
        assert len(device.uplinked()) == 18
        assert device.forwarder._timeout_s() == pytest.approx(1.0)
        device.turn(after=0.9)
        assert len(device.uplinked()) == 18
        device.turn(after=0.1)
        assert len(device.uplinked()) == 36
        # What is urgent goes while the rest has to wait.
        device.send(event("fire", ALARM))
        assert device.uplinked()[36:] == [["fire"]]

    def test_bytes_beyond_one_payload_do_not_queue_in_front_of_what_is_urgent(self, device: Device) -> None:
        noise = random.Random(7)
        device.prove_line()
        device.send(*(event(f"e{n}", pad=noise.randbytes(40_000).hex()) for n in range(10)))
        assert len(device.uplinked()) == 2

    def test_it_never_asks_to_be_woken_in_the_past(self, device: Device) -> None:
        """That would be a loop at full speed. Here an ordinary event is due and alarms fill the window."""
        device.send(*(event(f"a{n}", ALARM) for n in range(2)))
        device.send(*(event(f"b{n}", ALARM) for n in range(50)))
        device.send(event("late"))
        device.turn(after=1.0)
        assert (device.forwarder._timeout_s() or 0) > 0

    def test_a_publish_without_an_answer_among_answered_ones_was_throttled(self, device: Device) -> None:
        device.send(*(event(f"e{n}") for n in range(10)))
        device.turn(device.puback(2), after=1.0)
        device.turn(after=29.0)
        assert device.cloud.last.abandoned
        assert device.forwarder.uplink.publisher.pace.slowed == 1


def test_a_budget_of_bytes_a_day_holds_back_bulk_and_is_given_back_by_uptime_only(make: MakeDevice) -> None:
    noise, device = random.Random(7), make(batch_events=1, bytes_per_day=10_000)

    def sent() -> int:
        device.acknowledge_all()
        return len({each.id for each in device.published(READING)})

    device.send(*(event(f"e{n}", pad=noise.randbytes(1_000).hex()) for n in range(30)))
    first = sent()
    assert 5 <= first <= 8  # about 1.4 kB each
    device.send(event("fire", ALARM))
    assert device.uplinked()[-1] == ["fire"]
    device.time.wrong_by = timedelta(days=40)
    device.restart()
    assert sent() == first
    budget = device.forwarder.uplink.budget
    assert budget.is_used_up
    assert budget.left_bytes < 1_400
    device.turn(after=43_200.0)  # half a day
    assert 3 <= sent() - first <= 5
    device.turn(*device.forwarder._wait(device.forwarder._timeout_s()))
    assert device.cloud_link.up


def test_in_a_budget_a_small_event_does_not_wait_for_the_size_of_a_large_one(make: MakeDevice) -> None:
    device = make(batch_events=1, bytes_per_day=20_000)
    device.send(event("large", pad=random.Random(7).randbytes(12_000).hex()), event("small"))
    device.acknowledge_all()
    assert device.uplinked() == [["large"], ["small"]]
    budget = device.forwarder.uplink.budget
    assert not budget.is_used_up


def test_an_alarm_to_be_repeated_does_not_wait_for_a_budget_that_only_bulk_exceeds(make: MakeDevice) -> None:
    noise, device = random.Random(7), make(batch_events=1, bytes_per_day=20_000)
    device.prove_line()
    device.send(event("fire", ALARM), *(event(f"e{n}", pad=noise.randbytes(7_000).hex()) for n in range(2)))
    device.turn(device.puback(1, failure="quota exceeded"), device.puback(2, failure="quota exceeded"))
    device.turn(after=2.0)
    assert device.uplinked() == [["fire"], ["e0"], ["e1"], ["fire"]]


class TestProbe:
    @pytest.mark.parametrize("other", [{}, {"single": True}, {"bytes_per_day": 10_000}], ids=str)
    def test_a_ping_probes_an_idle_line(self, make: MakeDevice, other: dict[str, int]) -> None:
        device = make(**other)
        wire, mid = device.cloud.last, 65_536 if other else 1
        for number in range(3):
            device.turn(after=299.0)
            assert wire.pings + len(wire.published) == number
            device.turn(after=1.0)
            assert (wire.pings, len(wire.published)) == ((number + 1, 0) if other else (0, number + 1))
            device.turn(device.puback(mid + number))
        assert {payload for *_, payload in wire.published} <= {b"[]"}
        assert device.forwarder.counts.acknowledged == len(wire.published)

    @pytest.mark.source("P-W2")
    @pytest.mark.parametrize("single", [False, True], ids=["batches", "single events"])
    def test_the_loop_wakes_up_and_finds_a_dead_connection(self, make: MakeDevice, single: bool) -> None:
        device = make(single=single)
        stuck, before = device.cloud.last, device.time.seconds
        for _ in range(2):
            device.turn(*device.forwarder._wait(device.forwarder._timeout_s()))
        assert stuck.published or stuck.pings
        assert stuck.abandoned
        cloud = device.settings.cloud
        assert device.time.seconds - before <= cloud.probe_interval_s + cloud.puback_timeout_s


class TestSingle:
    """For other clouds: one plain event a publish."""

    @pytest.fixture
    def single(self, make: MakeDevice) -> Device:
        return make(single=True)

    def test_an_event_goes_as_it_is_without_delay(self, single: Device) -> None:
        single.send(event("a"), event("b"))
        payloads = [payload for _, _, payload in single.cloud.last.published]
        assert [parse_event(each).id for each in payloads] == ["a", "b"]

    def test_a_connection_proves_itself_so_before_an_event_is_suspected(self, single: Device) -> None:
        single.send(event("poison", ALARM))
        for _ in range(20):
            single.reconnect(CLOUD)
            if single.letters():
                break
            if single.cloud.last.pings:
                assert single.cloud.last.published == []
                single.turn(single.puback(65_536))
        assert [each.attributes["deadletterreason"] for each in single.letters()] == ["refused_by_cloud"]


def test_it_counts(device: Device) -> None:
    device.send(*(event(f"e{n}") for n in range(10)))
    uplink, sent = device.forwarder.uplink, device.forwarder.counts
    assert (sent.published, sent.published_events, len(uplink.publisher)) == (2, 10, 2)
    assert sent.published_bytes == sum(len(payload) for _, _, payload in device.cloud.last.published)
    device.turn(device.puback(1, failure="payload format invalid"), device.puback(2))
    assert (len(uplink.publisher), device.cloud_link.connects) == (2, 1)


def test_the_time_to_an_acknowledgement_is_summed(device: Device) -> None:
    for mid, seconds in ((1, 0.25), (2, 1.5)):
        device.send(event(f"fire{mid}", ALARM))
        device.turn(device.puback(mid), after=seconds)
    assert device.forwarder.uplink.acknowledge_s == 1.75


LARGE = "x" * 60_000


def test_a_large_backlog_is_read_by_text(make: MakeDevice) -> None:
    device = make(connected=False)
    for number in range(60):
        device.send(event(f"e{number}", subject=LARGE))
    cursor = DeliveryCursor(device.spool, "device.outbox", 1)
    sizes = []
    for _ in range(20):
        cursor.fill(500)
        sizes.append(sum(len(each.json) for each in cursor.ahead(500)))
    assert READ_CHARACTERS <= sizes[-1] <= READ_CHARACTERS + len(LARGE) + 1_000
    assert cursor.more
