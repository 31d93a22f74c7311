"""Subscriptions: which are valid, and the contract derived from them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import Contract, ContractError, Place, load_compiled
from eventplane.contract.canonical import Problem
from eventplane.contract.filter_reader import MAX_FILTER_DEPTH, read_filter
from eventplane.contract.subscription import (
    MAX_DOCUMENT_BYTES,
    MAX_FILTER_BYTES,
    MAX_NAME,
    MAX_OWN,
    MAX_SUBSCRIPTIONS,
    Subscription,
    has_costly,
    new_subscription,
    subscribable,
    subscribed_routes,
    with_subscriptions,
    without_costly,
)
from eventplane.contract.subscription_table import SUBSCRIPTION
from eventplane.envelope import write_event
from eventplane.filters import Filter
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.limits import MAX_PARTICIPANT_STEPS
from eventplane.router import Router
from tests.plane import shipped_contract
from tests.small_contract import with_changes
from tests.unit.contract.small import small

CONTRACT = shipped_contract()
NOW = "2026-01-01T00:00:00.000Z"
NEWS = {"exact": {"type": "org.eventplane.alarm.news.v1"}}


def subscription(name: str = "news", participant: str = "family-app", filter: object = NEWS) -> Subscription:
    return new_subscription(participant, name, filter, NOW)


@pytest.mark.parametrize(
    ("name", "filter", "path"),
    [
        ("Not A Name", NEWS, "name"),
        ("n" * (MAX_NAME + 1), NEWS, "name"),
        ("news", {}, "filter"),
        ("news", {"exact": {"type": 5}}, "filter.exact.type"),
        ("news", {"sql": "type = ("}, "filter.sql"),
        ("news", {"exact": {"type": "x" * MAX_FILTER_BYTES}}, "filter"),
    ],
)
def test_a_subscription_is_checked_like_a_route(name: str, filter: object, path: str) -> None:
    with pytest.raises(ContractError) as wrong:
        subscription(name, filter=filter)
    assert wrong.value.problems[0].path == path


def test_subscriptions_make_a_contract_with_its_own_version() -> None:
    assert with_subscriptions(CONTRACT, []) == (CONTRACT, {})
    assert SUBSCRIPTION.from_item(SUBSCRIPTION.to_item(subscription())) == subscription()
    derived, refused = with_subscriptions(CONTRACT, [subscription()])
    assert refused == {}
    assert derived.version != CONTRACT.version
    (route,) = set(derived.routes_at(Place.CLOUD)) - set(CONTRACT.routes)
    assert (route.name, route.destination) == ("family-app-subscribes-news", "family-app.inbox")
    assert load_compiled(derived.canonical).version == derived.version
    assert derived.routes_at(Place.DEVICE) == CONTRACT.routes_at(Place.DEVICE)


@given(st.permutations([subscription(name, who) for name in "abc" for who in ("family-app", "carers")]))
def test_the_order_of_subscriptions_is_irrelevant(subscriptions: list[Subscription]) -> None:
    first, _ = with_subscriptions(CONTRACT, subscriptions)
    assert first.version == with_subscriptions(CONTRACT, reversed(subscriptions))[0].version
    assert len(first.routes) == len(CONTRACT.routes) + 6


@pytest.mark.parametrize(
    "wrong",
    [
        subscription(participant="nobody"),
        subscription(participant="call-service"),
        subscription("lost", "carers"),  # its inbox has no queue
        Subscription("family-app", "news", "{", NOW),
        Subscription("family-app", "news", json.dumps({"new": {}}), NOW),
        Subscription("family-app", "No Name", json.dumps(NEWS), NOW),
        Subscription("family-app", "other", json.dumps(NEWS), "2026-02-01T00:00:00Z"),  # taken
    ],
)
def test_a_wrong_subscription_does_not_affect_the_others(wrong: Subscription) -> None:
    derived, refused = with_subscriptions(CONTRACT, [wrong, subscription("other")], {"family-app.inbox"})
    assert set(refused) == {wrong}
    assert [each.name for each in subscribed_routes(derived)] == ["family-app-subscribes-other"]


def crowded(services: int) -> Contract:
    """The plane's contract with so many more services in the cloud."""
    all_events = {"sql": "TRUE"}
    return with_changes(
        CONTRACT, {f"participants/many{at}/may_subscribe": all_events for at in range(services)}
    )


def test_the_number_of_subscriptions_is_bounded() -> None:
    services = MAX_SUBSCRIPTIONS // MAX_OWN + 1
    contract = crowded(services)
    many = [
        subscription(f"n{number}", f"many{service}")
        for service in range(services)
        for number in range(MAX_OWN)
    ]
    derived, refused = with_subscriptions(contract, many)
    assert len(derived.routes) == len(contract.routes) + MAX_SUBSCRIPTIONS
    assert len(refused) == MAX_OWN


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every filter that is read."""
    read: list[object] = []

    def counted(document: object, path: str, problems: list[Problem]) -> Filter:
        read.append(document)
        return read_filter(document, path, problems)

    monkeypatch.setattr("eventplane.contract.subscription.read_filter", counted)
    return read


def test_refused_ones_count_towards_the_quota(read: list[object]) -> None:
    wrong = [
        Subscription("family-app", f"n{at:02}", json.dumps({"sql": f"type = ({at}"}), f"2025-01-{at:02}")
        for at in range(3 * MAX_OWN)
    ]
    derived, refused = with_subscriptions(CONTRACT, [*wrong, subscription(), subscription("one", "carers")])
    assert [each.name for each in subscribed_routes(derived)] == ["carers-subscribes-one"]
    assert len(refused) == len(wrong) + 1
    assert len([each for each in read if "type = (" in str(each)]) == MAX_OWN


def test_a_filter_that_is_too_long_is_refused_before_it_is_read(read: list[object]) -> None:
    long = json.dumps({"exact": {"type": "x" * MAX_FILTER_BYTES}})
    for text in (long, "[" * 9_000, "{" * 5_000, "[" * 5_000):
        odd = Subscription("family-app", "news", text, NOW)
        assert set(with_subscriptions(CONTRACT, [odd])[1]) == {odd}
        assert odd.steps == 0
    with pytest.raises(ContractError, match="longer than"):
        subscription(filter=json.loads(long))
    assert read == []
    fat = replace(subscription(), document=json.dumps({"sink": "x" * MAX_DOCUMENT_BYTES}))
    assert set(with_subscriptions(CONTRACT, [fat])[1]) == {fat}


ENDPOINT = new_subscription(
    "carers", "posted", NEWS, NOW, json.dumps({"protocol": "HTTP", "sink": "https://example.org/"})
)


@pytest.mark.parametrize(
    "change", [{"participants/subscribers/retired": True}, {"participants/subscribers": None}]
)
def test_without_the_subscribers_only_their_routes_are_left_out(change: dict[str, Any]) -> None:
    derived, refused = with_subscriptions(with_changes(CONTRACT, change), [ENDPOINT, subscription()])
    assert list(refused) == [ENDPOINT]
    assert [each.name for each in subscribed_routes(derived)] == ["family-app-subscribes-news"]


@pytest.mark.parametrize("document", ["{", "[]", "null", "5", "[" * 9_000])
def test_a_document_without_a_sink_leads_to_the_own_inbox(document: str) -> None:
    odd = replace(subscription(), document=document)
    assert (odd.properties, odd.destination) == ({}, "family-app.inbox")


COSTLY = {"sql": "type = 'org.example.news.v1' AND subject LIKE '%x%'"}
# Each takes nearly as much as one filter may.
COSTLIEST = {"sql": "type = 'org.example.news.v1' AND subject LIKE '%" + "x" * 90 + "%'"}


def test_the_cost_of_filters_is_bounded() -> None:
    own = [new_subscription("carers", f"n{at}", COSTLIEST, f"2026-01-01T00:00:0{at}.000Z") for at in range(4)]
    assert MAX_PARTICIPANT_STEPS < 3 * own[0].steps < 2 * MAX_PARTICIPANT_STEPS
    derived, refused = with_subscriptions(CONTRACT, [*own, subscription("one", filter=COSTLIEST)])
    assert {each.name for each in refused} == {"n2", "n3"}
    assert all("steps for all of one participant" in str(each) for each in refused.values())
    assert len(derived.routes) == len(CONTRACT.routes) + 3


def test_only_costly_filters_are_left_out() -> None:
    added = [subscription("cheap"), subscription("costly", filter=COSTLY)]
    announced = [new_announcement("carers", [COSTLY]), new_announcement("alarm-centre", [NEWS])]
    derived = with_interest(with_subscriptions(CONTRACT, added)[0], announced)[0]
    lighter = without_costly(derived)

    names = {each.name for each in derived.routes} - {each.name for each in lighter.routes}
    assert names == {"family-app-subscribes-costly"}
    interests = {each.destination: each.interest for each in lighter.routes}
    assert interests["carers.inbox"] is None
    assert interests["alarm-centre.inbox"] is not None
    assert (has_costly(derived), has_costly(lighter), has_costly(CONTRACT)) == (True, False, False)
    assert load_compiled(lighter.canonical).version == lighter.version != derived.version


# With the participant's right around it, a filter is one level deeper.
@pytest.mark.parametrize(
    ("levels", "is_refused"), [(MAX_FILTER_DEPTH - 2, False), (MAX_FILTER_DEPTH - 1, True)]
)
def test_a_deep_subscription_can_be_read(levels: int, is_refused: bool) -> None:
    innermost: object = {"exact": {"type": "org.eventplane.alarm.news.v1", "source": "/news"}}
    for _ in range(levels):
        innermost = {"not": innermost}
    deep = subscription("deep", filter=innermost)
    derived, refused = with_subscriptions(CONTRACT, [deep, subscription()])
    assert set(refused) == ({deep} if is_refused else set())
    assert "family-app-subscribes-news" in {each.name for each in derived.routes}
    assert load_compiled(derived.canonical) == derived
    wanted, unusable = with_interest(derived, [new_announcement("carers", [NEWS])])
    assert unusable == {}
    assert load_compiled(wanted.canonical) == wanted


def test_the_cost_of_a_participant_s_announcements_is_bounded() -> None:
    one, other = (new_announcement("carers", [{"sql": f"subject LIKE '%x{at}%'"}]) for at in range(2))
    many = [new_announcement("carers", [{"sql": f"subject LIKE '%{at:04}%'"}]) for at in range(9)]
    assert with_interest(CONTRACT, [one, other])[1] == {}
    derived, refused = with_interest(CONTRACT, [*many, new_announcement("alarm-centre", [NEWS])])
    assert set(refused) == set(many)
    assert {each.destination for each in derived.routes if each.interest} == {"alarm-centre.inbox"}


def desk(*types: str, **settings: object) -> Contract:
    """A contract whose routes lead these types, and no others, to the desk; in two routes the first."""
    routes = {
        f"r{at}": {"filter": {"exact": {"type": each}}, "to": "desk.inbox"} for at, each in enumerate(types)
    }
    again = {"again": routes["r0"]} if len(types) > 1 else {}
    up = {"up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"}}
    right = {f"participants/desk/{name}": each for name, each in settings.items()}
    return small({"routes": {**up, **routes, **again}, "participants/subscribers/sends": [], **right})


def test_routes_say_who_may_subscribe() -> None:
    ring, tell = ({"exact": {"type": each}} for each in ("ring", "tell"))
    assert subscribable(desk(), "desk") is None
    assert subscribable(desk("ring"), "desk") == ring
    both = subscribable(desk("ring", "tell"), "desk")
    assert both in ({"any": [ring, tell]}, {"any": [tell, ring]})
    # A subscription widens nothing.
    mine = new_subscription("desk", "mine", {"sql": "type = 'ring'"}, NOW)
    derived, refused = with_subscriptions(desk("ring"), [mine])
    assert refused == {}
    assert subscribable(derived, "desk") == ring
    # Who may subscribe to nothing is refused with the reason.
    derived, refused = with_subscriptions(desk(), [mine])
    assert derived == desk()
    assert "may_subscribe" in refused[mine].remedy


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
def test_no_subscription_exceeds_may_subscribe(filter: Any, participant: str) -> None:
    mine = new_subscription(participant, "mine", filter, NOW)
    derived, _ = with_subscriptions(CONTRACT, [mine])
    router, allowed = Router(derived, Place.CLOUD), CONTRACT.participants[participant].may_subscribe
    assert allowed is not None
    for type in CONTRACT.event_types:
        for subject in ("home-1/bedroom", "home-1/kitchen"):
            event = write_event({"id": "1", "source": "/s", "type": type, "subject": subject})
            taken = mine.route in {each.name for each in router.route(event)}
            assert not taken or allowed.matches(event.attributes)
