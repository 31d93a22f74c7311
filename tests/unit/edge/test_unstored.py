"""An urgent event that finds no room: refused to its sender, and delivered all the same."""

from __future__ import annotations

import pytest

from edge.delivery_queues import SENT_UNSTORED, UNCONFIRMED
from eventplane.envelope import parse_event
from eventplane.receipts import Receipt, digest, write_receipts
from eventplane_mqtt.mailbox import Disconnected, LinkName
from tests.unit.edge.disks import SmallDisk, fill_the_rest
from tests.unit.edge.fakes import ALARM, CHORE, Device, MakeDevice, contract, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
FULL = "spool_full"
FIRE = event("fire", ALARM)
DELIVERED = FIRE.stamped(senderservice="sensor")


@pytest.fixture
def full(make: MakeDevice) -> Device:
    """Both brokers are there, and no byte of room is left."""
    device = make()
    device.resize(device.spool.used_bytes)
    return device


def make_room(device: Device) -> None:
    device.resize(64 * 1024 * 1024)


def test_it_is_sent_from_memory_and_its_sender_knows_that_it_is_not_stored(full: Device) -> None:
    assert full.offer(FIRE) == [FULL]
    assert full.delivered("call") == [DELIVERED.json.encode()]
    assert full.uplinked() == [["fire"]]
    assert not full.spool.pending("call.inbox", 0)


def test_only_what_is_urgent_is(full: Device) -> None:
    assert full.offer(event("r", subject="show"), event("c", CHORE)) == [FULL, FULL]
    full.turn(after=1.0)
    assert (full.delivered("display"), full.uplinked()) == ([], [])


def test_a_repetition_calls_nobody_again(full: Device) -> None:
    for _ in range(3):
        assert full.offer(FIRE, FIRE) == [FULL, FULL]
    full.confirm()
    full.turn(full.puback(1))
    for _ in range(3):
        assert full.offer(FIRE) == [FULL]
    assert (full.ids_at("call"), full.uplinked()) == (["fire"], [["fire"]])


def test_it_goes_before_all_that_is_stored(make: MakeDevice) -> None:
    device = make(connected=False)
    device.connect(CLOUD)
    for n in range(5):
        device.send(event(f"a{n}", ALARM))
    device.resize(device.spool.used_bytes)
    device.connect(LOCAL)
    assert device.ids_at("call") == ["a0", "a1", "a2"]
    device.offer(FIRE)
    device.confirm()
    assert device.ids_at("call")[3:] == ["fire", "a3", "a4"]


def test_what_was_in_flight_when_a_connection_ended_goes_over_the_next(full: Device) -> None:
    full.offer(FIRE)
    full.reconnect(LOCAL)
    assert full.ids_at("call") == ["fire"]
    full.confirm()
    full.reconnect(CLOUD)
    assert full.uplinked() == [["fire"]]
    full.turn(full.puback(1))
    assert full.forwarder.counts.sent_unstored == 2
    assert full.offer(FIRE) == [FULL]
    assert (full.ids_at("call"), full.uplinked()) == (["fire"], [["fire"]])


def test_one_that_the_cloud_does_not_answer_is_sent_again(full: Device) -> None:
    full.offer(FIRE)
    full.turn(after=full.settings.cloud.puback_timeout_s)
    full.redial(CLOUD)
    assert full.uplinked() == [["fire"]]


def test_one_at_which_the_cloud_ends_each_connection_is_given_up(full: Device) -> None:
    full.offer(FIRE)
    for _ in range(20):
        full.reconnect(CLOUD)
        if [] in full.uplinked():
            full.turn(full.puback(1))
    assert ["fire"] not in full.uplinked()


def test_a_service_that_does_not_confirm_is_called_again_but_seldom(full: Device) -> None:
    for _ in range(100):
        full.offer(FIRE)
        full.turn(after=1.0)
    assert full.ids_at("call") == ["fire"] * 4  # after 10, 20 and 40 s more


def test_when_it_is_stored_later_it_comes_once_more(full: Device) -> None:
    assert full.offer(FIRE) == [FULL]
    full.confirm()
    make_room(full)
    assert full.offer(FIRE) == [None]
    assert full.offer(FIRE) == [None]
    first, second = (parse_event(each) for each in full.delivered("call"))
    assert first.key == second.key
    assert "devicesequence" in second.attributes
    assert "devicesequence" not in first.attributes


def test_it_is_counted_as_refused_each_time_and_as_sent_when_it_was(full: Device) -> None:
    full.offer(FIRE)
    assert full.forwarder.counts.sent_unstored == 0
    full.confirm()
    full.offer(FIRE)
    assert (full.forwarder.counts.refused, full.forwarder.counts.sent_unstored) == (2, 1)
    full.disconnect(CLOUD)
    make_room(full)
    full.turn(after=61.0)
    assert full.not_stored() == {("sensor.outbox", FULL): 2, ("call.inbox", SENT_UNSTORED): 1}
    assert UNCONFIRMED not in {reason for _, reason in full.not_stored()}


def test_a_service_that_can_never_handle_it_says_so_in_a_dead_letter(full: Device) -> None:
    full.offer(FIRE)
    make_room(full)
    refusal = Receipt(digest(DELIVERED.json.encode()), "no_line")
    full.turn(full.receipt_of("call", write_receipts([refusal])))
    assert full.forwarder.counts.sent_unstored == 1
    assert full.ids_at("call") == ["fire"]
    assert full.spool.pending("device.outbox", 1) >= 1


def test_a_best_effort_inbox_gets_it_too(make: MakeDevice) -> None:
    plane = contract(display={"inbox": {"delivery_guarantee": "best_effort"}})
    device = make(plane=plane)
    device.resize(device.spool.used_bytes)
    assert device.offer(event("fire", ALARM, subject="show")) == [FULL]
    assert len(device.delivered("display")) == len(device.delivered("call")) == 1


def test_it_works_on_a_disk_that_is_really_full(small_disk: SmallDisk) -> None:
    device = Device(small_disk.path)
    device.connect(LOCAL)
    fill_the_rest(small_disk.path.with_name("other"))
    stored = 0
    while device.offer(event(f"a{stored}", ALARM, pad="x" * 50_000)) == [None]:
        stored += 1
    for _ in range(stored):  # the service has a window of three
        device.confirm()
    assert sorted(device.ids_at("call")) == sorted(f"a{n}" for n in range(stored + 1))
    assert device.offer(event("reading"), event("fire", ALARM, pad="x" * 50_000)) == [FULL, FULL]
    assert device.ids_at("call")[-1] == "fire"
    assert "devicesequence" not in parse_event(device.delivered("call")[-1]).attributes
    device.crash()


def test_an_alarm_waits_for_a_connection_and_goes_without_a_repetition(full: Device) -> None:
    full.turn(Disconnected(CLOUD, full.cloud_link.generation, "gone"))
    assert full.offer(FIRE) == [FULL]
    full.confirm()
    full.redial(CLOUD)
    assert (full.ids_at("call"), full.uplinked()) == (["fire"], [["fire"]])
    assert full.offer(FIRE) == [FULL]
    assert (full.ids_at("call"), full.uplinked()) == (["fire"], [["fire"]])
