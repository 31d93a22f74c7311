"""What the lint warns about and what it leaves alone; mixed AND and OR, with the remedy."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from eventplane.cesql import lint, missing_functions, mixed_logic, parse
from eventplane.contract import Contract, load_compiled
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.subscription import (
    Subscription,
    granted_filter,
    new_subscription,
    with_subscriptions,
    without_costly,
)
from eventplane.envelope import parse_event
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.interest.uplink import read_uplink_interest, uplink_filters, uplink_interest_event
from eventplane_client.subscription import checked_filter
from tests.small_contract import small_contract


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a = 1 AND b = 2 OR c = 3", 16, "AND and OR are mixed"),
        ("a OR (b AND c XOR d)", 14, "AND and XOR are mixed"),
        ("NOT a = b", 0, "NOT binds to the next word only"),
        ("a AND NOT b LIKE 'x'", 6, "NOT binds to the next word only"),
        ("NOT a IN ('x')", 0, "NOT binds to the next word only"),
        ("time < '2026-01-01'", 7, "cannot be cast"),
        ("a + 'x' = 1", 4, "cannot be cast"),
        ("a = 1 OR LEFT(b, 'x') = 'b'", 17, "cannot be cast"),
        ("a OR FOO(b)", 5, "there is no function FOO of 1"),
        ("1 = 1", 0, "every event passes"),
        ("EXISTS id", 0, "every event passes"),
        ("TRUE OR a = 1", 0, "every event passes"),
        ("EXISTS id XOR FALSE", 0, "every event passes"),
        ("EXISTS id XOR EXISTS source", 0, "no event passes"),
        ("EXISTS id XOR 1 / 0 = a", 0, "no event passes"),
        ("'x' = 1 AND a", 0, "cannot be cast"),
        ("a = 1 AND FALSE", 0, "no event passes"),
        ("5 / 0 = a", 0, "no event passes"),
        ("NOT 10", 0, "no event passes"),
        ("a OR NOT 10", 9, "10 cannot be cast"),
        ("a AND b OR c AND d OR e", 8, "AND and OR are mixed"),
        ("(FOO(a) = 1) AND b", 1, "no event passes"),
        ("UPPER(type)", 0, "a value of type String"),
        ("a + 1", 0, "a value of type Integer"),
        ("'x'", 0, "a value of type String"),
        ("a = 1 AND 1 < 2", 10, "this part is always true"),
        ("a = 1 OR NOT EXISTS source", 9, "this part is always false"),
    ],
)
def test_each_pitfall_is_named_at_its_place(text: str, position: int, message: str) -> None:
    found = [warning for warning in lint(parse(text)) if message in warning.message]
    assert [warning.position for warning in found] == [position]
    assert found[0].remedy
    assert found[0].excerpt.splitlines()[-1].index("^") == position


@pytest.mark.parametrize(
    "text",
    [
        "type = 'org.example.alarm.v1'",
        "(a = 1 AND b = 2) OR c = 3",
        "a = 1 AND b = 2 AND c = 3",
        "NOT (a = b)",
        "(NOT a) = b",
        "NOT EXISTS a",
        "a NOT LIKE 'x' = b",
        "a",
        "type = UPPER('org') OR type LIKE '%.v2'",
        "type IN ('com.other', 'org.example.alarm.v1') AND hop < ttl",
        "BOOL(a)",
        "NOT hop",
        "a XOR (b AND (c OR d))",
    ],
)
def test_a_plain_expression_has_no_warning(text: str) -> None:
    assert lint(parse(text)) == []


def test_warnings_come_in_the_order_of_the_text() -> None:
    assert [each.position for each in lint(parse("NOT a = b AND c OR d"))] == [0, 16]


def test_a_function_is_missing_by_its_name_and_its_arity() -> None:
    (only,) = missing_functions(parse("NOT a = b AND LENGTH(a, b) = 1"))
    assert "LENGTH of 2" in only.message


MIXED = "subject = 'a' AND level = 1 OR urgent"
PLAIN = "subject = 'a' AND (level = 1 OR urgent)"
REMEDY = (
    "write (subject = 'a' AND level = 1) OR urgent (from left to right, as it is read here) "
    "or subject = 'a' AND (level = 1 OR urgent) (from right to left)"
)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "a AND b OR c AND d",
            "write ((a AND b) OR c) AND d (from left to right, as it is read here) "
            "or a AND (b OR (c AND d)) (from right to left) or (a AND b) OR (c AND d) (AND first)",
        ),
        (
            "NOT (a OR (b OR c) XOR d)",
            "write (a OR (b OR c)) XOR d (from left to right, as it is read here) "
            "or a OR ((b OR c) XOR d) (from right to left)",
        ),
    ],
)
def test_the_remedy_has_every_reading(text: str, remedy: str) -> None:
    (only,) = mixed_logic(parse(text))
    assert only.remedy == remedy


def test_each_chain_is_named_once() -> None:
    found = mixed_logic(parse("a AND b OR c AND d OR LENGTH(e XOR f AND g) = 1"))
    assert [each.position for each in found] == [8, 37]


def contract(expression: str, right: str = PLAIN) -> Contract:
    return small_contract(
        {"device": "device", "desk": {"kind": "cloud_service", "may_subscribe": {"sql": right}}},
        {"to-desk": ({"any": [{"sql": expression}]}, "desk.inbox")},
    )


@pytest.mark.parametrize(
    "write",
    [
        contract,
        lambda text: contract(PLAIN, right=text),
        lambda text: new_subscription("desk", "mine", {"sql": text}, "2026-01-01T00:00:00Z"),
        lambda text: new_announcement("desk", [{"not": {"sql": text}}]),
        lambda text: checked_filter("mine", {"sql": text}),
    ],
    ids=["route", "may_subscribe", "subscription", "announcement", "client"],
)
def test_it_is_refused_where_a_filter_is_written(write: Callable[[str], object]) -> None:
    write(PLAIN)
    with pytest.raises(Exception, match="AND and OR are mixed without parentheses") as refused:
        write(MIXED)
    assert REMEDY in str(refused.value)


def test_a_contract_that_was_compiled_with_it_is_read_as_before() -> None:
    compiled = json.loads(contract(PLAIN).canonical)
    compiled["routes"]["to-desk"]["filter"]["any"][0]["sql"] = MIXED
    compiled["participants"]["desk"]["may_subscribe"]["sql"] = MIXED
    loaded = load_compiled(canonical_bytes(compiled))
    (route,) = loaded.routes
    mine = new_subscription("desk", "mine", {"sql": PLAIN}, "2026-01-01T00:00:00Z")
    assert granted_filter(loaded, mine) == {"all": [{"sql": MIXED}, {"sql": PLAIN}]}
    event = parse_event(
        b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": "b", "urgent": true}'
    )
    assert route.filter.matches(event.attributes)


def compiled_before() -> Contract:
    """A contract in force that mixes, which was compiled before that was refused."""
    compiled = json.loads(contract(PLAIN).canonical)
    compiled["routes"]["to-desk"]["filter"]["any"][0]["sql"] = MIXED
    # Nor did the rules about names exist once.
    compiled["participants"]["a-name-of-more-than-26-characters"] = compiled["participants"]["desk"]
    return load_compiled(canonical_bytes(compiled))


def test_subscriptions_are_added_to_it() -> None:
    before = compiled_before()
    mine = new_subscription("desk", "mine", {"sql": PLAIN}, "2026-01-01T00:00:00Z")
    subscribed, refused = with_subscriptions(before, [mine])
    assert refused == {}
    assert {each.name for each in subscribed.routes} == {"to-desk", mine.route}
    wanted, unusable = with_interest(subscribed, [new_announcement("desk", [{"sql": PLAIN}])])
    assert unusable == {}
    assert all(each.interest is not None for each in wanted.routes)
    assert without_costly(wanted).routes == wanted.routes


def test_a_subscription_that_was_made_with_it_stays_in_force() -> None:
    old = Subscription("desk", "old", json.dumps({"sql": MIXED}), "2026-01-01T00:00:00Z")
    subscribed, refused = with_subscriptions(contract(PLAIN), [old])
    assert refused == {}
    assert old.route in {each.name for each in subscribed.routes}
    malformed = replace(old, filter=json.dumps({"any": [{"sql": MIXED}, {"sql": "a b"}]}))
    _, refused = with_subscriptions(contract(PLAIN), [malformed])
    assert malformed in refused


def test_devices_take_filters_that_have_it() -> None:
    old = Subscription("desk", "old", json.dumps({"sql": MIXED}), "2026-01-01T00:00:00Z")
    filters = uplink_filters(with_subscriptions(compiled_before(), [old])[0])
    assert len(filters) == 2
    sent = uplink_interest_event(filters, id="i", time="2026-01-01T00:00:00Z", device="*")
    wanted = read_uplink_interest(sent)
    assert wanted.matches({"subject": "b", "level": 1, "urgent": True})
    assert not wanted.matches({"subject": "b", "level": 1, "urgent": False})
