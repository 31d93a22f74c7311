"""The simulator: repeatable, plausible, in time order, and never without a call for help."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import islice, pairwise, takewhile

import pytest

from eventplane.contract import Contract
from lambdas.router.payload import PayloadCheck
from local.input import InputEvent, open_input
from local.input.simulator import EARLY_CALLER_EVERY, START, simulated_homes


def texts(*, seed: int, homes: int = 3, events: int = 600) -> list[str]:
    return [each.event.json for each in open_input(homes=homes, events=events, seed=seed)]


def test_the_same_seed_gives_the_same_events() -> None:
    assert texts(seed=7) == texts(seed=7)


def test_another_seed_gives_other_events() -> None:
    assert texts(seed=7) != texts(seed=8)


def test_a_home_does_not_depend_on_the_number_of_homes() -> None:
    alone, among_many = simulated_homes(1, seed=1)[0], simulated_homes(9, seed=1)[0]

    assert list(islice(alone.events(), 200)) == list(islice(among_many.events(), 200))


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


def test_somebody_moves_in_the_bedroom_and_elsewhere() -> None:
    rooms = {
        each.event.attributes["subject"] for each in open_input() if each.event.type.endswith(".motion.v1")
    }

    assert {"/bedroom", "/kitchen"} < rooms


def in_first_hour(event: InputEvent) -> bool:
    return event.at <= START + timedelta(hours=1)


def test_some_homes_call_for_help_within_an_hour() -> None:
    homes = simulated_homes(2 * EARLY_CALLER_EVERY, seed=3)
    callers = [
        home.name
        for home in homes
        if any(each.service == "voice-service" for each in takewhile(in_first_hour, home.events()))
    ]

    assert len(callers) == 2


def test_there_is_more_motion_by_day_than_by_night() -> None:
    hours = Counter(
        each.at.hour
        for each in islice(simulated_homes(1, seed=1)[0].events(), 10_000)
        if each.event.type.endswith(".motion.v1")
    )

    assert hours[15] > 3 * hours[3]


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
