"""Each figure is read from the part that knows it, after things that change each by another amount."""

from __future__ import annotations

import pytest

from edge.collector import Collector
from edge.figures import Figures
from edge.health.metrics import render
from edge.health.snapshots import Snapshot
from edge.mailbox import Disconnected, LinkName
from edge.mqtt import reasons
from edge.spool import Spool
from eventplane.contract import Priority
from tests.unit.edge.fakes import ALARM, Device, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
QUOTA = reasons.name(0x97)


def collector_of(device: Device) -> Collector:
    collector = Collector(
        "home-1", device.contract, device.forwarder, device.links, None, device.time.seconds
    )
    collector.look(device.time.seconds)
    return collector


@pytest.fixture
def figures(device: Device, monkeypatch: pytest.MonkeyPatch) -> Figures:
    """Of a device with a day behind it."""
    monkeypatch.setattr(Spool, "written_bytes", property(lambda _: 4_711))
    collector = collector_of(device)
    for _ in range(2):
        device.disconnect(CLOUD)
        device.connect(CLOUD)
    for mid, failure in ((1, None), (2, QUOTA)):
        device.turn(device.from_service(event(f"e{mid}")))
        device.turn(after=1.0)  # longer than it is held back for a batch
        device.turn(device.puback(mid, failure=failure))
    device.turn(*(device.from_service(b"no event %d" % number) for number in range(3)))
    device.resize(1024)
    device.turn(*(device.from_service(event(f"low{number}")) for number in range(4)))
    device.turn(Disconnected(LOCAL, device.local_link.generation, "gone"))
    collector.look(device.time.seconds)
    device.time.seconds += 7.0
    return collector.collect(device.time.seconds)


def test_what_was_counted(figures: Figures, device: Device) -> None:
    assert (figures.links[CLOUD].connects, figures.links[LOCAL].connects) == (3, 1)
    assert (figures.acknowledged, figures.slowdowns, figures.refused) == (1, 1, 4)
    assert figures.dead_letters == {"not_json": 3}
    assert (figures.publishes, figures.published_events) >= (2, 2)
    assert figures.published_bytes > figures.publishes
    assert figures.written_bytes == 4_711
    assert figures.arrivals == device.spool.next_sequence - 1


def test_a_cloud_that_refuses_for_want_of_quota_moves_the_line(device: Device) -> None:
    collector = collector_of(device)
    device.turn(device.from_service(event("fire", ALARM)))
    before = collector.progress()
    device.turn(device.puback(1, failure=QUOTA), after=1.0)
    after = collector.progress()
    assert after.answered == before.answered + 1
    assert after.waiting == before.waiting == 1
    assert device.forwarder.uplink.acknowledge_s == 0.0


def test_how_things_stand(figures: Figures, device: Device) -> None:
    assert figures.links[CLOUD].up
    assert not figures.links[LOCAL].up
    assert figures.links[LOCAL].for_s == 7.0
    assert figures.pending == device.spool.backlog()["device.outbox"]
    assert figures.oldest_s(Priority.NORMAL) >= 7.0
    assert figures.oldest_s(Priority.URGENT) == 0.0
    assert figures.capacity_bytes == 1024
    assert figures.pressure >= 1.0
    assert (figures.epoch, figures.birth) == (device.spool.epoch, device.spool.birth.kind)


def test_the_page_says_it(figures: Figures) -> None:
    lines = render(Snapshot(figures, ())).splitlines()
    for line in (
        'eventplane_connects_total{link="cloud"} 3',
        "eventplane_refused_total 4",
        "eventplane_slowdowns_total 1",
        "eventplane_acknowledged_total 1",
        "eventplane_spool_written_bytes_total 4711",
        'eventplane_dead_letters_total{reason="not_json"} 3',
    ):
        assert line in lines


def test_an_urgent_event_that_waits_has_an_age_of_its_own(device: Device) -> None:
    collector = collector_of(device)
    device.disconnect(CLOUD)
    device.turn(device.from_service(event("fire", ALARM)))
    device.time.seconds += 30.0
    found = collector.collect(device.time.seconds)
    assert found.oldest_s(Priority.URGENT) == pytest.approx(30.0)
    waiting = {(each.destination, each.priority): each.pending for each in found.backlog if each.pending}
    assert waiting == {("device.outbox", Priority.URGENT): 1, ("call.inbox", Priority.URGENT): 1}
