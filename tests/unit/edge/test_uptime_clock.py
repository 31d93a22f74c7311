from __future__ import annotations

import pytest

from edge.uptime_clock import Uptime, UptimeClock, system_uptime


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (Uptime("a", 1_000), 5_000 + 2_000),  # the same boot: the time since is exact
        (Uptime("b", 1_000), 5_000),  # another boot: switched off for an unknown time
        (Uptime("a", 9_000), 5_000),  # it never goes back, whatever was stored
        (None, 5_000),
    ],
)
def test_it_goes_on_after_a_restart(then: Uptime | None, expected: int) -> None:
    now = [Uptime("a", 3_000)]
    life = UptimeClock(5_000, then, lambda: now[0])
    assert life() == expected
    now[0] = Uptime("a", 3_500)
    assert life() == expected + 500


def test_the_system_tells_one_boot_and_goes_forward() -> None:
    first, second = system_uptime(), system_uptime()
    assert first.boot == second.boot
    assert len(first.boot) == 36
    assert 0 < first.ms <= second.ms
