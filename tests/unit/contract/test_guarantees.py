"""`delivery_guarantee` of channels, routes and event types: what is compiled, and what is refused and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventplane.contract import ContractError, DeliveryGuarantee, compile_contract, load_compiled
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import MANIFEST
from eventplane.names import NOTICE

pytestmark = pytest.mark.source("P4", "C1")

RING = "org.example.ring.v1"
BEST_EFFORT = {"delivery_guarantee": "best_effort"}
AT_LEAST_ONCE = {"delivery_guarantee": "at_least_once"}


def document(
    *,
    desk: dict[str, Any] | None = None,
    device: dict[str, Any] | None = None,
    types: dict[str, dict[str, Any]] | None = None,
    to_desk: dict[str, Any] | None = None,
    down: dict[str, Any] | None = None,
    downlink: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "format": 7,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "d", **(device or {})},
            "desk": {"kind": "cloud_service", "description": "d", "inbox": desk or {}},
            "downlink": {"kind": "cloud_service", "description": "d", **(downlink or {})},
        },
        "event_types": {name: {"description": "d", **more} for name, more in (types or {}).items()},
        "routes": {
            "down": {"filter": {"exact": {"type": "down"}}, "to": "device.inbox", **(down or {})},
            "to-desk": {"filter": {"prefix": {"type": "org."}}, "to": "desk.inbox", **(to_desk or {})},
        },
    }


def test_a_route_and_an_event_type_declare_a_guarantee_and_keep_it_when_compiled() -> None:
    contract = compile_contract(
        document(types={RING: BEST_EFFORT, "x": {}}, to_desk=AT_LEAST_ONCE), "guarantees"
    )
    for each in (contract, load_compiled(contract.canonical)):
        assert [route.delivery_guarantee for route in each.routes] == [None, DeliveryGuarantee.AT_LEAST_ONCE]
        assert each.event_types[RING].delivery_guarantee is DeliveryGuarantee.BEST_EFFORT
        assert each.event_types["x"].delivery_guarantee is None


@pytest.mark.parametrize(
    ("changes", "compiled_format"),
    [
        ({}, 2),
        ({"to_desk": BEST_EFFORT}, 7),
        ({"types": {RING: AT_LEAST_ONCE}}, 7),
        ({"desk": BEST_EFFORT}, 2),
    ],
)
def test_only_a_contract_that_declares_one_needs_format_7(
    changes: dict[str, Any], compiled_format: int
) -> None:
    contract = compile_contract(document(**changes), "guarantees")
    assert json.loads(contract.canonical)["format"] == compiled_format


@pytest.mark.parametrize(
    ("changes", "path", "why"),
    [
        (
            {"desk": BEST_EFFORT, "to_desk": AT_LEAST_ONCE},
            "routes.to-desk",
            "desk.inbox is a best-effort channel",
        ),
        ({"device": {"inbox": BEST_EFFORT}}, "participants.device.inbox", "goes down to devices"),
        ({"down": BEST_EFFORT}, "routes.down", "goes down to devices"),
        (
            {"types": {RING: {**BEST_EFFORT, "downlink": "state"}}},
            f"event_types.{RING}",
            "goes down to devices",
        ),
        ({"downlink": {"outbox": BEST_EFFORT}}, "participants.downlink.outbox", "own reports"),
        ({"types": {MANIFEST: BEST_EFFORT}}, f"event_types.{MANIFEST}", "own reports"),
        ({"types": {NOTICE: BEST_EFFORT}}, f"event_types.{NOTICE}", "own reports"),
        ({"types": {DEAD_LETTER_TYPE: BEST_EFFORT}}, f"event_types.{DEAD_LETTER_TYPE}", "own reports"),
    ],
)
def test_a_guarantee_that_could_not_be_kept_or_would_mean_nothing_is_refused(
    changes: dict[str, Any], path: str, why: str
) -> None:
    with pytest.raises(ContractError) as caught:
        compile_contract(document(**changes), "guarantees")
    (problem,) = caught.value.problems
    assert problem.path == f"{path}.delivery_guarantee"
    assert why in problem.message
    assert "remove the setting" in problem.remedy


def test_an_archived_contract_is_read_by_the_rules_of_its_time() -> None:
    archived = document(device={"inbox": BEST_EFFORT}) | {"format": 2}
    channel = load_compiled(json.dumps(archived)).device.inbox
    assert channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT
