"""One poison event among good ones is always found, and it alone; outages never convict anybody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.poison import PoisonDetector
from edge.publishing import Publish
from edge.spool import Delivery

WINDOW, BATCH = 4, 8


def batches(waiting: list[Delivery], detector: PoisonDetector) -> Iterator[list[Publish]]:
    """What an uplink has in flight: a window of batches, or one trial."""
    size = detector.size
    count, window = (size, 1) if size else (BATCH, WINDOW)
    starts = range(0, min(len(waiting), count * window), count)
    yield [Publish(tuple(waiting[at : at + count][:count]), 1, 0.0, False) for at in starts]


def connect(waiting: list[Delivery], detector: PoisonDetector, poison: set[Delivery]) -> Delivery | None:
    """One connection to a broker that works in order and hangs up at poison; who is poisonous."""
    while waiting:
        if detector.needs_proof:
            detector.acknowledged(Publish((), 1, 0.0, True))
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
def test_an_outage_convicts_nobody(connections: list[tuple[bool, int]]) -> None:
    """Connections that answer some publishes and then none, nor the probe while anybody is tried."""
    waiting = [Delivery("device.outbox", 1, number) for number in range(40)]
    detector = PoisonDetector()
    for hung_up, answered in connections:
        if detector.needs_proof:
            in_flight = [Publish((), 1, 0.0, True)]
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
def test_what_passes_once_in_eight_is_no_poison(passes: list[bool]) -> None:
    """The line works but for this event, and that one is cut at most seven times in a row: three and four."""
    event = Publish((Delivery("device.outbox", 1, 1),), 1, 0.0, False)
    detector, cuts = PoisonDetector(), 0
    for passed in passes:
        if detector.needs_proof:
            detector.acknowledged(Publish((), 1, 0.0, True))
        if passed or cuts == 7:
            detector.acknowledged(event)
            cuts = 0
        else:
            cuts += 1
            assert detector.dropped([event]) is None


def test_an_urgent_event_is_tried_before_an_ordinary_one() -> None:
    detector = PoisonDetector()
    ordinary = Publish((Delivery("device.outbox", 1, 1),), 1, 0.0, False)
    urgent = Publish((Delivery("device.outbox", 0, 2),), 1, 0.0, True)
    for _ in range(3):
        detector.dropped([ordinary])
    assert (detector.size, detector.urgent) == (1, False)
    detector.acknowledged(Publish((), 1, 0.0, True))
    detector.dropped([urgent, ordinary])
    assert (detector.size, detector.urgent) == (1, True)
