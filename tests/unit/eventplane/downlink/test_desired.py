"""Which of two events counts: in the cloud, and by the same rule on the device."""

import pytest

from eventplane.downlink.addressing import Addressed
from eventplane.downlink.desired import COUNTERS_END, MAX_COUNTER_STEP, MAX_DELETES
from eventplane.downlink.device import Recency, compare, state_version
from eventplane.downlink.transitions import apply_event
from eventplane.downlink.wire import DownlinkError
from eventplane.reasons import Reason
from tests.unit.eventplane.downlink.events import (
    NOW_MS,
    THING,
    command,
    deletion,
    incoming,
    item_of,
    state,
    wanted,
)

SAME = state(5, id="b")


@pytest.mark.source("K4")
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (state(9), state(10)),
        (deletion(9), deletion(10)),
        (state(5), deletion(5)),
        (deletion(5), state(6)),
        (state(5, id="a"), SAME),
        (state(5, id="b", source="/a"), SAME),
        (state(4, "a"), state(5, "b")),
    ],
)
def test_both_ends_agree_on_what_is_newer(older: Addressed, newer: Addressed) -> None:
    early, late = incoming(wanted(older)), incoming(wanted(newer))
    for order in ((older, newer), (newer, older)):
        message = item_of(wanted(*order, is_present=False)).message
        assert message
        assert message.identity == newer.message.identity
    assert compare(None, early) is Recency.NEWER
    assert compare(state_version(early), late) is Recency.NEWER
    assert compare(state_version(late), early) is Recency.OLDER
    assert compare(state_version(late), late) is Recency.DUPLICATE


@pytest.mark.source("K4")
@pytest.mark.parametrize(
    ("history", "newest", "deletes"),
    [
        ([deletion(9), deletion(10)], ("", 10, True), ()),
        ([deletion(10), deletion(9)], ("", 10, True), ()),
        ([state(9, "a"), deletion(10, "a")], ("a", 9, True), (("a", 10),)),
        ([state(10, "a"), deletion(9, "a")], ("a", 10, False), ()),
        ([state(9, "a"), deletion(10, "b")], ("a", 9, False), (("b", 10),)),
        ([state(8, "a"), deletion(10, "b"), deletion(9, "b")], ("a", 8, False), (("b", 10),)),
        ([state(8, "a"), deletion(10, "b"), state(9, "b")], ("b", 9, True), (("b", 10),)),
        ([state(8, "a"), deletion(10, "b"), state(9, "c")], ("c", 9, False), (("b", 10),)),
    ],
)
def test_versions_are_compared_as_numbers(
    history: list[Addressed], newest: tuple[str, int, bool], deletes: tuple[tuple[str, int], ...]
) -> None:
    item = item_of(wanted(*history, is_present=False))
    assert item.message
    assert (item.message.uid, item.message.version, item.message.is_deleted) == newest
    assert item.deletes == deletes


def test_commands_are_known_by_their_number() -> None:
    first, second = incoming(wanted(command("a", 9))), incoming(wanted(command("b", 1), now_ms=2 * 10**12))
    assert compare(None, first) is Recency.NEWER
    assert compare(state_version(first), first) is Recency.DUPLICATE
    assert compare(state_version(first), second) is Recency.NEWER
    assert compare(state_version(second), first) is Recency.OLDER


def test_a_late_copy_of_a_deleted_state_changes_nothing() -> None:
    """A late copy of the deleted state arrives while the deletion is in flight."""
    first = wanted(state(1, "a"), deletion(2, "a"), is_present=False)
    again = wanted(state(1, "a"), deletion(2, "a"), state(1, "a"), is_present=False)
    assert (again.item, again.is_older) == (first.item, True)


def test_unknown_deletions_are_bounded() -> None:
    many = [deletion(9 + at, f"u{at}") for at in range(MAX_DELETES + 2)]
    item = item_of(wanted(*many))
    assert [uid for uid, _ in item.deletes] == [f"u{at}" for at in range(2, MAX_DELETES + 2)]
    # What is newer than all of them needs none.
    assert item_of(wanted(*many, state(99, "new"))).deletes == ()


@pytest.mark.parametrize("before", [[state(5)], [state(4), deletion(5, "b")], [state(4), deletion(5)]])
def test_a_counter_that_jumps_is_refused(before: list[Addressed]) -> None:
    item = wanted(*before).item
    assert item_of(wanted(*before, state(5 + MAX_COUNTER_STEP))).message is not None
    with pytest.raises(DownlinkError) as caught:
        apply_event(item, THING, state(6 + MAX_COUNTER_STEP), NOW_MS, is_present=True)
    assert caught.value.reason == Reason.VERSION_JUMP


@pytest.mark.parametrize("version", [0, COUNTERS_END])
def test_after_a_reset_and_among_times_a_version_may_be_any(version: int) -> None:
    newest = COUNTERS_END + 2 * MAX_COUNTER_STEP
    message = item_of(wanted(state(version), state(newest))).message
    assert message.version == newest
