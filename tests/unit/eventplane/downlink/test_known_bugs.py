"""What went wrong in KubeEdge's acknowledged delivery, and does not here; each test is named for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventplane.downlink.desired import State
from eventplane.downlink.device import Recency, compare, state_version, stored
from eventplane.downlink.transitions import (
    AWAY_MS,
    BACKOFF_MS,
    KEPT_MS,
    LOOK_MS,
    PARKED_MS,
    Step,
    ack_timeout,
    acknowledge,
    apply_event,
    connected,
    reconcile,
)
from tests.unit.eventplane.downlink.events import (
    EPOCH,
    NOW_MS,
    THING,
    S,
    confirmed,
    deletion,
    incoming,
    item_of,
    sent,
    state,
    wanted,
)


@pytest.mark.source("K-B1")
def test_double_acknowledgement_crashes() -> None:
    first = wanted(state(1))
    once = item_of(confirmed(first))
    assert once.state is State.IDLE
    assert acknowledge(once, stored(incoming(first)), EPOCH, NOW_MS, is_present=True) == Step(once)


@pytest.mark.source("K-B2")
def test_the_reconcilers_resend_is_dropped_because_the_store_holds_an_equal_version() -> None:
    first = wanted(state(1))
    parked = replace(item_of(first), state=State.PARKED, due_at_ms=NOW_MS + PARKED_MS)
    again = reconcile(parked, NOW_MS + PARKED_MS, is_present=True, is_known=True)
    # The device holds it already; only its acknowledgement was lost, and it is given once more.
    assert compare(state_version(incoming(first)), incoming(again)) is Recency.DUPLICATE
    assert item_of(confirmed(again)).state is State.IDLE


@pytest.mark.source("K-B2")
def test_an_equal_version_that_comes_again_is_not_taken_for_delivered() -> None:
    parked = replace(item_of(wanted(state(1))), state=State.PARKED, due_at_ms=NOW_MS + PARKED_MS)
    step = apply_event(parked, THING, state(1), NOW_MS, is_present=True)
    assert not step.is_older
    assert incoming(step).version == 1


@pytest.mark.source("K-B3")
def test_a_device_that_deleted_takes_the_object_that_was_made_anew() -> None:
    gone = sent(state(1, "old"), deletion(3, "old"))
    late = apply_event(item_of(confirmed(gone)), THING, state(2, "new"), NOW_MS, is_present=True)
    assert incoming(gone).is_deleted
    assert compare(state_version(incoming(gone)), incoming(late)) is Recency.NEWER


@pytest.mark.source("K-B3")
def test_a_delete_before_its_create_is_forgotten() -> None:
    first = wanted(deletion(3, "a"))
    assert first.publish is None
    late = apply_event(first.item, THING, state(2, "a"), NOW_MS, is_present=True)
    assert incoming(late).is_deleted


@pytest.mark.source("K-B5")
def test_a_quick_reconnect_loses_the_new_session() -> None:
    """What went into the old session goes out again at once, not after its wait."""
    again = connected(item_of(wanted(state(1))), NOW_MS + 1)
    assert (incoming(again).version, item_of(again).attempts) == (1, 1)
    # The end of the old session is heard late and changes nothing.
    assert item_of(confirmed(again)).state is State.IDLE


@pytest.mark.source("K-B6")
def test_a_resend_keeps_the_old_body_though_a_newer_one_waits() -> None:
    step = wanted(state(1), state(2), state(3))
    assert step.publish is None
    again = ack_timeout(item_of(step), NOW_MS + BACKOFF_MS[0], is_present=True)
    assert incoming(again).event.data() == 3


@pytest.mark.source("K5")
def test_a_restarted_sender_resends_what_was_acknowledged() -> None:
    item = item_of(confirmed(wanted(state(7))))
    assert (item.acknowledged_version, item.due_at_ms) == (7, None)
    for step in (connected(item, NOW_MS), ack_timeout(item, NOW_MS + 99 * S, is_present=True)):
        assert step == Step(item)


@pytest.mark.source("K6")
def test_the_record_of_a_delete_goes_before_it_is_acknowledged() -> None:
    item = item_of(wanted(state(1), deletion(2)))
    for _ in range(20):
        assert item.due_at_ms
        item = item_of(reconcile(item, item.due_at_ms, is_present=True, is_known=True))
    done = confirmed(connected(item, NOW_MS))
    assert item_of(done).state is State.IDLE
    kept = reconcile(item_of(done), NOW_MS + KEPT_MS - 1, is_present=True, is_known=True)
    assert kept == Step(done.item)
    assert reconcile(item_of(done), NOW_MS + KEPT_MS, is_present=True, is_known=True) == Step(None)


@pytest.mark.source("K7")
def test_the_absent_are_sent_to() -> None:
    item = item_of(wanted(state(1), is_present=False))
    # It may have connected just now, unseen; later it is seldom looked at.
    assert (item.state, item.attempts, item.due_at_ms) == (State.PENDING, 0, NOW_MS + LOOK_MS)
    later = reconcile(item, NOW_MS + LOOK_MS, is_present=False, is_known=True)
    assert (later.publish, item_of(later).attempts) == (None, 0)
    assert item_of(later).due_at_ms == NOW_MS + LOOK_MS + AWAY_MS
    lost = ack_timeout(item_of(wanted(state(1))), NOW_MS + BACKOFF_MS[0], is_present=False)
    assert (lost.publish, item_of(lost).state) == (None, State.PENDING)
