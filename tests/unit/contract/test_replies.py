"""`asks`, the third channel, and the routes that the compiler writes for it."""

from __future__ import annotations

from typing import Any

import pytest

from contract.checks import check
from eventplane.contract import ContractError, Place, compile_contract, load_compiled
from eventplane.contract.subscription import new_subscription, with_subscriptions
from eventplane.conversation.messages import Replier, Reply, Status, write_reply
from eventplane.router import Router
from tests.unit.eventplane.conversation.test_envelopes import NOW, request
from tests.unit.eventplane.conversation.worlds import document, plane


def test_who_asks_has_a_channel_for_the_replies() -> None:
    contract = plane()
    on_device = contract.channel("button.replies")
    assert (on_device.receipts, on_device.expiry_s) == (True, 600)
    assert contract.channel("desk.replies").retention_s == 600
    assert contract.channel("desk.replies").box == "replies"
    with pytest.raises(KeyError):
        contract.channel("lamp.replies")
    assert contract.participants["button"].may_ask("org.example.ask.v1")
    assert not contract.participants["button"].may_ask("org.example.tell.v1")
    assert contract.participants["desk"].may_ask("org.example.tell.v1")


def test_the_compiler_writes_the_ways_of_replies() -> None:
    routes = {each.name: (each.destination, each.place) for each in plane().routes}
    assert {name: each for name, each in routes.items() if name.startswith("replies")} == {
        "replies-to-button": ("button.replies", Place.DEVICE),
        "replies-to-button-down": ("device.inbox", Place.CLOUD),
        "replies-to-desk": ("desk.replies", Place.CLOUD),
        "replies-to-desk-up": ("device.outbox", Place.DEVICE),
    }


def test_a_reply_takes_them() -> None:
    reply = write_reply(request(), Reply(Replier("lamp"), Status.HANDLED), NOW)
    on_device, in_cloud = (Router(plane(), each).route(reply) for each in Place)
    assert [each.destination for each in on_device] == ["button.replies"]
    assert [each.destination for each in in_cloud] == ["device.inbox"]


def test_without_a_downlink_no_reply_goes_down() -> None:
    some = document()
    del some["participants"]["downlink"], some["routes"]["to-downlink"]
    assert "replies-to-button-down" not in {each.name for each in compile_contract(some, "talk").routes}


def test_the_compiled_form_has_them_and_stays_the_same() -> None:
    contract = plane()
    again = load_compiled(contract.canonical)
    assert again == contract
    assert again.routes == contract.routes
    assert contract.canonical.startswith(b'{"event_types":{},"format":5,')
    subscribed, refused = with_subscriptions(
        contract, [new_subscription("porter", "x", {"exact": {"subject": "x"}}, NOW)]
    )
    assert not refused
    assert {*contract.routes} < {*subscribed.routes}


def test_a_contract_in_which_nobody_asks_is_as_before() -> None:
    some = document()
    for each in some["participants"].values():
        each.pop("asks", None)
    contract = compile_contract(some, "talk")
    assert b'"format":3' in contract.canonical
    assert b"replies" not in contract.canonical


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("participants", "button", "asks"), "x", "participants.button.asks"),
        (("participants", "button", "asks"), ["a*b"], r"participants.button.asks\[0\]"),
        (("participants", "device", "asks"), ["a"], "participants.device.asks"),
        (("routes", "mine"), {"filter": {"exact": {"a": "b"}}, "to": "button.replies"}, "routes.mine.to"),
        (("routes", "mine"), {"filter": {"exact": {"a": "b"}}, "to": "lamp.replies"}, "routes.mine.to"),
        (
            ("routes", "replies-to-desk"),
            {"filter": {"exact": {"a": "b"}}, "to": "desk.inbox"},
            "replies-to-desk",
        ),
        (("participants", "button", "replies"), {}, "participants.button.replies"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[str, ...], value: Any, problem: str) -> None:
    some = document()
    at = some
    for each in path[:-1]:
        at = at[each]
    at[path[-1]] = value
    with pytest.raises(ContractError, match=problem):
        compile_contract(some, "talk")


def test_the_checks_leave_the_compilers_routes_alone_and_know_what_is_asked() -> None:
    assert not [each for each in check(plane()) if "replies" in each.path]
    some = document()
    some["event_types"] = {"org.example.other.v1": {"description": "d"}}
    assert "participants.button.asks" in {each.path for each in check(compile_contract(some, "talk"))}
