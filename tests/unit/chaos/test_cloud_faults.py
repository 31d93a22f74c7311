"""The schedule of outages: all kinds, pairs of services, and some for minutes."""

from __future__ import annotations

import pytest

from local.chaos.faults import Struck
from local.chaos.outages import episodes
from local.chaos.scenarios import CLOUD_FAULTS
from local.chaos.schedule import KINDS, LONG, SERVICES, cloud_faults_plan


def names(seed: int, kinds: tuple[str, ...], seconds: float) -> list[tuple[str, ...]]:
    strikes = cloud_faults_plan(seed, kinds, 2, seconds)
    return [
        each.kinds
        for each in episodes(Struck(each.kind, "home-1", each.at_s, each.until_s) for each in strikes)
    ]


def test_every_kind_strikes_alone_and_every_two_services_together() -> None:
    found = names(1, KINDS, 1_785)
    alone = [kinds[0] for kinds in found if len(kinds) == 1]
    assert set(alone) == set(KINDS)
    assert {kind for kind in alone if alone.count(kind) == 2} == set(LONG)
    together = {frozenset(kind.partition("-")[0] for kind in kinds) for kinds in found if len(kinds) == 2}
    services = [*SERVICES, "router"]
    assert len(together) == len(services) * (len(services) - 1) // 2 - 1  # one queue and all of SQS
    assert names(1, KINDS, 1_785) == found
    assert names(2, KINDS, 1_785) != found


def test_the_long_ones_last_for_minutes() -> None:
    scenario = CLOUD_FAULTS
    strikes = scenario.plan(1, scenario.kinds, 2, scenario.seconds)
    longest = {each.kind for each in strikes if each.until_s - each.at_s > 100}
    assert longest == set(LONG)
    assert max(each.until_s for each in strikes) == pytest.approx(scenario.seconds)
    # The load goes on until the end.
    assert scenario.load.events / scenario.load.per_s >= scenario.seconds
    assert scenario.homes * scenario.load.events == 50_000
