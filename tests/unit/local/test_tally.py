"""The control room's counters: what was sent against what arrived, by the contract."""

from __future__ import annotations

from eventplane.envelope import write_event
from local.control_room.tally import PATIENCE_MS, Counters, Tally
from tests.fake_plane import ALARM, CONTRACT, SENDER, alarm


def key(number: int) -> tuple[str, str]:
    event = alarm(number)
    return event.source, event.id


def test_an_event_that_nobody_receives_says_why() -> None:
    event = write_event({"specversion": "1.0", "id": "1", "source": "/s", "type": ALARM}, {})
    found = Tally(CONTRACT)
    found.sent(event, "climate-service", 0)
    (followed,) = found.last()
    assert followed.deliveries == ()
    assert "is refused (sender_not_allowed)" in followed.nobody
    assert found.counters(0, is_idle=True, now_ms=0) == Counters(sent=1)


def test_received_and_copies_are_counted_in_whatever_order_they_are_noted() -> None:
    found = Tally(CONTRACT)
    found.received("alarm-centre", key(1), 120)
    assert found.last() == ()
    found.sent(alarm(1), SENDER, 100)
    found.sent(alarm(1), SENDER, 110)  # a repetition of the same event
    found.received("alarm-centre", key(1), 130)
    found.received("family-app", key(1), 150)
    assert found.counters(2, is_idle=False, now_ms=150) == Counters(1, 3, 2, 0, 1, 2)
    (followed,) = found.last()
    took = {each.inbox: (each.after_ms, each.copies) for each in followed.deliveries}
    assert took == {"alarm-centre": (20, 2), "family-app": (50, 1), "call-service": (None, 0)}
    latency = found.latency()
    assert (latency.samples, latency.last_ms, latency.p50_ms, latency.p99_ms) == (2, 50, 35, 50)


def test_what_arrives_without_a_route_is_shown_and_not_counted_as_received() -> None:
    found = Tally(CONTRACT)
    found.sent(alarm(1), SENDER, 0)
    found.received("carers", key(1), 5)
    assert found.counters(0, is_idle=False, now_ms=5).received == 0
    (followed,) = found.last()
    assert followed.deliveries[-1].routes == ()


def test_missing_is_lost_only_after_the_plane_was_idle_and_until_it_arrives() -> None:
    found = Tally(CONTRACT)
    found.sent(alarm(1), SENDER, 0)
    found.received("family-app", key(1), 5)

    def lost(now_ms: float, waiting: int = 0, *, is_idle: bool = True) -> int:
        return found.counters(waiting, is_idle, now_ms).lost

    later = 10 * PATIENCE_MS
    assert lost(later, is_idle=False) == 0
    assert lost(later, waiting=1) == 0
    assert lost(later) == 0
    assert lost(later + PATIENCE_MS - 1) == 0
    assert lost(later + PATIENCE_MS) == 2
    assert lost(later + PATIENCE_MS, is_idle=False) == 2  # known once, known for good
    found.received("alarm-centre", key(1), later + PATIENCE_MS)
    assert lost(later + 2 * PATIENCE_MS) == 1


def test_an_event_sent_a_moment_ago_is_not_lost_on_an_idle_plane() -> None:
    found = Tally(CONTRACT)
    found.counters(0, is_idle=True, now_ms=0)
    found.sent(alarm(1), SENDER, PATIENCE_MS)
    assert found.counters(0, is_idle=True, now_ms=PATIENCE_MS + 1).lost == 0
