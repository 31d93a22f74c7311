"""An operator begins the versions of a key anew: for one device or all, in pages, also for who is away."""

from __future__ import annotations

import pytest

from eventplane.downlink.desired import State
from eventplane.downlink.table import fleet_reset, one_reset
from lambdas.downlink.items import PACE_S
from tests.unit.lambdas.downlink.world import DESIRED, HOUR, KEY_OF_PULSE, S, World, state


def order(world: World, thing: str | None = "home-1", key: str = KEY_OF_PULSE) -> frozenset[str]:
    """What `desired reset` puts into the queue, a second after all before."""
    world.clock.now_ms += S
    failed = world.do_work(one_reset(key, thing) if thing else fleet_reset(key))
    world.clock.now_ms += S
    return failed


def test_after_a_reset_lower_versions_count_and_what_came_before_does_not(world: World) -> None:
    # A version far ahead that the cloud took by mistake, as large as it takes them.
    mistake = state(1, id="burnt", stateversion=str(world.clock() + 24 * HOUR))
    world.desire(mistake)
    world.store("home-1")
    assert world.desire(state(7)) == frozenset()
    assert world.sent == []
    assert order(world) == frozenset()
    ((_, anew),) = world.sent
    assert (anew.id, anew.version, anew.reset, anew.fence) == ("burnt", 0, world.clock.now_ms - S, 1)
    world.store("home-1")
    # The queue redelivers what was taken in before.
    world.clock.now_ms -= HOUR
    world.desire(mistake)
    world.clock.now_ms += HOUR
    world.desire(state(7))
    ((_, right),) = world.sent
    assert (right.version, right.reset) == (7, anew.reset)
    world.store("home-1")
    assert (world.item().state, world.item().acknowledged_version) == (State.IDLE, 7)


def test_the_whole_fleet_is_reset_in_pages_and_only_where_there_is_something(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lambdas.downlink.devices._READ", 10)
    world.make(*(f"home-{number}" for number in range(3, 26)))
    world.desire(*(state(1, f"home-{number}", id=f"{number}") for number in (1, 2, 10, 25)))
    world.store("home-1")
    world.delays.clear()
    order(world, None)
    assert world.things() == ["home-1", "home-10", "home-2", "home-25"]
    assert len({each["reset"]["N"] for each in world.dynamodb.items(DESIRED)}) == 1
    assert world.delays.count(PACE_S) >= 2


def test_an_order_that_comes_again_changes_nothing(world: World) -> None:
    world.desire(state(1))
    world.clock.now_ms += S
    for _ in range(2):
        world.do_work(one_reset(KEY_OF_PULSE, "home-1"))
        world.store("home-1")
        before = world.item()
    assert (before.fence, world.item(), world.sent) == (1, before, [])


def test_without_time_the_order_comes_again(world: World) -> None:
    world.desire(state(1))
    world.taken("work")
    orders = one_reset(KEY_OF_PULSE, "home-1"), fleet_reset(KEY_OF_PULSE)
    calls = iter([60_000, 1] * 2)
    assert world.do_work(*orders, remaining_ms=lambda: next(calls, 1)) == {"m0", "m1"}
    assert world.item().reset == 0


def test_of_a_lost_table_a_single_device_is_reset_all_the_same(world: World) -> None:
    """The device may hold a version that the table does not know any more."""
    order(world)
    world.desire(state(1))
    assert [incoming.reset > 0 for _, incoming in world.sent] == [True]
    order(world, "nobody")
    assert len(world.things()) == 1


def test_a_reset_frees_the_key_for_another_sender(world: World) -> None:
    world.desire(state(1))
    assert world.item().owner == "carers"
    order(world)
    assert world.item().owner == ""
    world.desire(state(2))
    assert world.item().owner == "carers"


@pytest.mark.parametrize("work", [one_reset("no-key", "home-1"), fleet_reset("no-key")])
def test_a_reset_of_what_is_no_key_is_none(world: World, work: dict[str, object]) -> None:
    assert world.do_work(work) == {"m0"}
    assert len(world.things()) == 0
