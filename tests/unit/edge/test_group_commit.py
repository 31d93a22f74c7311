from __future__ import annotations

from edge.commit import BUSY_PER_S, LINGER_S, GroupCommit


def turns(
    group: GroupCommit, per_turn: int, every_s: float, seconds: float, start: float = 0.0
) -> list[float]:
    """How long it lingers before each turn while `per_turn` messages come `every_s` seconds."""
    found = []
    for number in range(round(seconds / every_s)):
        group.note(per_turn, start + number * every_s)
        found.append(group.linger_s)
    return found


def test_a_quiet_home_waits_for_nothing() -> None:
    assert set(turns(GroupCommit(), 1, 1.5 / BUSY_PER_S, 10.0)) == {0.0}


def test_a_busy_home_shares_commits_after_a_moment_and_no_longer_when_it_is_quiet_again() -> None:
    group = GroupCommit()
    found = turns(group, 1, 0.002, 1.0)
    assert found[-1] == LINGER_S
    assert found.index(LINGER_S) < 100
    assert turns(group, 2, 0.1, 1.0, start=1.0)[-1] == 0.0


def test_many_messages_a_turn_are_busy_as_well() -> None:
    assert turns(GroupCommit(), 500, 0.1, 1.0)[-1] == LINGER_S


def test_a_sender_that_waits_for_each_receipt_is_seldom_held_up() -> None:
    group = GroupCommit()
    now, held_up, sent = 0.0, 0.0, 0
    while now < 60.0:
        now += 0.002 + group.linger_s
        held_up += group.linger_s
        group.note(1, now)
        sent += 1
    assert held_up < 1.0
    assert sent > 25_000


def test_an_acknowledgement_in_between_says_nothing_about_the_company() -> None:
    group = GroupCommit()
    turns(group, 1, 0.002, 1.0)
    for number in range(100):
        group.note(1, 1.0 + number * LINGER_S / 4)  # something else ended the wait
        assert group.linger_s == LINGER_S
