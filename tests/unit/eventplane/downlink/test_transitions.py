"""What becomes of an item: waits, rejections, expiry, lives of a device, its end."""

from dataclasses import replace

import pytest

from eventplane.downlink.desired import MAX_WAITING, Phase
from eventplane.downlink.device import Recency, compare, rejected, state_version, stored
from eventplane.downlink.transitions import (
    AWAY_MS,
    BACKOFF_MS,
    KEPT_MS,
    LOOK_MS,
    PARKED_MS,
    Transition,
    ack_timeout,
    acknowledge,
    apply_event,
    connected,
    epoch_changed,
    reconcile,
)
from eventplane.downlink.wire import DownlinkError
from eventplane.reasons import Outcome, Reason
from tests.unit.eventplane.downlink.events import (
    EPOCH,
    NOW_MS,
    THING,
    S,
    command,
    confirmed,
    deletion,
    incoming,
    item_of,
    refused,
    sent,
    state,
    wanted,
)


@pytest.mark.source("K3")
def test_it_is_parked_after_five_transmissions() -> None:
    item, now_ms = item_of(wanted(state(1))), NOW_MS
    # The source's five, 5 s after the first; numbers, so that a changed constant is noticed.
    for attempt, wait_ms in enumerate((5_000, 10_000, 20_000, 40_000, 80_000), start=1):
        assert (item.state, item.attempts, item.due_at_ms) == (Phase.SENDING, attempt, now_ms + wait_ms)
        now_ms += wait_ms
        item = item_of(ack_timeout(item, now_ms, is_present=True))
    assert (item.state, item.due_at_ms) == (Phase.PARKED, now_ms + PARKED_MS)
    assert ack_timeout(item, now_ms + PARKED_MS, is_present=True) == Transition(item)
    again = reconcile(item, now_ms + PARKED_MS, is_present=True, is_known=True)
    assert (incoming(again).version, item_of(again).attempts) == (1, 1)


def test_a_check_that_comes_twice_or_early_sends_nothing_more() -> None:
    item = item_of(wanted(state(1)))
    assert ack_timeout(item, NOW_MS + BACKOFF_MS[0] - S, is_present=True) == Transition(item)
    again = item_of(ack_timeout(item, NOW_MS + BACKOFF_MS[0], is_present=True))
    assert ack_timeout(again, NOW_MS + BACKOFF_MS[0], is_present=True) == Transition(again)


def test_an_acknowledgement_counts_also_after_parking_and_offline() -> None:
    first = wanted(state(1))
    ack = stored(incoming(first))
    for late in (Phase.PARKED, Phase.PENDING, Phase.REJECTED):
        step = acknowledge(replace(item_of(first), state=late), ack, EPOCH, NOW_MS, is_present=False)
        assert (item_of(step).state, item_of(step).due_at_ms) == (Phase.IDLE, None)


@pytest.mark.source("K4")
def test_ten_updates_a_second_are_one_transmission_at_a_time() -> None:
    first = wanted(state(1))
    item = item_of(first)
    for version in range(2, 11):
        step = apply_event(item, THING, state(version), NOW_MS + version * 100, is_present=True)
        assert step.publish is None
        item = item_of(step)
    # The acknowledgement of the transmission in flight lets the newest be sent.
    step = acknowledge(item, stored(incoming(first)), EPOCH, NOW_MS + S, is_present=True)
    assert (incoming(step).version, item_of(step).acknowledged_version) == (10, 1)
    assert item_of(confirmed(step)).acknowledged_version == 10


@pytest.mark.source("K3")
def test_updates_do_not_keep_a_silent_device_from_being_parked() -> None:
    item, version = item_of(wanted(state(1))), 1
    while item.state is Phase.SENDING:
        assert item.due_at_ms
        version += 1
        item = item_of(apply_event(item, THING, state(version), item.due_at_ms - S, is_present=True))
        item = item_of(ack_timeout(item, item.due_at_ms or 0, is_present=True))
    assert (item.state, version) == (Phase.PARKED, 1 + len(BACKOFF_MS))


def test_an_old_acknowledgement_is_not_new() -> None:
    old = wanted(state(1))
    item = item_of(
        ack_timeout(item_of(apply_event(old.item, THING, state(2), NOW_MS, True)), NOW_MS + 5 * S, True)
    )
    assert acknowledge(item, stored(incoming(old)), EPOCH, NOW_MS, is_present=True) == Transition(item)


def test_a_rejected_state_is_a_letter() -> None:
    step = refused(wanted(state(1)))
    item = item_of(step)
    assert [(each.message.id, each.reason, each.detail) for each in step.ended] == [
        ("1", "too_many_keys", "it has no room")
    ]
    assert (item.state, item.due_at_ms, connected(item, NOW_MS).publish) == (Phase.REJECTED, None, None)
    ack = rejected(incoming(wanted(state(1))), "too_many_keys", "")
    assert acknowledge(item, ack, EPOCH, NOW_MS, is_present=True) == Transition(item)
    assert incoming(apply_event(item, THING, state(2), NOW_MS, is_present=True)).version == 2
    # A redriven dead letter has the version that was rejected.
    assert incoming(apply_event(item, THING, state(1), NOW_MS, is_present=True)).version == 1


def test_a_rejected_command_lets_the_next_go_and_can_be_sent_again() -> None:
    step = refused(sent(command("a", 1), command("b", 2)))
    assert [each.message.id for each in step.ended] == ["a"]
    assert incoming(step).id == "b"
    again = apply_event(confirmed(step).item, THING, command("a", 1), NOW_MS, is_present=True)
    assert incoming(again).id == "a"


@pytest.mark.parametrize("word", [Outcome.EXPIRED, Reason.DEVICE_GONE, ""])
def test_a_device_s_word_is_not_one_of_the_plane_s_ends(word: str) -> None:
    """An expired command has no dead letter: a device could end one silently by that reason."""
    first = wanted(command("a", 1))
    ack = rejected(incoming(first), word, "it says so")
    step = acknowledge(item_of(first), ack, EPOCH, NOW_MS, is_present=True)
    assert [(each.reason, each.detail) for each in step.ended] == [("rejected", "it says so")]


@pytest.mark.source("K-B7")
def test_missed_commands_go_in_order() -> None:
    # The first to come has its turn already.
    step, arrived = sent(command("c", 3), command("b", 2), command("a", 1), command("b", 2)), []
    while step.publish:
        arrived.append((incoming(step).id, incoming(step).order))
        step = confirmed(step)
    assert [id for id, _ in arrived] == ["c", "a", "b"]
    assert [order for _, order in arrived] == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_a_command_that_expires_lets_the_next_go() -> None:
    short = command("a", 1, expires_at_ms=NOW_MS + S)
    away = wanted(short, command("b", 2), is_present=False)
    assert item_of(away).due_at_ms == NOW_MS + S
    step = reconcile(item_of(away), NOW_MS + S, is_present=False, is_known=True)
    assert [(each.message.id, each.reason) for each in step.ended] == [("a", Outcome.EXPIRED)]
    assert incoming(connected(item_of(step), NOW_MS + S)).id == "b"


def test_a_command_under_way_that_expires_is_not_repeated() -> None:
    first = wanted(command("a", 1, expires_at_ms=NOW_MS + S))
    step = ack_timeout(item_of(first), NOW_MS + BACKOFF_MS[0], is_present=True)
    assert (step.publish, item_of(step).state) == (None, Phase.IDLE)
    assert "not acknowledged in time" in step.ended[0].detail


def test_a_command_that_came_too_late_leaves_no_item() -> None:
    step = wanted(command("a", 1, expires_at_ms=NOW_MS))
    assert (step.item, step.publish) == (None, None)
    assert [each.reason for each in step.ended] == [Outcome.EXPIRED]


def test_too_many_commands_are_refused_not_dropped() -> None:
    step = wanted(*(command(f"{at}", at) for at in range(MAX_WAITING + 1)), is_present=False)
    with pytest.raises(DownlinkError) as caught:
        apply_event(step.item, THING, command("one more", 999), NOW_MS, is_present=False)
    assert caught.value.reason == Reason.TOO_MANY_COMMANDS


def test_a_new_life_gets_everything_again() -> None:
    first = wanted(state(1))
    step = epoch_changed(item_of(confirmed(first)), "second-life", NOW_MS, is_present=True)
    assert (incoming(step).fence, item_of(step).acknowledged_version) == (1, None)
    late = acknowledge(item_of(step), stored(incoming(first)), EPOCH, NOW_MS, is_present=True)
    assert late == Transition(step.item)
    assert epoch_changed(item_of(step), "second-life", NOW_MS, is_present=True) == Transition(step.item)
    # The ends of an earlier life that is heard of late cost a transmission, no more.
    assert incoming(epoch_changed(item_of(step), EPOCH, NOW_MS, is_present=True)).fence == 2
    # A tombstone as well: an older event may still be on its way.
    gone = confirmed(sent(state(1), deletion(2)))
    assert incoming(epoch_changed(item_of(gone), "second-life", NOW_MS, is_present=True)).is_deleted


@pytest.mark.source("K1")
def test_the_items_of_a_device_that_left_are_removed() -> None:
    assert reconcile(item_of(wanted(state(1))), NOW_MS, is_present=True, is_known=False) == Transition(None)
    step = reconcile(item_of(sent(command("a", 1), command("b", 2))), NOW_MS, is_present=True, is_known=False)
    assert step.item is None
    assert [(each.message.id, each.reason) for each in step.ended] == [
        ("a", Reason.DEVICE_GONE),
        ("b", Reason.DEVICE_GONE),
    ]


def test_a_settled_item_is_due_only_for_its_removal() -> None:
    live = item_of(confirmed(wanted(state(1))))
    assert live.due_at_ms is None
    assert reconcile(live, NOW_MS + KEPT_MS, is_present=True, is_known=True) == Transition(live)
    commands = item_of(confirmed(wanted(command("a", 1))))
    assert reconcile(commands, NOW_MS, is_present=True, is_known=True) == Transition(commands)
    assert reconcile(commands, NOW_MS + KEPT_MS, is_present=True, is_known=True) == Transition(None)


# K-B: what went wrong in KubeEdge's acknowledged delivery.


@pytest.mark.source("K-B1")
def test_a_second_acknowledgement_changes_nothing() -> None:
    first = wanted(state(1))
    once = item_of(confirmed(first))
    assert once.state is Phase.IDLE
    assert acknowledge(once, stored(incoming(first)), EPOCH, NOW_MS, is_present=True) == Transition(once)


@pytest.mark.source("K-B2")
def test_a_duplicate_from_the_reconciler_is_acknowledged_again() -> None:
    first = wanted(state(1))
    parked = replace(item_of(first), state=Phase.PARKED, due_at_ms=NOW_MS + PARKED_MS)
    again = reconcile(parked, NOW_MS + PARKED_MS, is_present=True, is_known=True)
    # The device holds it already; only its acknowledgement was lost, and it is given once more.
    assert compare(state_version(incoming(first)), incoming(again)) is Recency.DUPLICATE
    assert item_of(confirmed(again)).state is Phase.IDLE


@pytest.mark.source("K-B2")
def test_an_equal_version_is_sent_again() -> None:
    parked = replace(item_of(wanted(state(1))), state=Phase.PARKED, due_at_ms=NOW_MS + PARKED_MS)
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
def test_an_early_deletion_is_remembered() -> None:
    first = wanted(deletion(3, "a"))
    assert first.publish is None
    late = apply_event(first.item, THING, state(2, "a"), NOW_MS, is_present=True)
    assert incoming(late).is_deleted


@pytest.mark.source("K-B5")
def test_a_new_session_gets_an_unacknowledged_transmission_at_once() -> None:
    again = connected(item_of(wanted(state(1))), NOW_MS + 1)
    assert (incoming(again).version, item_of(again).attempts) == (1, 1)
    # The end of the old session is heard late and changes nothing.
    assert item_of(confirmed(again)).state is Phase.IDLE


@pytest.mark.source("K-B6")
def test_a_repetition_has_the_newest_body() -> None:
    step = wanted(state(1), state(2), state(3))
    assert step.publish is None
    again = ack_timeout(item_of(step), NOW_MS + BACKOFF_MS[0], is_present=True)
    assert incoming(again).event.data() == 3


@pytest.mark.source("K5")
def test_what_was_acknowledged_is_not_sent_again() -> None:
    done = item_of(confirmed(wanted(command("a", 1))))
    assert apply_event(done, THING, command("a", 1), NOW_MS, is_present=True) == Transition(done)
    item = item_of(confirmed(wanted(state(7))))
    assert (item.acknowledged_version, item.due_at_ms) == (7, None)
    for step in (connected(item, NOW_MS), ack_timeout(item, NOW_MS + 99 * S, is_present=True)):
        assert step == Transition(item)


@pytest.mark.source("K6")
def test_a_tombstone_is_kept_until_long_after_it_was_acknowledged() -> None:
    item = item_of(wanted(state(1), deletion(2)))
    for _ in range(20):
        assert item.due_at_ms
        item = item_of(reconcile(item, item.due_at_ms, is_present=True, is_known=True))
    done = confirmed(connected(item, NOW_MS))
    assert item_of(done).state is Phase.IDLE
    kept = reconcile(item_of(done), NOW_MS + KEPT_MS - 1, is_present=True, is_known=True)
    assert kept == Transition(done.item)
    assert reconcile(item_of(done), NOW_MS + KEPT_MS, is_present=True, is_known=True) == Transition(None)


@pytest.mark.source("K7")
def test_nothing_is_sent_to_an_absent_device() -> None:
    item = item_of(wanted(state(1), is_present=False))
    # It may have connected just now, unseen; later it is seldom looked at.
    assert (item.state, item.attempts, item.due_at_ms) == (Phase.PENDING, 0, NOW_MS + LOOK_MS)
    waits = []
    for _ in range(9):
        due_ms = item.due_at_ms or 0
        later = reconcile(item, due_ms, is_present=False, is_known=True)
        assert later.publish is None
        item = item_of(later)
        waits.append((item.due_at_ms or 0) - due_ms)
    # A connection that is recorded minutes late is seen minutes late, not an hour.
    assert waits == [min(LOOK_MS * 2**at, AWAY_MS) for at in range(1, 10)]
    found = item_of(reconcile(item, item.due_at_ms or 0, is_present=True, is_known=True))
    assert (found.state, found.attempts) == (Phase.SENDING, 1)
    lost = ack_timeout(item_of(wanted(state(1))), NOW_MS + BACKOFF_MS[0], is_present=False)
    assert (lost.publish, item_of(lost).state) == (None, Phase.PENDING)
