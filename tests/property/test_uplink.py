"""The uplink: its budgets, a poison event among good ones, and slow lines in virtual time."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge.poison import PoisonDetector
from edge.publishing import URGENT_SHARE, CongestionWindow, InFlight, Pace, SentPublish
from edge.spool import Delivery
from eventplane.limits import MAX_PAYLOAD_BYTES
from eventplane_mqtt.mailbox import LinkName
from eventplane_mqtt.reconnection import Sending
from tests.examples import examples
from tests.unit.edge.fakes import ALARM, AROUND_BYTES, PING_BYTES, Device, event, ids

PUBLISHES, BYTES = 10, 1_000

some_publishes = st.lists(
    st.tuples(st.floats(0, 0.7), st.integers(1, BYTES), st.booleans(), st.sampled_from([False] * 9 + [True])),
    max_size=80,
)


def sent(steps: list[tuple[float, int, bool, bool]]) -> list[tuple[float, int, bool]]:
    """When each publish went, its size and whether it was urgent, with a pump that asks as soon as it may."""
    pace, now, log = Pace(PUBLISHES, BYTES), 50.0, []
    for gap, size, urgent, complaint in steps:
        now += gap
        if complaint:
            pace.slow_down(now)
        while (ready := pace.ready_at(size, now, urgent=urgent)) > now:
            now = ready
        pace.take(size, now)
        log.append((now, size, urgent))
    return log


@given(some_publishes)
def test_no_second_holds_more_than_the_budgets(steps: list[tuple[float, int, bool, bool]]) -> None:
    log = sent([(gap, size, urgent, False) for gap, size, urgent, _ in steps])
    for start, _, _ in log:
        window = [(size, urgent) for at, size, urgent in log if start <= at < start + 1.0]
        assert len(window) <= PUBLISHES
        assert sum(size for size, _ in window) <= BYTES


@given(some_publishes)
def test_ordinary_ones_leave_the_urgent_share(steps: list[tuple[float, int, bool, bool]]) -> None:
    ordinary = [(gap, min(size, 900), False, False) for gap, size, _, _ in steps]
    log = sent(ordinary)
    pace = Pace(PUBLISHES, BYTES)
    for at, size, _ in log:
        pace.take(size, at)
        assert pace.ready_at(round(BYTES * URGENT_SHARE), at, urgent=True) == at


@given(some_publishes)
def test_it_goes_on_whatever_the_complaints(steps: list[tuple[float, int, bool, bool]]) -> None:
    log = sent(steps)
    waited = log[-1][0] - 50.0 if log else 0.0
    # The slowest pace is a sixteenth: the dearest publish holds it for 16 s.
    assert waited <= sum(gap + 18.0 for gap, *_ in steps)


def test_a_large_event_holds_the_budget_longer() -> None:
    pace = Pace(PUBLISHES, BYTES)
    assert pace.ready_at(3_000, 0.0, urgent=False) == 0.0
    pace.take(3_000, 0.0)
    assert pace.ready_at(1, 0.0, urgent=True) == 3.0


def test_a_complaint_halves_the_pace() -> None:
    pace = Pace(PUBLISHES, BYTES)
    for _ in range(3):
        pace.slow_down(10.0)  # three refusals at once are one complaint
    assert (pace.share(10.0), pace.slowed) == (0.5, 1)
    pace.slow_down(11.0)
    assert pace.share(11.0) == pytest.approx(0.258, abs=0.001)
    for second in range(12, 40):
        pace.slow_down(float(second))
    assert 1 / 16 <= pace.share(39.0) < 0.1
    assert pace.share(100.0) == 1.0


WINDOW, BATCH_EVENTS = 4, 8


def sent_now(deliveries: tuple[Delivery, ...], *, urgent: bool) -> InFlight:
    return InFlight(deliveries, 1, 0.0, urgent, 0, SentPublish())


def batches(waiting: list[Delivery], detector: PoisonDetector) -> Iterator[list[InFlight]]:
    """What an uplink has in flight: a window of batches, or one trial."""
    size = detector.size
    count, window = (size, 1) if size else (BATCH_EVENTS, WINDOW)
    starts = range(0, min(len(waiting), count * window), count)
    yield [sent_now(tuple(waiting[at : at + count][:count]), urgent=False) for at in starts]


def connect(waiting: list[Delivery], detector: PoisonDetector, poison: set[Delivery]) -> Delivery | None:
    """One connection to a broker that works in order and hangs up at poison; who is poisonous."""
    while waiting:
        if detector.needs_proof:
            detector.acknowledged(sent_now((), urgent=True))
        (in_flight,) = batches(waiting, detector)
        for index, publish in enumerate(in_flight):
            if poison & set(publish.deliveries):
                return detector.dropped(in_flight[index:])
            detector.acknowledged(publish)
            del waiting[: len(publish.deliveries)]
    return None


@pytest.mark.source("P15")
@given(st.integers(1, 60), st.data())
def test_poison_is_found_and_nothing_else(count: int, data: st.DataObject) -> None:
    waiting = [Delivery("device.outbox", 1, number) for number in range(count)]
    poison = data.draw(st.sets(st.sampled_from(waiting), max_size=3))
    detector, poisonous = PoisonDetector(), set()
    for _ in range(len(poison) * 20 + 1):
        found = connect(waiting, detector, poison)
        if found is not None:
            poisonous.add(found)
            waiting.remove(found)
    assert not waiting
    assert poisonous == poison


@pytest.mark.source("P15")
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=200))
def test_an_outage_makes_no_event_poison(connections: list[tuple[bool, int]]) -> None:
    """Connections that answer some publishes and then none, nor the probe while anybody is tried."""
    waiting = [Delivery("device.outbox", 1, number) for number in range(40)]
    detector = PoisonDetector()
    for hung_up, answered in connections:
        if detector.needs_proof:
            in_flight = [sent_now((), urgent=True)]
        else:
            (in_flight,) = batches(waiting, detector)
            for publish in in_flight[:answered]:
                detector.acknowledged(publish)
                del waiting[: len(publish.deliveries)]
            in_flight = in_flight[answered:]
        if hung_up:
            assert detector.dropped(in_flight) is None
        else:
            detector.restarted()


@example([False, False, True, *[False] * 7])
@given(st.lists(st.booleans(), max_size=200))
def test_an_event_that_passes_once_in_eight_attempts_is_no_poison(passes: list[bool]) -> None:
    """The line works but for this event, and that one is cut at most seven times in a row: three and four."""
    event = sent_now((Delivery("device.outbox", 1, 1),), urgent=False)
    detector, cuts = PoisonDetector(), 0
    for passed in passes:
        if detector.needs_proof:
            detector.acknowledged(sent_now((), urgent=True))
        if passed or cuts == 7:
            detector.acknowledged(event)
            cuts = 0
        else:
            cuts += 1
            assert detector.dropped([event]) is None


def test_an_urgent_event_is_tried_before_an_ordinary_one() -> None:
    detector = PoisonDetector()
    ordinary = sent_now((Delivery("device.outbox", 1, 1),), urgent=False)
    urgent = sent_now((Delivery("device.outbox", 0, 2),), urgent=True)
    for _ in range(3):
        detector.dropped([ordinary])
    assert (detector.size, detector.urgent) == (1, False)
    detector.acknowledged(sent_now((), urgent=True))
    detector.dropped([urgent, ordinary])
    assert (detector.size, detector.urgent) == (1, True)


class VirtualLine:
    """Carries what `device` publishes to the cloud, `bytes_per_s`, and answers `round_trip_s` later."""

    def __init__(self, device: Device, bytes_per_s: float, round_trip_s: float) -> None:
        self.bytes_per_s, self.round_trip_s = bytes_per_s, round_trip_s
        self.arrived: dict[str, float] = {}
        self.frames: list[tuple[float, int]] = []
        self._device = device
        self._free = 0.0
        self._answers: list[tuple[float, int]] = []
        self._published = self._pings = 0
        device.cloud.last.sending = self.sending  # type: ignore[method-assign]

    def run(self, until: float = 1e9) -> None:
        """Go on until nothing is in flight or waits, or that time."""
        device, clock = self._device, self._device.time
        while clock.seconds < until:
            self._take()
            due = [at for at, _ in self._answers[:1]]
            if device.spool.backlog()["device.outbox"]:
                due.append(clock.seconds + (device.forwarder._timeout_s() or 0.0))
            if not due:
                return
            clock.seconds = max(clock.seconds, min(*due, until))
            answered = [mid for at, mid in self._answers if at <= clock.seconds]
            del self._answers[: len(answered)]
            device.turn(*map(device.puback, answered))
            assert len(device.cloud.all) == 1

    def sending(self, now: float) -> Sending:
        """See `eventplane_mqtt.Connection`."""
        self._take()
        left_s = max(0.0, self._free - now)
        given = self._device.cloud.all[0].queued_bytes
        return Sending(given - round(left_s * self.bytes_per_s), self._free - left_s)

    def _take(self) -> None:
        wire = self._device.cloud.all[0]
        for _ in range(wire.pings - self._pings):
            self._pings += 1
            self._send(PING_BYTES, 65_535 + self._pings)
        for mid, _, payload in wire.published[self._published :]:
            at = self._send(len(payload) + AROUND_BYTES, mid)
            self.frames.append((self._device.time.seconds, len(payload)))
            for id in ids(payload):
                self.arrived[id] = at
        self._published = len(wire.published)

    def _send(self, size: int, mid: int) -> float:
        self._free = max(self._free, self._device.time.seconds) + size / self.bytes_per_s
        self._answers.append((self._free + self.round_trip_s, mid))
        return self._free + self.round_trip_s / 2


@contextmanager
def behind(bytes_per_s: float, round_trip_s: float, sizes: list[int]) -> Iterator[tuple[Device, VirtualLine]]:
    """A device with a backlog of events with `sizes` bytes that cannot be compressed, just connected."""
    noise = random.Random(7)
    with TemporaryDirectory() as folder:
        device = Device(Path(folder) / "spool.db", batch_events=250)
        device.send(*(event(f"e{n}", pad=noise.randbytes(size // 2).hex()) for n, size in enumerate(sizes)))
        line = VirtualLine(device, bytes_per_s, round_trip_s)
        device.connect()
        yield device, line
        device.crash()


rates, round_trips = st.floats(1_000, 5_000), st.floats(1.0, 5.0)


@settings(max_examples=examples(30))
@given(rates, round_trips, st.floats(5, 40))
def test_three_round_trips_at_most(bytes_per_s: float, round_trip_s: float, after_s: float) -> None:
    with behind(bytes_per_s, round_trip_s, [400] * 150) as (device, line):
        began = device.time.seconds
        line.run(began + after_s)
        device.send(event("fire", ALARM))
        said = device.time.seconds
        line.run()
        own_s = 400 / bytes_per_s
        assert line.arrived["fire"] - said <= 3 * round_trip_s + own_s
        assert len(line.arrived) == 151
        took_s = sum(size + AROUND_BYTES for _, size in line.frames) / bytes_per_s
        assert device.time.seconds - began <= max(after_s, 1.3 * took_s + 15 * round_trip_s)


@pytest.mark.parametrize("size", [12_000, 60_000, 90_000])
@pytest.mark.parametrize("bytes_per_s", [1_000, 1_500, 5_000])
def test_a_slow_line_is_not_dead(size: int, bytes_per_s: int) -> None:
    with behind(bytes_per_s, 5.0, [size] * 4) as (device, line):
        line.run()
        assert [id for ids in device.uplinked() for id in ids] == ["e0", "e1", "e2", "e3"]
        assert device.spool.backlog() == {"device.outbox": 0}


@pytest.mark.parametrize("stuck", [0, 30_000])
def test_a_line_without_progress_is_dead_after_the_timeout(stuck: int) -> None:
    """Whether all bytes left and there is no answer, or they stopped on the way."""
    with behind(1_000, 1.0, [60_000]) as (device, line):
        wire, began = device.cloud.last, device.time.seconds
        line.run(began + 20.0)
        moved = line.sending(began + 20.0)
        wire.sending = lambda _: moved._replace(left=wire.queued_bytes - stuck)  # type: ignore[method-assign]
        while not wire.abandoned:
            device.turn(*device.forwarder._wait(device.forwarder._timeout_s()))
        assert device.time.seconds - began == pytest.approx(20.0 + 30.0)


def test_a_timeout_makes_small_frames() -> None:
    with behind(100_000, 0.1, [400] * 2_000) as (device, line):
        line.run(device.time.seconds + 3.0)
        large = max(size for _, size in line.frames)
        device.send(event("fire", ALARM))
        while not device.cloud.last.abandoned:
            device.turn(*device.forwarder._wait(device.forwarder._timeout_s()))
        device.redial(LinkName.CLOUD)
        first, second = (payload for *_, payload in device.cloud.last.published[:2])
        assert ids(first) == ["fire"]
        assert len(second) <= 1_024 < 20_000 < large


def test_a_full_line_is_measured_again() -> None:
    with behind(2_000, 5.0, [400] * 700) as (device, line):
        began = device.time.seconds
        for number in range(55):
            device.send(event(f"fire{number}", ALARM))
            line.run(began + 2.0 * number)
        assert device.cloud.last.pings >= 2
        assert [at for at, size in line.frames if at > began + 90.0 and size > 1_000]


@given(st.integers(20_000, 400_000), st.floats(0.001, 0.2))
def test_a_fast_line_proves_itself_within_a_few_round_trips(per_round_trip: int, round_trip_s: float) -> None:
    window, now, rounds = CongestionWindow(MAX_PAYLOAD_BYTES), 0.0, 0
    aim = min(MAX_PAYLOAD_BYTES, per_round_trip)
    while window.size < aim:
        before = window.sent(now, window.size, idle=True)
        now += round_trip_s * (1 + window.size / per_round_trip)
        window.acknowledged(window.size, now - round_trip_s * 1.0, before, now)
        rounds += 1
        assert rounds <= 12
