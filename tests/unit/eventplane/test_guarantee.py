"""How reliable a delivery is, and when an event is no longer worth one: for device, routers and audit."""

from dataclasses import replace

import pytest

from eventplane.attributes import AttributeValue
from eventplane.contract import Channel, Contract, DeliveryGuarantee, Place, Route
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import MANIFEST
from eventplane.envelope import Envelope, write_event
from eventplane.errors import EnvelopeError
from eventplane.expiry import expires_at_ms, is_expired_on_device, why_expired
from eventplane.guarantee import (
    BY_CHANNEL,
    BY_EVENT,
    decide,
    guarantee_of,
    is_expired,
    is_promised,
    lifetime_ms,
)
from eventplane.values import MAX_TIME_MS
from tests.small_contract import small_contract

BEST_EFFORT, AT_LEAST_ONCE = DeliveryGuarantee.BEST_EFFORT, DeliveryGuarantee.AT_LEAST_ONCE
RING, QUIET = "org.example.ring.v1", "org.example.quiet.v1"


@pytest.mark.source("P4", "C1")
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
def test_the_type_wins_over_route_and_channel(
    channels: tuple[DeliveryGuarantee, ...],
    asked: DeliveryGuarantee | None,
    route: DeliveryGuarantee | None,
    event_type: DeliveryGuarantee | None,
    expected: DeliveryGuarantee,
) -> None:
    assert decide(channels, asked, route, event_type) is expected


def event(type: str = RING, **attributes: AttributeValue) -> Envelope:
    return write_event({"id": "1", "source": "/a", "type": type, **attributes})


def plane(**outbox: str) -> Contract:
    every = {"filter": {"prefix": {"type": "org."}}, "to": "desk.inbox"}
    return small_contract(
        {"device": {"kind": "device", "outbox": outbox}, "desk": "cloud_service"},
        {"sure": {**every, "delivery_guarantee": "at_least_once"}, "to-desk": every},
        {QUIET: {"delivery_guarantee": "best_effort"}},
    )


def routes(contract: Contract) -> dict[str, Route]:
    return {each.name: each for each in contract.routes_at(Place.CLOUD)}


@pytest.mark.source("P4", "C1")
@pytest.mark.parametrize(
    ("type", "asks", "on_route", "on_sure_route"),
    [
        (RING, {}, AT_LEAST_ONCE, AT_LEAST_ONCE),
        (QUIET, {}, BEST_EFFORT, AT_LEAST_ONCE),
        (RING, {"deliveryguarantee": "best_effort"}, BEST_EFFORT, BEST_EFFORT),
    ],
)
def test_the_contract_sets_the_guarantee(
    type: str, asks: dict[str, str], on_route: DeliveryGuarantee, on_sure_route: DeliveryGuarantee
) -> None:
    contract = plane()
    asking = event(type, **asks)
    over = contract.device.outbox
    assert guarantee_of(contract, asking, over, routes(contract)["to-desk"]) is on_route
    assert guarantee_of(contract, asking, over, routes(contract)["sure"]) is on_sure_route


@pytest.mark.parametrize("type", [MANIFEST, DEAD_LETTER_TYPE])
def test_the_planes_reports_are_promised(type: str) -> None:
    contract = plane(delivery_guarantee="best_effort")
    route = routes(contract)["to-desk"]
    assert is_promised(contract, event(type), contract.device.outbox, route)
    assert not is_promised(contract, event(), contract.device.outbox, route)


@pytest.mark.parametrize("value", ["at_least_once", "exactly_once", "", True, 1])
def test_an_event_can_ask_for_less_and_for_nothing_else(value: str | bool | int) -> None:
    with pytest.raises(EnvelopeError, match="deliveryguarantee") as caught:
        event(deliveryguarantee=value)
    assert caught.value.reason == "attribute_value"
    if isinstance(value, str):
        assert "write `best_effort`" in caught.value.detail


@pytest.mark.source("C4")
def test_an_event_expires_at_its_expirytime_and_not_before() -> None:
    short = event(expirytime="1970-01-01T00:00:01Z")
    assert [is_expired(short, now_ms) for now_ms in (999, 1_000)] == [False, True]
    assert not is_expired(event(), 2**62)
    assert is_expired(event(expirytime="2024-01-01T00:00:00Z", deliverby="1970-01-01T00:00:00Z"), 0)


T0, T5, LAST = "2024-01-01T00:00:00Z", "2024-01-01T00:00:05.250Z", "9999-12-31T23:59:59.999Z"
LONG_AGO = {"time": "1970-01-01T00:00:12Z", "expirytime": "1970-01-01T00:10:12Z"}


@pytest.mark.source("C4")
@pytest.mark.parametrize(
    ("attributes", "lifetime", "expires_ms"),
    [
        ({}, None, None),
        ({"time": T0}, None, None),
        ({"deliverby": T5}, None, None),
        ({"expirytime": T5}, None, 1_704_067_205_250),
        ({"time": T0, "expirytime": T5}, 5_250, 1_005_250),
        ({"time": "1970-01-01T00:00:00Z", "expirytime": "1970-01-01T01:00:05+01:00"}, 5_000, 1_005_000),
        ({"time": T5, "expirytime": T0}, 0, 1_000_000),
        ({"senttime": T0, "expirytime": T5}, 5_250, 1_005_250),
        (LONG_AGO, 600_000, 1_600_000),
        ({**LONG_AGO, "senttime": "1970-01-01T00:10:11Z"}, 1_000, 1_001_000),
        ({**LONG_AGO, "senttime": "1970-01-01T00:11:00Z"}, 0, 1_000_000),
        ({**LONG_AGO, "deliverby": T5}, 600_000, 1_704_067_205_250),
        ({"time": "9999-01-01T00:00:00Z", "expirytime": "9999-01-01T00:10:00Z"}, 600_000, 1_600_000),
        ({"time": "1970-01-01T00:00:00Z", "expirytime": LAST}, MAX_TIME_MS, MAX_TIME_MS),
    ],
)
def test_lifetimes_count(attributes: dict[str, str], lifetime: int | None, expires_ms: int | None) -> None:
    assert lifetime_ms(event(**attributes)) == lifetime
    assert expires_at_ms(event(**attributes), 1_000_000) == expires_ms


@pytest.mark.source("C4")
@pytest.mark.parametrize(
    ("boot", "uptime_ms", "limit", "expired"),
    [
        ("b1", 5_000, "5000 b1", True),
        ("b1", 4_999, "5000 b1", False),
        ("b2", 9_000, "5000 b1", False),  # it was switched off, nobody knows for how long
        ("b1", 9_000, None, False),
        ("b1", 9_000, "soon b1", False),
    ],
)
def test_on_a_device_the_uptime_decides(boot: str, uptime_ms: int, limit: str | None, expired: bool) -> None:
    given = event(**LONG_AGO) if limit is None else event(**LONG_AGO, uptimelimit=limit)
    assert is_expired_on_device(given, boot, uptime_ms) is expired


def inbox(expiry_s: int | None) -> Channel:
    return replace(plane().channel("desk.inbox"), expiry_s=expiry_s)


@pytest.mark.parametrize(
    ("bounds", "age_ms", "expected"),
    [
        ((None,), 2**40, None),
        ((10,), 9_999, None),
        ((10,), 10_000, BY_CHANNEL),
        ((None, 20, 10), 10_000, BY_CHANNEL),
        ((20, None), 10_000, None),
        ((), 10_000, None),
    ],
)
def test_the_strictest_counts(bounds: tuple[int | None, ...], age_ms: int, expected: str | None) -> None:
    accepted = 1_767_225_600_000
    assert why_expired(event(), accepted + age_ms, accepted, *map(inbox, bounds)) == expected


@pytest.mark.source("C4")
def test_the_event_s_own_expiry_precedes_the_channel_s() -> None:
    short = event(expirytime="1970-01-01T00:00:01Z")
    assert why_expired(short, 100_000, 0, inbox(10)) == BY_EVENT
    assert why_expired(short, 999, 0, inbox(10)) is None
