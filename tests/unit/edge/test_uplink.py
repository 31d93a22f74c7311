"""What the uplink sends, when, and what ends a delivery: seen through the whole forwarder."""

from __future__ import annotations

from pathlib import Path

from edge.messages import Acknowledged, Disconnected, LinkName
from tests.unit.edge.fakes import ALARM, CHORE, TOPIC, Device, event

CLOUD = LinkName.CLOUD


def test_one_event_waits_as_long_as_the_channel_allows(device: Device) -> None:
    device.turn(device.from_service(event("a")))
    assert device.uplinked() == []
    device.turn(device.from_service(event("b")), after=0.2)
    device.turn(after=0.04)
    assert device.uplinked() == []
    device.turn(after=0.02)
    assert device.uplinked() == [["a", "b"]]


def test_the_loop_wakes_up_for_it(device: Device) -> None:
    device.turn(device.from_service(event("a")))
    device.inbound = []
    device.turn(*device.forwarder._wait(device.forwarder._patience()))
    assert device.uplinked() == [["a"]]


def test_no_delay_when_the_channel_allows_none(tmp_path: Path) -> None:
    device = Device(tmp_path / "spool.db", batching_delay_ms=0)
    device.connect()
    device.turn(device.from_service(event("a")))
    assert device.uplinked() == [["a"]]
    device.crash()


def test_a_full_batch_does_not_wait(device: Device) -> None:
    device.turn(*(device.from_service(event(f"e{n}")) for n in range(7)))
    assert device.uplinked() == [["e0", "e1", "e2", "e3", "e4"]]


def test_a_batch_forms_while_another_is_unacknowledged(device: Device) -> None:
    device.turn(device.from_service(event("a")))
    device.turn(after=0.3)
    device.turn(device.from_service(event("b")))
    device.turn(device.from_service(event("c")), after=1.0)
    assert device.uplinked() == [["a"]]
    device.turn(device.puback(1))
    assert device.uplinked() == [["a"], ["b", "c"]]


def test_urgent_goes_at_once_and_apart(device: Device) -> None:
    device.turn(device.from_service(event("a")), device.from_service(event("fire", ALARM)))
    assert device.uplinked() == [["fire"]]


def test_urgent_overtakes_a_backlog_and_finds_room_in_the_window(device: Device) -> None:
    device.turn(*(device.from_service(event(f"e{n}")) for n in range(100)))
    assert len(device.uplinked()) == 9
    device.turn(device.from_service(event("fire", ALARM)))
    assert device.uplinked()[9] == ["fire"]
    device.turn(device.from_service(event("flood", ALARM)))
    assert len(device.uplinked()) == 10


def test_normal_goes_before_low_each_in_its_order(device: Device) -> None:
    device.disconnect(CLOUD)
    for n in range(3):
        device.turn(device.from_service(event(f"low{n}", CHORE)), device.from_service(event(f"e{n}")))
    device.connect(CLOUD)
    device.acknowledge_all()
    assert device.uplinked() == [["e0", "e1", "e2", "low0", "low1"], ["low2"]]


def test_low_waits_also_for_normal_that_is_too_large_to_be_read_at_once(tmp_path: Path) -> None:
    device = Device(tmp_path / "spool.db", batch_events=50)
    device.turn(*(device.from_service(event(f"e{n}", pad="x" * 95_000)) for n in range(8)))
    device.turn(device.from_service(event("low", CHORE)))
    device.connect()
    device.acknowledge_all()
    assert device.uplinked() == [[f"e{n}" for n in range(6)], ["e6", "e7", "low"]]
    device.crash()


def test_only_a_puback_ends_a_delivery(device: Device) -> None:
    device.turn(device.from_service(event("fire", ALARM)))
    device.turn(device.puback(99))
    assert device.spool.backlog()["device.outbox"] == 1
    device.turn(device.puback(1))
    assert device.spool.backlog()["device.outbox"] == 0


def test_a_late_puback_of_a_bygone_connection_confirms_nothing(device: Device) -> None:
    device.turn(device.from_service(event("fire", ALARM)))
    old = device.cloud_link.generation
    device.disconnect(CLOUD)
    device.connect(CLOUD)
    assert device.uplinked() == [["fire"]]
    device.turn(Acknowledged(CLOUD, old, 1))
    assert device.spool.backlog()["device.outbox"] == 1


def test_what_was_under_way_is_sent_again_in_order(device: Device) -> None:
    device.turn(*(device.from_service(event(f"e{n}")) for n in range(12)))
    device.turn(device.puback(1))
    device.disconnect(CLOUD)
    device.connect(CLOUD)
    assert device.uplinked() == [["e5", "e6", "e7", "e8", "e9"]]
    device.acknowledge_all()
    assert device.spool.backlog() == {"device.outbox": 0}


def test_what_is_left_of_a_backlog_waits_for_company_like_anything_else(device: Device) -> None:
    device.turn(device.from_service(event("a")))
    device.turn(after=0.3)
    device.turn(*(device.from_service(event(f"e{n}")) for n in range(5)))
    device.turn(device.puback(2))
    device.disconnect(CLOUD)
    device.connect(CLOUD)
    assert device.uplinked() == []
    device.turn(after=0.3)
    assert device.uplinked() == [["a"]]


def test_a_missing_puback_forces_a_new_connection(device: Device) -> None:
    device.turn(device.from_service(event("fire", ALARM)))
    stuck = device.cloud.last
    device.turn(after=29.0)
    assert not stuck.abandoned
    device.turn(after=1.0)
    assert stuck.abandoned
    device.turn(Disconnected(CLOUD, device.cloud_link.generation, "late news"), after=61.0)
    device.connect(CLOUD)
    assert device.uplinked() == [["fire"]]


def test_a_puback_that_says_no_does_not_end_a_delivery(device: Device) -> None:
    device.turn(device.from_service(event("fire", ALARM)))
    device.turn(device.puback(1, failure="Not authorized"))
    assert device.spool.backlog()["device.outbox"] == 1
    assert device.cloud.last.abandoned


def test_a_backlog_found_at_start_is_drained(device: Device) -> None:
    device.disconnect(CLOUD)
    device.turn(*(device.from_service(event(f"e{n}")) for n in range(23)))
    device.crash()
    device.start()
    device.connect()
    device.acknowledge_all()
    assert [id for batch in device.uplinked() for id in batch] == [f"e{n}" for n in range(23)]
    assert device.spool.backlog() == {"device.outbox": 0}


def test_it_publishes_to_its_topic(device: Device) -> None:
    device.turn(device.from_service(event("fire", ALARM)))
    assert device.cloud.last.published[0][1] == TOPIC
