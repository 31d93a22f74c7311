"""The uplink: it keeps to its budgets, and finds a poison event among good ones."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.poison import PoisonDetector
from edge.publishing import URGENT_SHARE, InFlight, Pace, SentPublish
from edge.spool import Delivery

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
