"""What expires, when, and that it is counted: seen through the whole forwarder."""

from datetime import timedelta

import pytest

from eventplane.envelope import parse_event
from eventplane.expiry import is_expired_on_device
from eventplane.guarantee import lifetime_ms
from eventplane.names import LIFETIME_ATTRIBUTES
from eventplane.reasons import Outcome
from eventplane.values import timestamp
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.fakes import ALARM, Device, MakeDevice, contract, event

CLOUD = LinkName.CLOUD
SHORT = {"time": "2001-01-01T00:00:00Z", "expirytime": "2001-01-01T00:01:40Z"}
"""100 s, by a clock that is decades wrong."""


@pytest.fixture
def offline(device: Device) -> Device:
    device.disconnect(CLOUD)
    return device


def back(device: Device) -> None:
    """The cloud answers the next dial."""
    dials = len(device.cloud.all)
    while len(device.cloud.all) == dials:
        device.turn(after=1.0)
    device.connect(CLOUD)


def told(device: Device) -> list[tuple[str, str, str, int]]:
    return [(each.destination, each.outcome, each.reason, each.count) for each in device.spool.loss_reports()]


@pytest.mark.source("N4", "C4")
@pytest.mark.parametrize("restarts", [False, True])
def test_what_expired_offline_is_counted(offline: Device, restarts: bool) -> None:
    offline.send(event("old", **SHORT), event("good"))
    if restarts:
        offline.crash()
        offline.time.seconds += 99.0
        offline.start()
    offline.turn(after=1.0 if restarts else 100.0)
    back(offline)
    offline.turn(after=1.0)
    assert offline.uplinked()[0][0] == "good"
    assert told(offline) == [("device.outbox", Outcome.EXPIRED, "expirytime", 1)]
    assert offline.forwarder.counts.discards == {(Outcome.EXPIRED, "expirytime"): 1}


@pytest.mark.source("C4")
def test_without_a_time_of_its_own_the_cloud_decides(offline: Device) -> None:
    offline.send(event("e", expirytime="2001-01-01T00:00:00Z"))
    offline.turn(after=1_000.0)
    back(offline)
    offline.turn(after=1.0)
    assert (offline.uplinked(), told(offline)) == ([["e"]], [])


@pytest.mark.source("C4")
@pytest.mark.parametrize(
    ("time", "expires"),
    [
        ("0001-01-01T00:00:00+14:00", "2099-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:10:00+14:00"),
        ("9999-12-31T23:49:59-10:00", "9999-12-31T23:59:59-10:00"),
        ("1970-01-01T00:00:00Z", "9999-12-31T23:59:60Z"),
    ],
)
def test_a_clock_without_years_stops_nothing(device: Device, time: str, expires: str) -> None:
    device.send(event("alarm", ALARM, time=time, expirytime=expires), event("next", ALARM))
    sent = {each.id: each for each in device.sent_up()}
    assert {"alarm", "next"} <= {*sent}
    assert lifetime_ms(sent["alarm"]) == lifetime_ms(event("e", time=time, expirytime=expires))


WRONG_CLOCKS = [timedelta(), timedelta(minutes=-14), timedelta(days=-19_000), timedelta(days=14_000)]


@pytest.mark.source("C4")
@pytest.mark.parametrize("wrong_by", WRONG_CLOCKS)
@pytest.mark.parametrize("step", [timedelta(), timedelta(days=9_000), timedelta(days=-9_000)])
@pytest.mark.parametrize("has_time", [True, False])
def test_it_says_what_is_left(offline: Device, wrong_by: timedelta, step: timedelta, has_time: bool) -> None:
    offline.time.wrong_by = wrong_by
    now = offline.time.now()
    dated = {"time": timestamp(now)} if has_time else {}
    mortal = event("e", subject="show", expirytime=timestamp(now + timedelta(seconds=600)), **dated)
    offline.send(mortal, event("for ever"))
    stored = offline.waiting()[0]
    offline.time.wrong_by += step
    offline.turn(after=100.0)
    back(offline)
    offline.turn(after=1.0)
    sent = offline.sent_up()
    left_ms = lifetime_ms(sent[0])
    assert ([each.id for each in sent], told(offline)) == (["e", "for ever"], [])
    assert left_ms is not None
    assert 480_000 <= left_ms <= 500_000
    assert "senttime" not in sent[1].attributes
    # The text without it is what the manifest's digest is of.
    assert sent[0].without(["senttime"]) == stored


@pytest.mark.source("C4")
@pytest.mark.parametrize("wrong_by", WRONG_CLOCKS)
def test_a_service_learns_by_which_uptime_an_event_expires(device: Device, wrong_by: timedelta) -> None:
    device.time.wrong_by = wrong_by
    at = device.time.now()
    ends = timestamp(at + timedelta(seconds=600))
    device.send(event("fire", ALARM, time=timestamp(at), expirytime=ends))
    uptime_ms = device.time.uptime().ms
    (payload,) = device.delivered("call")
    fire = parse_event(payload)
    assert not is_expired_on_device(fire, "boot", uptime_ms + 599_999)
    assert is_expired_on_device(fire, "boot", uptime_ms + 600_000)
    device.confirm()
    assert device.delivered("call") == [payload]


@pytest.mark.parametrize("name", LIFETIME_ATTRIBUTES)
def test_what_a_sender_says_of_hops_is_taken_off(device: Device, name: str) -> None:
    device.send(event("e", **SHORT, **{name: "2001-01-01T00:01:39Z"}))
    device.turn(after=1.0)
    (sent,) = device.sent_up()
    assert lifetime_ms(sent) == 99_000
    assert sent.attributes.keys() & set(LIFETIME_ATTRIBUTES) <= {"senttime"}


def test_what_is_read_ahead_can_still_expire(make: MakeDevice) -> None:
    device = make(batching_delay_ms=200_000)
    device.send(event("e", **SHORT))
    device.turn(after=201.0)
    device.turn()
    assert device.uplinked() == []
    assert told(device) == [("device.outbox", Outcome.EXPIRED, "expirytime", 1)]


def test_what_the_cloud_sent_back_can_still_expire(device: Device) -> None:
    device.send(event("old", **SHORT), event("good"))
    device.turn(after=99.0)
    assert device.uplinked() == [["old", "good"]]
    device.turn(device.puback(1, failure="quota exceeded"), after=1.0)
    assert device.uplinked()[1:] == [["good"]]
    device.turn(after=1.0)
    assert told(device) == [("device.outbox", Outcome.EXPIRED, "expirytime", 1)]


def test_each_destination_has_its_own_expiry(make: MakeDevice) -> None:
    plane = contract(display={"inbox": {"expiry_s": 5}}, sensor={"outbox": {"expiry_s": 50}})
    device = make(connected=False, plane=plane)
    device.send(event("e", subject="show"))
    device.turn(after=6.0)
    device.connect()
    device.turn(after=1.0)
    assert device.delivered("display") == []
    assert device.uplinked()[0][0] == "e"
    assert device.forwarder.counts.discards == {(Outcome.EXPIRED, "channel_expiry"): 1}
    assert not any(device.spool.pending("display.inbox", rank) for rank in (0, 1, 2))


def test_a_backlog_that_expired_as_a_whole_does_not_hold_up_an_alarm(offline: Device) -> None:
    offline.send(*(event(f"e{n}", **SHORT) for n in range(1000)))
    offline.turn(after=100.0)
    back(offline)
    assert len(offline.forwarder._components._queues.discards) < 500  # a turn passes over few at a time
    offline.send(event("fire", ALARM))
    assert offline.uplinked() == [["fire"]]
    assert len(offline.delivered("call")) == 1
    for _ in range(30):
        offline.turn()
    assert offline.forwarder.counts.discards == {(Outcome.EXPIRED, "expirytime"): 1000}
    assert offline.forwarder._timeout_s() != 0.0
