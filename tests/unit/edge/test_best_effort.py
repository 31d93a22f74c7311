import pytest

from edge.counts import NotStored
from edge.delivery_queues import (
    BEST_EFFORT_RANK,
    MOST_CHARACTERS,
    MOST_EVENTS,
    OFFLINE,
    OVERFLOW,
    UNCONFIRMED,
    VolatileEvent,
    VolatileQueue,
)
from edge.system import UptimeClock
from eventplane.reasons import Outcome
from eventplane_mqtt.mailbox import Disconnected, LinkName
from tests.unit.edge.fakes import ALARM, READING, Device, FakeClock, MakeDevice, contract, damage, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
BEST_EFFORT = {"delivery_guarantee": "best_effort"}
PLANE = contract(sensor={"outbox": BEST_EFFORT})


def filled(*texts: str) -> tuple[VolatileQueue, list[tuple[str, str | None]]]:
    """A queue of events with `texts`, and how events ended, each by the first character of its text."""
    ends: list[tuple[str, str | None]] = []
    queue = VolatileQueue(
        "display.inbox", BEST_EFFORT_RANK, lambda event, reason: ends.append((event.json[:1], reason))
    )
    for text in texts:
        queue.put(VolatileEvent("display.inbox", READING, text, b""), UptimeClock(FakeClock().uptime))
    return queue, ends


@pytest.mark.source("N4")
def test_it_keeps_the_newest_within_its_bounds_of_number_and_text() -> None:
    queue, ends = filled(*map(str, range(MOST_EVENTS + 2)))
    assert ends == [("0", OVERFLOW), ("1", OVERFLOW)]
    assert [each.json for each in queue.peek(2)] == ["2", "3"]
    queue.take()
    assert [each.json for each in queue.peek(1)] == ["3"]
    _, ends = filled(*(letter * (MOST_CHARACTERS // 2) for letter in "abc"))
    assert ends == [("a", OVERFLOW)]


def test_each_event_has_one_end() -> None:
    queue, ends = filled(*"abcd")
    first, *_ = [each.delivery for each in queue.peek(3)]
    queue.take(3)
    queue.end(first)
    queue.rewind()
    assert ends == [("a", None), ("b", UNCONFIRMED), ("c", UNCONFIRMED)]
    queue.end(first)
    queue.clear()
    assert ends[3:] == [("d", OFFLINE)]
    assert queue.peek(1) == []


@pytest.fixture
def device(make: MakeDevice) -> Device:
    return make(plane=PLANE)


@pytest.mark.source("P4")
def test_it_is_sent_while_the_connection_stands_and_never_stored(device: Device) -> None:
    before = device.spool.next_sequence
    sent = event("e", subject="show")
    device.send(sent)
    device.turn(after=1.0)
    assert device.delivered("display") == [sent.stamped(senderservice="sensor").json.encode()]
    assert device.uplinked() == [["e"]]
    assert device.spool.next_sequence == before
    assert [each.refused for each in device.receipts()] == [None]
    device.acknowledge_all()
    device.turn(*(device.puback(mid, LOCAL) for mid, _, _ in device.local.last.published))
    assert not any(device.spool.backlog().values())


@pytest.mark.source("C1")
def test_offline_it_is_dropped_and_counted(device: Device) -> None:
    device.turn(Disconnected(CLOUD, device.cloud_link.generation, "gone"))
    device.send(event("e"), event("fire", ALARM))
    lost = device.forwarder.counts.not_stored
    assert lost == {
        NotStored("device.outbox", READING, OFFLINE): 1,
        NotStored("device.outbox", ALARM, OFFLINE): 1,
    }
    # The health endpoint and the heartbeat tell it, too.
    assert device.forwarder.counts.discards == {(Outcome.DROPPED, OFFLINE): 2}
    assert len(device.delivered("call")) == 1
    device.redial(CLOUD)
    device.turn(after=1.0)
    assert "e" not in [each.id for each in device.sent_up()]


@pytest.mark.source("C1")
@pytest.mark.parametrize("outcome", ["connected", "refused", "no answer to CONNECT"])
def test_a_failed_connection_drops_it(make: MakeDevice, outcome: str) -> None:
    device = make(connected=False, plane=PLANE)
    device.connect(LOCAL)
    device.send(event("e"))
    assert device.not_stored() == {}
    if outcome == "connected":
        device.connect(CLOUD)
    elif outcome == "refused":
        device.turn(Disconnected(CLOUD, device.cloud_link.generation, "refused"))
    device.turn(after=34.0)
    assert device.uplinked() == ([["e"]] if outcome == "connected" else [])
    assert device.not_stored() == ({} if outcome == "connected" else {("device.outbox", OFFLINE): 1})


def test_a_repetition_is_known(device: Device) -> None:
    device.send(event("e"), event("e"))
    device.turn(after=1.0)
    assert device.uplinked() == [["e"]]


@pytest.mark.source("P4")
def test_what_is_promised_goes_first(make: MakeDevice) -> None:
    device = make(plane=PLANE, window=2, batch_events=2)
    device.send(*(event(f"b{n}") for n in range(3)))
    # The call service's outbox promises delivery.
    device.turn(*(device.from_service(event(f"p{n}"), service="call") for n in range(4)))
    device.acknowledge_all()
    device.turn(after=1.0)
    sent = [each.id for each in device.sent_up()]
    first_wave = sent.index("p0")
    assert first_wave <= 2  # what was in flight already
    assert sent[first_wave : first_wave + 4] == ["p0", "p1", "p2", "p3"]
    assert sorted(sent) == ["b0", "b1", "b2", "p0", "p1", "p2", "p3"]


def test_what_waits_for_a_slow_service_is_not_lost_with_the_patience(device: Device) -> None:
    device.send(*(event(f"e{n}", subject="show") for n in range(5)))
    assert len(device.delivered("display")) == 3
    device.turn(after=10.0)
    assert len(device.delivered("display")) == 5
    # Nobody has confirmed the first ones, and they are not sent again.
    assert device.forwarder.counts.not_stored == {NotStored("display.inbox", READING, UNCONFIRMED): 3}


@pytest.mark.source("C1")
@pytest.mark.parametrize("name", [LOCAL, CLOUD])
def test_what_was_in_flight_is_lost_with_the_connection_and_counted(device: Device, name: LinkName) -> None:
    device.send(*(event(f"e{n}", subject="show") for n in range(2)))
    device.turn(after=1.0)
    assert (len(device.delivered("display")), device.uplinked()) == (2, [["e0", "e1"]])
    link = device.local_link if name is LOCAL else device.cloud_link
    device.turn(Disconnected(name, link.generation, "gone"))
    where = "display.inbox" if name is LOCAL else "device.outbox"
    assert device.not_stored() == {(where, UNCONFIRMED): 2}


def test_what_the_cloud_refuses_is_counted_and_becomes_no_dead_letter(device: Device) -> None:
    device.send(*(event(f"e{n}") for n in range(2)))
    device.turn(after=1.0)
    device.turn(device.puback(1, failure="payload format invalid"))
    assert device.uplinked() == [["e0", "e1"], ["e0"], ["e1"]]
    device.turn(device.puback(2, failure="payload format invalid"), device.puback(3))
    assert device.not_stored() == {("device.outbox", "refused_by_cloud"): 1}
    assert not device.forwarder.counts.dead_letters


def test_what_the_home_broker_never_takes_is_counted(device: Device) -> None:
    device.send(event("e", subject="show"))
    (mid,) = [mid for mid, topic, _ in device.local.last.published if topic == "eventplane/display/inbox"]
    device.turn(device.puback(mid, LOCAL, "packet too large: 99 bytes, the broker takes 98"))
    assert device.not_stored() == {("display.inbox", "too_large"): 1}
    assert not device.forwarder.counts.dead_letters


def test_what_a_recovery_drops_is_counted(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.send(event("e", subject="show"))
    damage(device, monkeypatch, "tidy")
    device.turn()
    assert device.not_stored() == {("display.inbox", UNCONFIRMED): 1, ("device.outbox", OFFLINE): 1}
