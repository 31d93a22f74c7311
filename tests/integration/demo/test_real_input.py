"""The real data sets, whole: what the demo says about them must be true."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest

from contract import load_contract
from local.input import Input, InputEvent, open_input


@pytest.fixture(scope="module")
def everything(shared_data: Path) -> Input:
    return open_input(shared_data, homes=None, events=None)


def test_all_homes_and_events_are_there(everything: Input) -> None:
    names = [home.name for home in everything.homes]

    assert (
        len(everything.homes) == len(set(names)) == 62
    )  # 55 patients with readings, 1 with alerts only, 6 rooms
    assert sum(name.startswith("flat-") for name in names) == 6
    assert everything.total == 285_691
    assert sum(home.urgent for home in everything.homes) == 608


def test_every_event_is_unique_and_in_time_order(everything: Input) -> None:
    keys = set()
    before: InputEvent | None = None
    for each in everything:
        keys.add(each.event.key)
        assert before is None or before.at <= each.at
        before = each

    assert len(keys) == everything.total


def test_a_bounded_run_has_both_kinds_of_home_and_many_alarms(shared_data: Path) -> None:
    chosen = open_input(shared_data, homes=12, events=20_000)
    events = list(chosen)

    assert len(events) == 20_000
    assert sum(home.name.startswith("tihm-") for home in chosen.homes) == 6
    assert {each.home for each in events} == {home.name for home in chosen.homes}
    assert sum(".alarm." in each.event.type for each in events) > 200
    assert all(before.at <= after.at for before, after in pairwise(events))


def test_a_very_small_run_has_alarms_as_well(shared_data: Path) -> None:
    assert any(".alarm." in each.event.type for each in open_input(shared_data, homes=4, events=100))


@pytest.mark.parametrize("data", [None, "shared"])
def test_payloads_are_what_the_contract_says(request: pytest.FixtureRequest, data: str) -> None:
    contract = load_contract()
    folder = request.getfixturevalue("shared_data") if data else None
    validators = {
        name: jsonschema.Draft202012Validator(dict(next(iter(each.schemas.values()))))
        for name, each in contract.event_types.items()
    }
    for each in open_input(folder, homes=20, events=4_000):
        validators[each.event.type].validate(each.event.data())
        assert contract.participants[each.service].may_send(each.event.type)
