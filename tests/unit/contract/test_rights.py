"""`may_subscribe` and `may_address`: reading, the compiled form, defaults, warnings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.checks import check
from contract.summary import summary
from eventplane.contract import AddressScope, Contract, ContractError, Place, compile_contract, load_compiled
from eventplane.contract.subscription import (
    granted_filter,
    new_subscription,
    subscribable,
    with_subscriptions,
)
from eventplane.envelope import write_event
from eventplane.filters import Prefix
from eventplane.router import Router
from tests.plane import shipped_contract

NOW = "2026-01-01T00:00:00.000Z"
CONTRACT = shipped_contract()


def plane(*, routes: dict[str, Any] | None = None, **desk: Any) -> Contract:
    """A plane with a desk in the cloud that sends states down."""
    service = {"kind": "cloud_service", "description": "d"}
    document = {
        "format": 6,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "d"},
            "bell": {"kind": "device_service", "description": "d", "sends": ["ring"]},
            "desk": {**service, "sends": ["tell"], **desk},
            "downlink": {**service, "sends": []},
            "subscribers": {**service, "sends": []},
        },
        "event_types": {"ring": {"description": "d"}, "tell": {"description": "d", "downlink": "state"}},
        "routes": {
            "up": {"filter": {"exact": {"type": "ring"}}, "to": "device.outbox"},
            "down": {"filter": {"exact": {"type": "tell"}}, "to": "device.inbox"},
            **(routes or {}),
        },
    }
    return compile_contract(document, "small")


def problems(**desk: Any) -> list[str]:
    with pytest.raises(ContractError) as caught:
        plane(**desk)
    return [each.path for each in caught.value.problems]


def warnings(contract: Contract) -> list[str]:
    return [each.path for each in check(contract)]


def test_they_stand_in_the_compiled_form_which_reads_back() -> None:
    contract = plane(may_subscribe={"prefix": {"type": "r"}}, may_address=["north", "all.of-them", "north"])
    desk = contract.participants["desk"]
    assert desk.may_subscribe == Prefix("type", "r")
    assert desk.may_address == ("all.of-them", "north")
    assert load_compiled(contract.canonical) == contract
    assert json.loads(contract.canonical)["format"] == 6


def test_without_them_a_contract_is_of_the_format_it_was() -> None:
    contract = plane(may_address="one")
    assert contract.participants["desk"].may_address is AddressScope.ONE
    assert contract.participants["desk"].may_subscribe is None
    assert json.loads(contract.canonical)["format"] == 4
    assert plane(may_address="everyone").participants["desk"].may_address is AddressScope.EVERYONE


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"may_address": "all"}, "participants.desk.may_address"),
        ({"may_address": []}, "participants.desk.may_address"),
        ({"may_address": ["a b"]}, "participants.desk.may_address[0]"),
        ({"may_address": [1]}, "participants.desk.may_address[0]"),
        ({"may_subscribe": {"sql": "("}}, "participants.desk.may_subscribe.sql"),
        ({"may_subscribe": []}, "participants.desk.may_subscribe"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], path: str) -> None:
    assert problems(**settings) == [path]


@pytest.mark.parametrize("settings", [{"may_subscribe": {"sql": "TRUE"}}, {"may_address": "one"}])
def test_only_cloud_services_have_them(settings: dict[str, Any]) -> None:
    document = json.loads(CONTRACT.canonical)
    document["participants"]["voice-service"] |= settings
    with pytest.raises(ContractError, match=r"voice-service\.may_"):
        compile_contract(document, "test")


@pytest.mark.parametrize("kind", ["device", "device_service", "cloud_service"])
def test_nobody_is_called_like_the_plane(kind: str) -> None:
    document = json.loads(CONTRACT.canonical)
    document["participants"]["eventplane"] = {"kind": kind, "description": "d"}
    with pytest.raises(ContractError, match=r"participants.eventplane: the plane itself"):
        compile_contract(document, "test")


def test_without_may_subscribe_it_is_what_the_own_routes_take() -> None:
    assert subscribable(plane(), "desk") is None
    ring, tell = ({"exact": {"type": each}} for each in ("ring", "tell"))
    one = {"one": {"filter": ring, "to": "desk.inbox"}}
    assert subscribable(plane(routes=one), "desk") == ring
    two = {**one, "two": {"filter": tell, "to": "desk.inbox"}, "again": {"filter": ring, "to": "desk.inbox"}}
    assert subscribable(plane(routes=two), "desk") == {"any": [ring, tell]}
    # A subscription widens nothing.
    mine = new_subscription("desk", "mine", {"sql": "type = 'ring'"}, NOW)
    derived, refused = with_subscriptions(plane(routes=one), [mine])
    assert refused == {}
    assert subscribable(derived, "desk") == ring


def test_who_may_subscribe_to_nothing_is_told_why() -> None:
    mine = new_subscription("desk", "mine", {"sql": "TRUE"}, NOW)
    derived, refused = with_subscriptions(plane(), [mine])
    assert derived == plane()
    assert "may_subscribe" in refused[mine].remedy


def test_a_filter_that_is_too_deep_together_with_the_right_takes_no_other_with_it() -> None:
    deep: dict[str, Any] = {"exact": {"type": "ring"}}
    for _ in range(16):
        deep = {"all": [deep]}
    contract = plane(may_subscribe={"prefix": {"type": "r"}})
    bad, good = (
        new_subscription("desk", "bad", deep, NOW),
        new_subscription("desk", "good", {"sql": "TRUE"}, NOW),
    )
    derived, refused = with_subscriptions(contract, [bad, good])
    assert list(refused) == [bad]
    assert "desk-subscribes-good" in {each.name for each in derived.routes}


_FILTERS = st.recursive(
    st.sampled_from(
        [
            {"sql": "TRUE"},
            {"sql": "type LIKE '%motion%' OR EXISTS id"},
            {"prefix": {"type": "org.eventplane."}},
            {"suffix": {"subject": "/bedroom"}},
            {"exact": {"type": "org.eventplane.home.message.v1"}},
            {"exact": {"type": "org.eventplane.deadletter.v1"}},
        ]
    ),
    lambda parts: st.lists(parts, min_size=1, max_size=3).flatmap(
        lambda some: st.sampled_from([{"all": some}, {"any": some}, {"not": some[0]}])
    ),
    max_leaves=6,
)


@given(_FILTERS, st.sampled_from(["alarm-centre", "care-analytics", "family-app", "operations", "carers"]))
def test_no_subscription_takes_what_its_participant_may_not_subscribe_to(
    filter: Any, participant: str
) -> None:
    mine = new_subscription(participant, "mine", filter, NOW)
    derived, _ = with_subscriptions(CONTRACT, [mine])
    router, allowed = Router(derived, Place.CLOUD), CONTRACT.participants[participant].may_subscribe
    assert allowed is not None
    for type in CONTRACT.event_types:
        for subject in ("home-1/bedroom", "home-1/kitchen"):
            event = write_event({"id": "1", "source": "/s", "type": type, "subject": subject})
            taken = mine.route in {each.name for each in router.route(event)}
            assert not taken or allowed.matches(event.attributes)


def test_the_filter_says_what_it_became() -> None:
    mine = new_subscription("family-app", "mine", {"sql": "TRUE"}, NOW)
    assert granted_filter(CONTRACT, mine) == {"all": [subscribable(CONTRACT, "family-app"), {"sql": "TRUE"}]}


def test_the_warnings() -> None:
    assert [each for each in warnings(plane()) if each.endswith("may_subscribe")] == [
        "participants.desk.may_subscribe"
    ]
    right = {"may_subscribe": {"exact": {"type": "ring"}}}
    assert "participants.desk.may_subscribe" not in warnings(plane(**right))
    assert "participants.desk.may_address" in warnings(plane(may_address="everyone", sends=["ring"]))
    assert "participants.desk.may_address" not in warnings(plane(may_address="everyone"))
    silent = plane(sends=None, outbox={"max_receives": 9})
    assert "participants.desk.sends" in warnings(silent)
    assert "participants.desk.sends" not in warnings(plane())


def test_people_read_them_in_words() -> None:
    text = summary(plane(may_subscribe={"exact": {"type": "ring"}}, may_address=["north"]))
    assert 'may subscribe: type is "ring"' in text
    assert "may address: the groups north and the devices in them" in text
