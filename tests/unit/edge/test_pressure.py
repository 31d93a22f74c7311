"""What happens as the spool fills up, seen through the whole forwarder."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from edge.counts import NotStored
from edge.errors import SpoolFullError
from edge.planning import MOST_LETTERS
from eventplane.contract import Contract
from eventplane.device_reports import DISCARDED
from eventplane.envelope import parse_event
from eventplane.reasons import Outcome
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.builders import command, noise
from tests.unit.edge.disks import SmallDisk, fill_the_rest
from tests.unit.edge.fakes import ALARM, CHORE, READING, Device, MakeDevice, contract, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
CAPACITY = 1024 * 1024
PAD = "x" * 2000
DROP_OLDEST = contract(sensor={"outbox": {"when_full": "drop_oldest"}})
FULL = "spool_full"


def full_device(make: MakeDevice, share: float, kind: str = READING, plane: Contract | None = None) -> Device:
    """Offline; filled with events of `kind` to a `share` of its capacity, then with room for a lot more."""
    device = make(connected=False, capacity_bytes=CAPACITY, plane=plane)
    device.connect(LOCAL)
    number = 0
    while device.spool.space.used_bytes < share * CAPACITY:
        # Past the gate: this is what the days before have left behind.
        device.resize(100 * CAPACITY)
        device.send(*(event(f"old{number + n}", kind, pad=PAD) for n in range(10)))
        number += 10
    device.resize(CAPACITY)
    return device


def answers(device: Device, *kinds: str) -> list[str | None]:
    """What the sender is told about one event of each of `kinds`."""
    return device.offer(*(event(f"new-{kind}", kind) for kind in kinds))


@pytest.mark.source("C6")
def test_bytes_count_and_a_refusal_blocks_no_line(make: MakeDevice) -> None:
    device = full_device(make, 0.85)
    assert answers(device, ALARM, READING, CHORE) == [None, FULL, FULL]
    assert len(device.local.last.acknowledged) == device._mid
    assert device.forwarder.counts.refused == 2


def counted_device(
    make: MakeDevice, waiting: int, kind: str = READING, plane: Contract | None = None, room: int = 100
) -> Device:
    """Offline, with plenty of bytes and `room` for deliveries, of which `waiting` of `kind` are there."""
    device = make(connected=False, capacity_deliveries=room, plane=plane)
    device.connect(LOCAL)
    device.spool.space.capacity_deliveries = 100 * room  # past the gate
    device.send(*(event(f"old{n}", kind) for n in range(waiting)))
    device.spool.space.capacity_deliveries = room
    return device


@pytest.mark.source("N4", "C6")
@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (69, [None, None, None]),
        (70, [None, None, FULL]),
        (84, [None, None, FULL]),
        (85, [None, FULL, FULL]),
        (98, [None, FULL, FULL]),
    ],
)
def test_priorities_limit_deliveries(make: MakeDevice, waiting: int, expected: list[str | None]) -> None:
    device = counted_device(make, waiting)
    assert device.spool.space.pressure == waiting / 100
    found = [answers(device, kind)[0] for kind in (CHORE, READING, ALARM)]
    assert found[::-1] == expected


@pytest.mark.source("N4")
def test_room_that_was_made_for_many_is_given_away_once(make: MakeDevice) -> None:
    device = counted_device(make, 1000, CHORE, room=1000)
    assert device.offer(*(event(f"fire{n}", ALARM) for n in range(50))) == [None] * 50
    assert 1000 - 1000 // 64 <= device.spool.space.used_deliveries <= 1000


@pytest.mark.source("N4")
def test_a_large_event_costs_one(make: MakeDevice) -> None:
    device = counted_device(make, 100)
    device.send(event("fire", ALARM, pad="x" * 50_000))
    assert device.receipts()[-1].refused is None
    (tally,) = device.spool.loss_reports()
    assert tally.count == 2  # one for the cloud and one for the call service


@pytest.mark.source("C6")
def test_within_one_turn_no_more_comes_in_than_there_is_room(make: MakeDevice) -> None:
    device = full_device(make, 0.5)
    device.send(*(event(f"e{n}", pad="x" * 50_000) for n in range(20)))
    refused = sum(each.refused == FULL for each in device.receipts())
    assert 10 < refused < 20
    assert device.spool.space.used_bytes < 0.95 * CAPACITY


@pytest.mark.source("N4")
def test_drop_oldest_makes_room_among_what_is_not_more_urgent(make: MakeDevice) -> None:
    device = full_device(make, 0.75, CHORE, DROP_OLDEST)
    waiting = device.spool.pending("device.outbox", 2)
    assert answers(device, CHORE) == [None]
    (tally,) = device.spool.loss_reports()
    assert (tally.outcome, tally.reason) == (Outcome.DROPPED, FULL)
    assert tally.ranges == ((2, 1 + tally.count),)  # the oldest, and they are one range
    assert device.spool.pending("device.outbox", 2) == waiting + 1 - tally.count


def test_deliveries_in_flight_are_not_evicted(make: MakeDevice) -> None:
    device = full_device(make, 0.75, CHORE, DROP_OLDEST)
    device.connect(CLOUD)
    under_way = len([each.id for each in device.sent_up()])
    assert under_way > 0
    assert answers(device, CHORE) == [None]
    (tally,) = device.spool.loss_reports()
    assert tally.ranges[0][0] == 2 + under_way
    device.acknowledge_all()
    dropped = {f"old{n - 2}" for first, last in tally.ranges for n in range(first, last + 1)}
    assert not dropped & {each.id for each in device.sent_up()}


@pytest.mark.parametrize(("kind", "rank"), [(CHORE, 2), (READING, 1)])
def test_urgent_takes_the_place_of_others(make: MakeDevice, kind: str, rank: int) -> None:
    device = full_device(make, 1.0, kind)
    assert answers(device, ALARM) == [None]
    (tally,) = device.spool.loss_reports()
    assert (tally.destination, tally.outcome, tally.reason) == ("device.outbox", Outcome.DROPPED, FULL)
    assert device.spool.newest("call.inbox", 0) == device.spool.next_sequence - 1
    assert len(device.delivered("call")) == 1


@pytest.mark.source("C6")
def test_urgent_is_refused_only_when_there_is_nothing_to_evict(make: MakeDevice) -> None:
    device = full_device(make, 1.0, ALARM)
    assert answers(device, ALARM) == [FULL]
    assert device.spool.loss_reports() == []


def test_what_the_cloud_sent_is_not_evicted(make: MakeDevice) -> None:
    device = make(capacity_deliveries=1000)
    device.send_down(*(command(number) for number in range(1, 101)))
    device.spool.space.capacity_deliveries = device.spool.space.used_deliveries
    answers(device, ALARM)
    assert device.spool.backlog()["display.inbox"] == 100


def test_what_was_dropped_and_refused_is_reported(make: MakeDevice) -> None:
    device = full_device(make, 1.0, CHORE)
    assert answers(device, ALARM, CHORE) == [None, FULL]
    (tally,) = device.spool.loss_reports()
    device.turn()
    (report,) = device.waiting(type=DISCARDED)
    data: dict[str, Any] = report.data()
    assert data["not_stored"] == [{"channel": "sensor.outbox", "type": CHORE, "reason": FULL, "count": 1}]
    assert data["deliveries"] == [
        {
            "destination": "device.outbox",
            "outcome": "dropped",
            "reason": FULL,
            "count": tally.count,
            "ranges": [list(each) for each in tally.ranges],
        }
    ]


def test_losses_are_reported_once_a_minute(make: MakeDevice) -> None:
    device = full_device(make, 0.9)
    for number in range(50):
        device.send(event(f"e{number}"), after=1.0)
    device.turn(after=15.0)
    reports = device.waiting(type=DISCARDED)
    assert [each.data()["not_stored"][0]["count"] for each in reports] == [1, 49]
    assert not device.forwarder.counts.not_stored


class FullDisk:
    """Refuses commits as a full disk does: those that `fits` does not hold for."""

    def __init__(
        self, device: Device, monkeypatch: pytest.MonkeyPatch, fits: Callable[[int, int], bool]
    ) -> None:
        self.fits = fits
        self.attempts = 0
        self._spool = device.spool
        self._commit = device.spool.commit
        monkeypatch.setattr(device.spool, "commit", self)

    def __call__(
        self, arrivals: Any, done: Iterable[Any] = (), discarded: Iterable[Any] = (), **more: Any
    ) -> None:
        done, discarded = list(done), list(discarded)
        self.attempts += 1
        if not self.fits(len(arrivals), len(done) + len(discarded)):
            raise SpoolFullError(self._spool.path, "the disk is full", "make room")
        self._commit(arrivals, done, discarded, **more)


def test_a_full_disk_refuses_what_it_cannot_keep_and_crashes_nothing(
    device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk(device, monkeypatch, lambda *_: False)
    for number in range(3):
        sent = device.from_service(event(f"e{number}"))
        device.turn(sent, sent, device.from_service(event("fire", ALARM)))
    assert {each.refused for each in device.receipts()} == {FULL}
    assert len(device.receipts()) == 9
    assert not any(device.spool.backlog().values())
    assert caplog.text.count("the disk is full") == 1
    assert device.forwarder.counts.not_stored[NotStored("sensor.outbox", READING, FULL)] == 6
    disk.fits = lambda *_: True
    device.turn(after=6.0)
    device.send(event("e0"))
    assert device.receipts()[-1].refused is None
    assert "has room again" in caplog.text


def test_lost_letters_take_no_room(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(device, monkeypatch, lambda *_: False)
    device.send(*(b"full %d" % number for number in range(MOST_LETTERS)))
    disk.fits = lambda *_: True
    device.send(*(b"room %d" % number for number in range(MOST_LETTERS)), after=6.0)
    assert device.forwarder.counts.dead_letters.total() == MOST_LETTERS


def test_deliveries_free_a_full_disk(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.send(*(event(f"e{n}") for n in range(10)))
    disk = FullDisk(device, monkeypatch, lambda arrivals, ends: not arrivals and ends > 0)
    device.send(event("new"))
    assert device.receipts()[-1].refused == FULL
    device.acknowledge_all()
    device.turn(after=1.0)
    assert [each.id for each in device.sent_up()] == [f"e{n}" for n in range(10)]
    assert device.spool.backlog() == {"device.outbox": 0}
    assert disk.attempts < 20


def test_an_end_without_room_is_owed(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.send(*(event(f"e{n}") for n in range(5)))
    disk = FullDisk(device, monkeypatch, lambda *_: False)
    device.turn(device.puback(1))
    assert device.spool.backlog() == {"device.outbox": 5}
    assert 0 < (device.forwarder._timeout_s() or 0) <= 5.0
    disk.fits = lambda *_: True
    device.turn(after=5.0)
    assert device.spool.backlog() == {"device.outbox": 0}


def test_housekeeping_is_tried_again(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def tidy() -> bool:
        tried.append(device.time.seconds)
        if len(tried) == 1:
            raise SpoolFullError(device.path, "the disk is full", "make room")
        return False

    monkeypatch.setattr(device.spool, "tidy", tidy)
    device.turn()
    device.turn(after=1.0)
    assert len(tried) == 1
    assert 0 < (device.forwarder._timeout_s() or 0) <= 4.0
    device.turn(after=4.0)
    assert len(tried) == 2


def test_an_alarm_finds_room_on_a_full_disk(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.disconnect(CLOUD)
    device.send(*(event(f"e{n}", pad=PAD) for n in range(10)))
    ended = 0

    def fits(arrivals: int, ends: int) -> bool:
        nonlocal ended
        if arrivals <= min(1, ended):  # only what has ended before leaves room
            ended += ends - arrivals
            return True
        return False

    FullDisk(device, monkeypatch, fits)
    alarm = device.from_service(event("fire", ALARM))
    device.turn(alarm, device.from_service(event("reading")))
    assert [each.refused for each in device.receipts()[-2:]] == [None, FULL]
    assert device.ids_at("call") == ["fire"]
    (tally,) = device.spool.loss_reports()
    assert tally.outcome is Outcome.DROPPED
    assert parse_event(device.delivered("call")[0]).attributes["devicesequence"] == "000000000012"


def test_an_alarm_on_a_disk_that_is_really_full_costs_little_of_the_backlog(small_disk: SmallDisk) -> None:
    device = Device(small_disk.path)
    device.connect(LOCAL)
    for batch in range(20):
        device.send(*(event(f"e{batch}-{n}", pad=PAD) for n in range(50)))
    fill_the_rest(small_disk.path.with_name("other"))
    number = 0
    while answers(device, READING) == [None]:
        number += 1
        device.send(*(event(f"more{number}-{n}", pad=PAD) for n in range(50)))
    waiting = device.spool.pending("device.outbox", 1)
    assert waiting >= 500
    for number in range(3):
        device.send(event(f"fire{number}", ALARM))
    assert [each.refused for each in device.receipts()[-3:]] == [None] * 3
    assert device.spool.pending("call.inbox", 0) == 3
    assert device.spool.pending("device.outbox", 1) > waiting * 0.8
    device.crash()


def test_the_backlog_stays_where_no_alarm_fits(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.disconnect(CLOUD)
    device.send(*(event(f"e{n}", pad=PAD) for n in range(1000)))
    disk = FullDisk(device, monkeypatch, lambda *_: False)
    for number in range(20):
        device.send(event(f"fire{number}", ALARM))
    assert {each.refused for each in device.receipts()[-20:]} == {FULL}
    disk.fits = lambda *_: True
    device.turn(after=6.0)
    assert device.spool.pending("device.outbox", 1) > 800


def test_a_refusal_survives_without_room(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.send(event("fire", ALARM))
    FullDisk(device, monkeypatch, lambda arrivals, _: not arrivals)
    device.confirm(refused="no_line")
    assert device.spool.backlog()["call.inbox"] == 0
    tallies = {
        (each.destination, each.outcome, each.reason): each.count for each in device.spool.loss_reports()
    }
    assert tallies["call.inbox", Outcome.DROPPED, FULL] == 1


@pytest.mark.source("P8")
def test_the_emergency_path_waits_for_nothing(make: MakeDevice) -> None:
    """The cloud takes connections and answers nothing; thousands wait; the spool is nearly full."""
    device = make(capacity_bytes=4 * CAPACITY)
    for batch in range(20):
        device.send(*(event(f"e{batch}-{n}", pad=noise(1000, n)) for n in range(200)))
    assert device.spool.space.pressure >= 0.84
    assert device.spool.pending("device.outbox", 1) > 2000
    device.send(*(event(f"late{n}") for n in range(10)), event("fire", ALARM))
    assert device.ids_at("call") == ["fire"]
