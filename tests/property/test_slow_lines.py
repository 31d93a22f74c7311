"""The forwarder behind slow lines, in virtual time: bytes leave at a rate, answers need a round trip."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.publishing import CongestionWindow
from eventplane.limits import MAX_PAYLOAD_BYTES
from eventplane_mqtt.link import Sending
from eventplane_mqtt.mailbox import LinkName
from tests.examples import examples
from tests.unit.edge.fakes import ALARM, AROUND_BYTES, PING_BYTES, Device, event, ids


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
