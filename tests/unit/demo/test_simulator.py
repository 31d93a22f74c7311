"""The simulator: repeatable, plausible, in time order, and never without a call for help."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from eventplane.contract import Contract
from lambdas.router.payload import PayloadCheck
from local.input import open_input


def texts(*, seed: int, homes: int = 3, events: int = 600) -> list[str]:
    return [each.event.json for each in open_input(homes=homes, events=events, seed=seed)]


def test_the_same_seed_gives_the_same_events() -> None:
    assert texts(seed=7) == texts(seed=7)


def test_by_default_five_homes_play_2000_events_in_time_order() -> None:
    chosen = open_input()
    events = list(chosen)

    assert len(events) == chosen.total == 2_000
    assert len({each.home for each in events}) == len(chosen.homes) == 5
    assert all(before.at <= after.at for before, after in pairwise(events))
    assert len({each.event.key for each in events}) == 2_000


def test_every_service_and_every_simulated_type_has_its_part(contract: Contract) -> None:
    events = list(open_input())
    types = Counter(each.event.type for each in events)

    assert {each.service for each in events} == {
        "activity-service", "climate-service", "health-service", "voice-service"
    }  # fmt: skip
    assert types.keys() < contract.event_types.keys()
    assert types["org.eventplane.alarm.keyword.v1"] == 2
    assert len(types) == 6


@pytest.mark.source("P11")
def test_two_versions_of_readings_are_in_use_and_all_payloads_are_right(contract: Contract) -> None:
    check = PayloadCheck(contract).of_message()
    versions: dict[str, set[str]] = {}
    for each in open_input(homes=2, events=1_000):
        assert check(each.event) is None
        if each.event.type == "org.eventplane.health.reading.v1":
            versions.setdefault(each.home, set()).add(str(each.event.attributes.get("dataschema", "")))
    first, newest = contract.event_types["org.eventplane.health.reading.v1"].schemas
    assert first.endswith("reading.v1.json")
    assert versions == {"home-01": {""}, "home-02": {newest}}
