"""Warnings: what is allowed and was hardly meant."""

from typing import Any

import pytest

from contract.checks import check
from eventplane.cesql import parse
from eventplane.contract import Contract, Problem, compile_contract
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.possibilities import possible

RING = "org.example.ring.v1"
UP = {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"}


def plane(routes: dict[str, Any], **changes: Any) -> Contract:
    document = {
        "format": 1,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "a device"},
            "bell": {"kind": "device_service", "description": "rings"},
            "desk": {"kind": "cloud_service", "description": "listens"},
        },
        "event_types": {RING: {"description": "it rang"}},
        "routes": routes,
    }
    return compile_contract(document | changes, "small")


def to_desk(filter: dict[str, Any]) -> dict[str, Any]:
    return {"up": UP, "to-desk": {"filter": filter, "to": "desk.inbox"}}


def found(contract: Contract) -> dict[str, str]:
    """Warnings by path, without those about inboxes that nobody writes."""
    return {each.path: each.message for each in check(contract) if not each.path.endswith(".inbox")}


def test_an_inbox_without_a_route_is_named_where_somebody_counts_on_it() -> None:
    up = {"up": {"filter": {"exact": {"type": RING}}, "to": "device.outbox"}}
    assert [each.path for each in check(plane(up))] == ["participants.desk.inbox"]
    sender = {"kind": "cloud_service", "description": "tells", "sends": [RING]}
    device = {"kind": "device", "description": "a device"}
    assert found(plane(up, format=2, participants={"device": device, "desk": sender})) == {
        f"event_types.{RING}": "desk sends it in the cloud, and nobody receives it: no route there takes it"
    }
    bell = {"kind": "device_service", "description": "rings", "inbox": {"receipts": True}}
    device = {"kind": "device", "description": "a device", "inbox": {"priority": "normal"}}
    contract = plane(up, participants={"device": device, "bell": bell})
    assert [each.path for each in check(contract)] == ["participants.bell.inbox"]


@pytest.mark.source("P4")
@pytest.mark.parametrize(("priority", "is_doubtful"), [("urgent", True), ("normal", False)])
def test_an_urgent_type_at_best_effort_is_named(priority: str, is_doubtful: bool) -> None:
    ring = {"description": "it rang", "priority": priority, "delivery_guarantee": "best_effort"}
    contract = plane(to_desk({"exact": {"type": RING}}), format=7, event_types={RING: ring})
    assert (f"event_types.{RING}.delivery_guarantee" in found(contract)) is is_doubtful


def test_a_plane_without_an_uplink_is_named() -> None:
    contract = plane({"to-desk": {"filter": {"exact": {"type": RING}}, "to": "desk.inbox"}})
    assert "no route leads to the uplink" in found(contract)["participants.device.outbox"]


@pytest.mark.parametrize(
    ("filter", "path", "message"),
    [
        ({"exact": {"type": "org.example.rong.v1"}}, "exact", "matches no event type"),
        ({"any": [{"exact": {"type": RING}}, {"suffix": {"type": ".v2"}}]}, "any[1].suffix", "no event type"),
        ({"all": [{"exact": {"type": "a"}}, {"exact": {"subject": "b"}}]}, "all", "matches no event type"),
        ({"sql": "type = 'a'"}, "sql", "matches no event type"),
        ({"sql": "a = 1 AND NOT (type LIKE 'org.%')"}, "sql", "matches no event type"),
        ({"not": {"prefix": {"type": "org."}}}, "not", "matches no event type"),
        ({"any": [{"exact": {"type": RING}}, {"sql": "NOT a = b"}]}, "any[1].sql", "NOT binds"),
        ({"sql": "1 = 2"}, "sql", "no event passes"),
        ({"sql": "EXISTS id"}, "sql", "every event passes"),
        ({"not": {"sql": "EXISTS id"}}, "", "no event passes"),
        ({"not": {"sql": "1 = 2"}}, "", "every event passes"),
    ],
)
def test_a_doubtful_filter_is_named_by_its_place(filter: dict[str, Any], path: str, message: str) -> None:
    place = ".".join(part for part in ("routes.to-desk.filter", path) if part)
    assert message in found(plane(to_desk(filter)))[place]


@pytest.mark.parametrize(
    "filter",
    [
        {"exact": {"subject": "/a"}},
        {"sql": "type LIKE '%.ring.%' AND EXISTS subject"},
        {"any": [{"suffix": {"type": ".v1"}}, {"exact": {"subject": "/a"}}]},
        {"all": [{"prefix": {"type": "org."}}, {"not": {"exact": {"subject": "/a"}}}]},
    ],
)
def test_a_good_filter_is_left_alone(filter: dict[str, Any]) -> None:
    assert found(plane(to_desk(filter))) == {}


def test_without_declared_types_no_filter_can_miss_them() -> None:
    assert found(plane(to_desk({"exact": {"type": "x"}}), event_types={})) == {}


def test_a_type_that_no_route_takes_is_named() -> None:
    contract = plane(
        {
            "up": {"filter": {"exact": {"type": RING}}, "to": "device.outbox"},
            "to-desk": {"filter": {"exact": {"type": RING}}, "to": "desk.inbox"},
        },
        event_types={RING: {"description": "it rang"}, "org.example.lost": {"description": "?"}},
    )
    assert found(contract) == {"event_types.org.example.lost": "no route takes it"}


def test_two_routes_that_say_the_same_are_named() -> None:
    again = {"filter": {"exact": {"type": RING}}, "to": "desk.inbox"}
    assert (
        "same as again"
        in found(plane(to_desk({"exact": {"type": RING}}) | {"again": again}))["routes.to-desk"]
    )


def test_an_ordered_inbox_behind_the_uplink_is_named() -> None:
    contract = plane(
        to_desk({"exact": {"type": RING}}),
        participants={
            "device": {"kind": "device", "description": "a device"},
            "desk": {
                "kind": "cloud_service",
                "description": "listens",
                "inbox": {"transport": "sqs_fifo", "ordering": "source"},
            },
        },
    )
    assert "standard queue" in found(contract)["participants.desk.inbox.ordering"]


@pytest.mark.parametrize(
    ("up", "down", "loops"),
    [
        ({"prefix": {"type": "org."}}, {"exact": {"type": RING}}, True),
        ({"prefix": {"type": "org."}}, {"sql": "EXISTS desired"}, True),
        ({"not": {"exact": {"origin": "cloud"}}}, {"exact": {"origin": "cloud", "type": RING}}, False),
        ({"exact": {"way": "up"}}, {"exact": {"way": "down"}}, False),
        ({"exact": {"way": "up", "subject": "/a"}}, {"exact": {"way": "up"}}, True),
        ({"sql": "NOT (way = 'down')"}, {"exact": {"way": "down"}}, False),
    ],
)
def test_an_event_that_goes_up_and_comes_down_again_is_a_loop(
    up: dict[str, Any], down: dict[str, Any], loops: bool
) -> None:
    contract = plane(
        {"up": {"filter": up, "to": "device.outbox"}, "down": {"filter": down, "to": "device.inbox"}}
    )
    assert ("routes.down" in found(contract)) is loops


@pytest.mark.parametrize(
    ("filter", "answers"),
    [
        ({"exact": {"a": "1"}}, {True, False}),
        ({"exact": {"type": "t"}}, {True}),
        ({"prefix": {"type": "x"}}, {False}),
        ({"all": [{"exact": {"a": "1"}}, {"exact": {"type": "x"}}]}, {False}),
        ({"any": [{"exact": {"a": "1"}}, {"exact": {"type": "t"}}]}, {True}),
        ({"any": [{"exact": {"a": "1"}}, {"exact": {"b": "1"}}]}, {True, False}),
        ({"not": {"any": [{"exact": {"a": "1"}}, {"exact": {"type": "t"}}]}}, {False}),
        ({"sql": "type = 't'"}, {True}),
        ({"sql": "type = 't' AND a"}, {True, False}),
    ],
)
def test_possible_answers(filter: dict[str, Any], answers: set[bool]) -> None:
    problems: list[Problem] = []
    assert possible(read_filter(filter, "filter", problems), {"type": "t"}) == answers
    assert problems == []


def test_an_expression_shows_the_place() -> None:
    (warning,) = (each for each in check(plane(to_desk({"sql": "a = 1 AND NOT b = 2"}))) if each.excerpt)
    assert warning.excerpt.splitlines()[0] == str(parse("a = 1 AND NOT b = 2"))
    assert warning.excerpt.splitlines()[1].strip() == "^"


ORDERED = {"kind": "cloud_service", "description": "listens", "inbox": {"ordering": "source"}}
DEVICE = {"kind": "device", "description": "a device", "sends": []}


@pytest.mark.source("P17")
@pytest.mark.parametrize(
    ("inbox", "sender", "expected"),
    [
        ({}, {"kind": "device_service"}, None),
        ({"transport": "sqs_fifo"}, {"kind": "device_service"}, "a device's events"),
        ({}, {"kind": "device_service", "outbox": {"delivery_guarantee": "best_effort"}}, "do not number"),
        ({}, {"kind": "cloud_service"}, None),
        ({"transport": "sqs_fifo"}, {"kind": "cloud_service"}, "its outbox is a standard queue"),
        (
            {"transport": "sqs_fifo"},
            {"kind": "cloud_service", "outbox": {"transport": "sqs_fifo", "ordering": "source"}},
            None,
        ),
    ],
)
def test_events_that_nothing_orders_are_named(
    inbox: dict[str, str], sender: dict[str, Any], expected: str | None
) -> None:
    bell = {"description": "rings", "sends": [RING], **sender}
    desk = {**ORDERED, "sends": [], "inbox": {"ordering": "source", **inbox}}
    contract = plane(
        to_desk({"exact": {"type": RING}}), participants={"device": DEVICE, "bell": bell, "desk": desk}
    )
    problem = found(contract).get("participants.desk.inbox.ordering")
    assert problem is None if expected is None else problem is not None and expected in problem


@pytest.mark.source("P17")
@pytest.mark.parametrize(
    ("priority", "ordering"), [("urgent", "source"), ("normal", "source"), ("urgent", "none")]
)
def test_an_alarm_that_waits_for_a_lost_one_is_named(priority: str, ordering: str) -> None:
    ring = {"description": "it rang", "priority": priority}
    desk = {**ORDERED, "inbox": {"ordering": ordering}}
    bell = {"kind": "device_service", "description": "rings"}
    contract = plane(
        to_desk({"exact": {"type": RING}}),
        event_types={RING: ring},
        participants={"device": DEVICE, "bell": bell, "desk": desk},
    )
    is_named = "gap_timeout_s" in found(contract).get("routes.to-desk", "")
    assert is_named is ((priority, ordering) == ("urgent", "source"))


@pytest.mark.source("P17")
def test_dead_letters_come_into_an_ordered_inbox_in_any_order() -> None:
    contract = plane(
        to_desk({"exact": {"type": "org.eventplane.deadletter.v1"}}),
        participants={"device": DEVICE, "desk": {**ORDERED, "sends": []}},
    )
    assert "dead letters" in found(contract)["participants.desk.inbox.ordering"]
