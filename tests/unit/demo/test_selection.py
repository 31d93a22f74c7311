"""How HOMES and EVENTS bound the input: fairly, and the same way every time."""

from __future__ import annotations

import pytest

from local.input import InputBoundError, open_input, read_bound
from local.input.model import HomeInput
from local.input.selection import choose_homes, fair_quotas


def home(name: str) -> HomeInput:
    return HomeInput(name, (), 0, 0, lambda: iter(()))


def test_homes_are_taken_from_every_source_in_turn() -> None:
    patients, rooms = [home(name) for name in "abcd"], [home(name) for name in "xy"]

    assert [each.name for each in choose_homes([patients, rooms], 5)] == ["a", "x", "b", "y", "c"]
    assert len(choose_homes([patients, rooms], None)) == 6


@pytest.mark.parametrize(
    ("sizes", "total", "quotas"),
    [
        ([10, 10], 10, [5, 5]),
        ([2, 10, 10], 12, [2, 5, 5]),
        ([10, 1, 4], 9, [4, 1, 4]),
        ([3, 3], 100, [3, 3]),
        ([10, 10, 10], 10, [3, 3, 4]),
        ([None, None], 7, [3, 4]),
        ([3, 8], None, [3, 8]),
        ([10, 10, 10], 2, [0, 1, 1]),
    ],
)
def test_every_home_gets_its_share_and_small_homes_leave_theirs_to_the_rest(
    sizes: list[int | None], total: int | None, quotas: list[int]
) -> None:
    assert fair_quotas(sizes, total) == quotas


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "many", "٣"])
def test_another_bound_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(InputBoundError, match=r"EVENTS=.*give a number from 1, or all"):
        read_bound("EVENTS", text)


@pytest.mark.parametrize(("homes", "events", "name"), [(None, 10, "HOMES"), (3, None, "EVENTS")])
def test_the_simulator_cannot_play_all(homes: int | None, events: int | None, name: str) -> None:
    with pytest.raises(InputBoundError, match=f"{name}=all: the simulator never ends"):
        open_input(None, homes, events)
