"""The real data sets, whole: what the demo says about them must be true."""

from pathlib import Path

import jsonschema
import pytest

from contract import load_contract
from lab.input import open_input
from lab.input.model import InputEvent


def test_all_homes_and_events_are_there_each_once_and_in_time_order(shared_data: Path) -> None:
    everything = open_input(shared_data, homes=None, events=None)
    names = [home.name for home in everything.homes]
    assert len(names) == len(set(names)) == 62  # 55 patients with readings, 1 with alerts only, 6 rooms
    assert sum(name.startswith("flat-") for name in names) == 6
    assert everything.total == 285_691
    assert sum(home.urgent for home in everything.homes) == 608

    keys = set()
    before: InputEvent | None = None
    for each in everything:
        keys.add(each.event.key)
        assert before is None or before.at <= each.at
        before = each
    assert len(keys) == everything.total


@pytest.mark.parametrize("is_real", [False, True], ids=["simulated", "real"])
def test_payloads_are_what_the_contract_says(request: pytest.FixtureRequest, is_real: bool) -> None:
    contract = load_contract()
    folder = request.getfixturevalue("shared_data") if is_real else None
    validators = {
        name: jsonschema.Draft202012Validator(dict(next(iter(each.schemas.values()))))
        for name, each in contract.event_types.items()
    }
    for each in open_input(folder, homes=20, events=4_000):
        validators[each.event.type].validate(each.event.data())
        assert contract.participants[each.service].may_send(each.event.type)
