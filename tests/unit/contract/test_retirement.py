"""A participant that is about to leave: its queues stay, and nothing leads to it any more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract import load_contract
from contract.checks import check
from contract.diff import diff_text
from contract.summary import summary
from eventplane.contract import ContractError, compile_contract, load_compiled


@pytest.fixture
def document() -> dict[str, Any]:
    """The plane's own, in which nothing leads to the family's app any more."""
    document: dict[str, Any] = json.loads(load_contract().canonical)
    for route in [name for name, each in document["routes"].items() if each["to"] == "family-app.inbox"]:
        del document["routes"][route]
    return document


def test_it_still_takes_part_and_nobody_misses_its_routes(document: dict[str, Any]) -> None:
    before = compile_contract(document, "before")
    assert "participants.family-app.inbox" in {each.path for each in check(before)}
    document["participants"]["family-app"]["retired"] = True
    after = compile_contract(document, "after")
    assert after.participants["family-app"].retired
    assert "participants.family-app.inbox" not in {each.path for each in check(after)}
    assert "(retired) What relatives see." in summary(after)
    assert "+ participants.family-app.retired: true" in diff_text(before, after)
    assert load_compiled(after.canonical) == after


def test_a_contract_without_it_reads_as_before() -> None:
    assert b"retired" not in load_contract().canonical


def test_without_what_brings_events_down_no_route_leads_there(document: dict[str, Any]) -> None:
    down = compile_contract(document, "before").device.inbox.address
    participants, routes = document["participants"], document["routes"]
    participants["downlink"]["retired"] = True
    del routes["answers-to-downlink"]
    led_down = [name for name, each in routes.items() if each["to"] == down]
    with pytest.raises(ContractError) as caught:
        compile_contract(document, "test")
    assert {each.path for each in caught.value.problems} == {f"routes.{name}.to" for name in led_down}
    assert {each.message for each in caught.value.problems} == {
        "'downlink', which brings events there, is retired"
    }
    for name in led_down:
        del routes[name]
    asker = next(name for name, each in participants.items() if each["kind"] == "device_service")
    participants[asker]["asks"] = ["org.example.help.v1"]
    after = compile_contract(document, "after")
    assert f"replies-to-{asker}" in {each.name for each in after.routes}
    assert down not in {each.destination for each in after.routes}


@pytest.mark.parametrize(
    ("participant", "path"),
    [
        ("alarm-centre", "routes.alarms-to-alarm-centre.to"),
        ("climate-service", "participants.climate-service.retired"),
    ],
)
def test_a_route_to_it_or_one_without_queues_is_a_problem(
    document: dict[str, Any], participant: str, path: str
) -> None:
    document["participants"][participant]["retired"] = True
    with pytest.raises(ContractError) as caught:
        compile_contract(document, "test")
    assert [each.path for each in caught.value.problems] == [path]
