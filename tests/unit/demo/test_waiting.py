"""A wait that gave up is distinguished from one that ended."""

from rich.progress import Progress

from local.waiting import Waits


def test_a_wait_in_which_nothing_moves_is_given_up_and_named() -> None:
    waits = Waits(Progress(disable=True), 0.0)
    left = iter([2, 1, 0])
    waits.until_none_remain("drains", lambda: next(left))
    assert waits.gave_up == []
    waits.until_none_remain("stands still", lambda: 1)
    assert waits.gave_up == ["stands still"]
