"""The rule by which the device, the routers and the audit decide how reliable one delivery is."""

from __future__ import annotations

import pytest

from eventplane.contract import Contract, DeliveryGuarantee, Place, Route, compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import MANIFEST
from eventplane.envelope import write_event
from eventplane.errors import EnvelopeError
from eventplane.guarantee import decide, guarantee_of, is_promised

pytestmark = pytest.mark.source("P4", "C1")

BEST_EFFORT, AT_LEAST_ONCE = DeliveryGuarantee.BEST_EFFORT, DeliveryGuarantee.AT_LEAST_ONCE
RING, QUIET = "org.example.ring.v1", "org.example.quiet.v1"


@pytest.mark.parametrize(
    ("channels", "asked", "route", "event_type", "expected"),
    [
        ((AT_LEAST_ONCE, AT_LEAST_ONCE), None, None, None, AT_LEAST_ONCE),
        ((AT_LEAST_ONCE, AT_LEAST_ONCE), None, None, BEST_EFFORT, BEST_EFFORT),
        ((AT_LEAST_ONCE, AT_LEAST_ONCE), None, AT_LEAST_ONCE, BEST_EFFORT, AT_LEAST_ONCE),
        ((AT_LEAST_ONCE, AT_LEAST_ONCE), None, BEST_EFFORT, AT_LEAST_ONCE, BEST_EFFORT),
        ((AT_LEAST_ONCE, AT_LEAST_ONCE), BEST_EFFORT, AT_LEAST_ONCE, AT_LEAST_ONCE, BEST_EFFORT),
        ((BEST_EFFORT, AT_LEAST_ONCE), None, AT_LEAST_ONCE, AT_LEAST_ONCE, BEST_EFFORT),
        ((AT_LEAST_ONCE, BEST_EFFORT), None, None, AT_LEAST_ONCE, BEST_EFFORT),
    ],
)
def test_channels_and_the_event_can_only_weaken_then_the_route_wins_then_the_type(
    channels: tuple[DeliveryGuarantee, ...],
    asked: DeliveryGuarantee | None,
    route: DeliveryGuarantee | None,
    event_type: DeliveryGuarantee | None,
    expected: DeliveryGuarantee,
) -> None:
    assert decide(channels, asked, route, event_type) is expected


def plane(**outbox: str) -> Contract:
    return compile_contract(
        {
            "format": 7,
            "name": "guarantees",
            "participants": {
                "device": {"kind": "device", "description": "d", "outbox": outbox},
                "desk": {"kind": "cloud_service", "description": "d"},
            },
            "event_types": {QUIET: {"description": "d", "delivery_guarantee": "best_effort"}},
            "routes": {
                "sure": {
                    "filter": {"prefix": {"type": "org."}},
                    "to": "desk.inbox",
                    "delivery_guarantee": "at_least_once",
                },
                "to-desk": {"filter": {"prefix": {"type": "org."}}, "to": "desk.inbox"},
            },
        },
        "guarantees",
    )


def routes(contract: Contract) -> dict[str, Route]:
    return {each.name: each for each in contract.routes_at(Place.CLOUD)}


@pytest.mark.parametrize(
    ("type", "asks", "on_route", "on_sure_route"),
    [
        (RING, {}, AT_LEAST_ONCE, AT_LEAST_ONCE),
        (QUIET, {}, BEST_EFFORT, AT_LEAST_ONCE),
        (RING, {"deliveryguarantee": "best_effort"}, BEST_EFFORT, BEST_EFFORT),
    ],
)
def test_a_delivery_has_the_guarantee_of_what_its_contract_declares(
    type: str, asks: dict[str, str], on_route: DeliveryGuarantee, on_sure_route: DeliveryGuarantee
) -> None:
    contract = plane()
    event = write_event({"id": "1", "source": "/a", "type": type, **asks})
    over = contract.device.outbox
    assert guarantee_of(contract, event, over, routes(contract)["to-desk"]) is on_route
    assert guarantee_of(contract, event, over, routes(contract)["sure"]) is on_sure_route


@pytest.mark.parametrize("type", [MANIFEST, DEAD_LETTER_TYPE])
def test_the_planes_own_reports_are_promised_also_over_a_best_effort_channel(type: str) -> None:
    contract = plane(delivery_guarantee="best_effort")
    route = routes(contract)["to-desk"]
    own = write_event({"id": "1", "source": "/a", "type": type})
    other = write_event({"id": "1", "source": "/a", "type": RING})
    assert is_promised(contract, own, contract.device.outbox, route)
    assert not is_promised(contract, other, contract.device.outbox, route)


@pytest.mark.parametrize("value", ["at_least_once", "exactly_once", "", True, 1])
def test_an_event_can_ask_for_less_and_for_nothing_else(value: str | bool | int) -> None:
    with pytest.raises(EnvelopeError, match="deliveryguarantee") as caught:
        write_event({"id": "1", "source": "/a", "type": RING, "deliveryguarantee": value})
    assert caught.value.reason == "attribute_value"
    if isinstance(value, str):
        assert "write `best_effort`" in caught.value.detail
