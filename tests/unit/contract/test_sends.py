"""Warnings that follow from what participants say they send: loops, and types that nobody sends."""

from typing import Any

import pytest

from contract.checks import check
from eventplane.contract import Contract, compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE

KINDS = {
    "lamp": "device_service",
    "switch": "device_service",
    "desk": "cloud_service",
    "shop": "cloud_service",
}
Sends = dict[str, list[str]]


def plane(sends: Sends, routes: dict[str, Any], types: str = "a b c") -> Contract:
    """Two services on the device and two in the cloud, with what they send; `way: up` goes to the cloud."""
    services = {
        name: {"kind": kind, "description": "d", "sends": sends.get(name)} for name, kind in KINDS.items()
    }
    document = {
        "format": 2,
        "name": "small",
        "participants": {"device": {"kind": "device", "description": "d"}, **services},
        "event_types": {each: {"description": "d"} for each in types.split()},
        "routes": {"up": {"filter": {"exact": {"way": "up"}}, "to": "device.outbox"}, **routes},
    }
    return compile_contract(document, "small")


def to(destination: str, type: str, **attributes: str) -> dict[str, Any]:
    return {"filter": {"exact": {"type": type, **attributes}}, "to": destination}


def loops(contract: Contract) -> dict[str, str]:
    return {each.path: each.message for each in check(contract) if each.message.startswith("a loop")}


def test_two_services_that_answer_each_other_are_a_loop() -> None:
    contract = plane(
        {"lamp": ["a"], "switch": ["b"]},
        {"ask": to("switch.inbox", "a"), "answer": to("lamp.inbox", "b")},
    )
    assert loops(contract) == {
        "participants.lamp.sends": "a loop: lamp sends a -> ask -> switch sends b -> answer -> lamp"
    }


@pytest.mark.parametrize(
    ("sends", "routes"),
    [
        # Nobody answers.
        ({"lamp": ["a"], "switch": []}, {"r": to("switch.inbox", "a"), "s": to("lamp.inbox", "b")}),
        # What is not declared is not known.
        ({"lamp": ["a"]}, {"r": to("switch.inbox", "a"), "s": to("lamp.inbox", "b")}),
        # The answer goes to somebody else.
        ({"lamp": ["a"], "switch": ["b"]}, {"r": to("switch.inbox", "a"), "s": to("desk.inbox", "b")}),
        # What a cloud service sends comes into the home only by the downlink.
        ({"lamp": ["b"], "desk": ["a"]}, {"r": to("lamp.inbox", "a"), "s": to("desk.inbox", "b")}),
        # No event goes up and is one that stays at home.
        (
            {"lamp": ["a"], "desk": ["b"]},
            {
                "a-to-desk": to("desk.inbox", "a", way="home"),
                "b-down": to("device.inbox", "b"),
                "b-to-lamp": to("lamp.inbox", "b"),
            },
        ),
    ],
)
def test_what_cannot_come_round_again_is_none(sends: Sends, routes: dict[str, Any]) -> None:
    assert loops(plane(sends, routes)) == {}


def test_a_service_that_gets_its_own_events_is_a_loop() -> None:
    contract = plane({"lamp": ["a", "b"]}, {"echo": to("lamp.inbox", "b")})
    assert loops(contract) == {"participants.lamp.sends": "a loop: lamp sends b -> echo -> lamp"}


def test_a_loop_through_home_and_cloud_names_every_route() -> None:
    contract = plane(
        {"lamp": ["a"], "desk": ["b"], "shop": ["c"]},
        {
            "a-to-desk": to("desk.inbox", "a"),
            "b-to-shop": to("shop.inbox", "b"),
            "c-down": to("device.inbox", "c"),
            "c-to-lamp": to("lamp.inbox", "c"),
        },
    )
    assert list(loops(contract).values()) == [
        "a loop: desk sends b -> b-to-shop -> shop sends c -> c-down -> c-to-lamp -> lamp sends a -> up "
        "-> a-to-desk -> desk"
    ]


def test_each_participant_is_named_in_one_loop() -> None:
    contract = plane(
        {"desk": ["a", "c"], "shop": ["b"], "lamp": ["b"]},
        {
            "a-to-shop": to("shop.inbox", "a"),
            "b-to-desk": to("desk.inbox", "b"),
            "c-down": to("device.inbox", "c"),
            "c-to-lamp": to("lamp.inbox", "c"),
        },
    )
    found = loops(contract)
    assert sorted(found) == ["participants.desk.sends", "participants.lamp.sends"]
    assert "lamp sends b -> up -> b-to-desk -> desk sends c" in found["participants.lamp.sends"]


def test_a_family_is_taken_for_its_declared_members() -> None:
    routes = {"y": to("switch.inbox", "x.y"), "b": to("lamp.inbox", "b")}
    sends = {"lamp": ["x.*"], "switch": ["b"]}
    assert loops(plane(sends, routes, "x.y b")) != {}
    assert loops(plane(sends, routes, "x b")) == {}


def unsent(contract: Contract) -> list[str]:
    return [each.path for each in check(contract) if "declares that it sends it" in each.message]


READERS = {"to-desk": to("desk.inbox", "a"), "to-shop": to("shop.inbox", "b")}


def test_a_type_that_nobody_sends_is_named() -> None:
    contract = plane({"lamp": ["a"], "switch": []}, READERS, f"a b {DEAD_LETTER_TYPE}")
    assert unsent(contract) == ["event_types.b"]


@pytest.mark.parametrize(
    "sends",
    [
        {"lamp": ["a"]},  # the switch must send, or what is it there for?
        {},
        {"lamp": ["a"], "switch": ["b"]},
    ],
)
def test_while_a_sender_does_not_say_what_it_sends_nothing_is_said(sends: Sends) -> None:
    assert unsent(plane(sends, READERS, "a b")) == []


def test_an_outbox_with_settings_is_one_in_use() -> None:
    desk: dict[str, Any] = {"kind": "cloud_service", "description": "d"}
    document: dict[str, Any] = {
        "format": 2,
        "name": "small",
        "participants": {"device": {"kind": "device", "description": "d", "sends": []}, "desk": desk},
        "event_types": {"a": {"description": "d"}},
        "routes": {"to-desk": to("desk.inbox", "a")},
    }
    assert unsent(compile_contract(document, "small")) == ["event_types.a"]
    desk["outbox"] = {"max_receives": 9}
    assert unsent(compile_contract(document, "small")) == []


def test_a_sent_type_that_is_not_declared_is_named() -> None:
    contract = plane({"lamp": ["a", "x", "y.*"]}, READERS)
    named = [each for each in check(contract) if "is no event type" in each.message]
    assert [(each.path, each.message.split()[0]) for each in named] == [("participants.lamp.sends", "x")]
    undeclared = plane({"lamp": ["x"]}, {"echo": to("lamp.inbox", "x")}, "")
    assert [each.path for each in check(undeclared) if "is no event type" in each.message] == []
    assert loops(undeclared) == {"participants.lamp.sends": "a loop: lamp sends x -> echo -> lamp"}
