"""Who receives events of a type, given who sends them; and the warnings about types that do not come."""

from typing import Any

import pytest

from contract.checks import check
from contract.explain import outcomes
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.envelope import write_event
from eventplane.reach import Reachability
from tests.plane import plane_contract

PRESSED = "com.example.laundry.pressed.v1"
ORG = {"filter": {"prefix": {"type": "org.eventplane."}}, "to": "device.outbox"}
KINDS = {
    "laundry": "device_service",
    "lamp": "device_service",
    "desk": "cloud_service",
    "shop": "cloud_service",
}


def plane(routes: dict[str, Any], sends: dict[str, list[str]], *types: str) -> Contract:
    """Two services on the device, two in the cloud; one that is not in `sends` sends nothing."""
    services = {
        name: {"kind": kind, "description": "d", "sends": sends.get(name, [])} for name, kind in KINDS.items()
    }
    document = {
        "format": 2,
        "name": "small",
        "participants": {"device": {"kind": "device", "description": "d", "sends": []}, **services},
        "event_types": {each: {"description": "d"} for each in types or (PRESSED,)},
        "routes": routes,
    }
    return compile_contract(document, "small")


def to(destination: str, **attributes: str) -> dict[str, Any]:
    return {"filter": {"exact": attributes}, "to": destination}


def warnings(contract: Contract) -> list[tuple[str, str]]:
    """The warnings about types: what, and the remedy."""
    return [(each.message, each.remedy) for each in check(contract) if each.path.startswith("event_types.")]


def reached(contract: Contract, sender: str, event_type: str = PRESSED) -> dict[str, tuple[str, bool]]:
    """The ways from `sender`, by the channel at their end, and whether every event takes them."""
    ways = Reachability(contract).ways(event_type, contract.participants[sender])
    return {each.channel.address: (str(each), each.is_certain) for each in ways}


TO_DESK_AND_SHOP = {
    "pressed-to-desk": to("desk.inbox", type=PRESSED),
    "pressed-to-shop": {"filter": {"suffix": {"type": ".pressed.v1"}}, "to": "shop.inbox"},
}


def test_a_new_type_of_a_service_on_the_device_that_the_uplink_does_not_take_is_named() -> None:
    contract = plane({"everything-to-cloud": ORG, **TO_DESK_AND_SHOP}, {"laundry": [PRESSED]})
    assert warnings(contract) == [
        (
            "laundry sends it on the device, and it never comes to desk.inbox (route pressed-to-desk), "
            "shop.inbox (route pressed-to-shop): no route to device.outbox takes it",
            "let everything-to-cloud take it, or add a route to device.outbox, "
            "or leave it out of pressed-to-desk and pressed-to-shop",
        )
    ]
    assert reached(contract, "laundry") == {}


def test_with_a_route_up_it_comes() -> None:
    up = to("device.outbox", type=PRESSED)
    contract = plane({"everything-to-cloud": ORG, "up": up, **TO_DESK_AND_SHOP}, {"laundry": [PRESSED]})
    assert warnings(contract) == []
    assert reached(contract, "laundry") == {
        "desk.inbox": ("up -> pressed-to-desk", True),
        "shop.inbox": ("up -> pressed-to-shop", True),
    }


def test_a_type_of_a_cloud_service_that_no_route_brings_down_is_named() -> None:
    contract = plane({"up": ORG, "dim": to("lamp.inbox", type="dim")}, {"desk": ["dim"]}, "dim")
    assert warnings(contract) == [
        (
            "desk sends it in the cloud, and it never comes to lamp.inbox (route dim): "
            "no route to device.inbox takes it",
            "add a route to device.inbox, or leave it out of dim",
        )
    ]


def test_filters_that_exclude_each_other_on_the_way_are_named() -> None:
    routes = {
        "up": to("device.outbox", type=PRESSED, floor="low"),
        "pressed-to-desk": to("desk.inbox", type=PRESSED, floor="high"),
    }
    ((message, remedy),) = warnings(plane(routes, {"laundry": [PRESSED]}))
    assert message.endswith("the filters exclude those of up, by which it would come")
    assert remedy == "correct the filters, or leave the type out of them"


def test_a_type_that_goes_up_and_that_nobody_receives_is_named() -> None:
    ((message, remedy),) = warnings(plane({"up": to("device.outbox", type=PRESSED)}, {"laundry": [PRESSED]}))
    assert message == (
        "laundry sends it on the device, and nobody receives it: up takes it to the other side, "
        "where no route does"
    )
    assert "add a route to an inbox" in remedy


def test_a_filter_on_the_sender_is_understood() -> None:
    routes = {
        "up": ORG | {"filter": {"exact": {"type": PRESSED}}},
        "of-lamps": to("desk.inbox", type=PRESSED, senderservice="lamp"),
        "of-laundries": to("shop.inbox", type=PRESSED, senderservice="laundry"),
    }
    contract = plane(routes, {"laundry": [PRESSED]})
    assert reached(contract, "laundry") == {"shop.inbox": ("up -> of-laundries", True)}
    ((message, _),) = warnings(contract)
    assert "it never comes to desk.inbox (route of-lamps)" in message


@pytest.mark.parametrize(("condition", "is_certain"), [({}, True), ({"floor": "1"}, False)])
def test_a_way_is_certain_if_every_event_of_the_type_passes(
    condition: dict[str, str], is_certain: bool
) -> None:
    routes = {"up": to("device.outbox", type=PRESSED, **condition), **TO_DESK_AND_SHOP}
    contract = plane(routes, {"laundry": [PRESSED]})
    assert reached(contract, "laundry")["desk.inbox"] == ("up -> pressed-to-desk", is_certain)


def test_what_comes_from_a_device_does_not_go_down_and_what_came_down_does_not_go_up() -> None:
    routes = {
        "up": to("device.outbox", type=PRESSED),
        "down": to("device.inbox", type=PRESSED),
        "to-lamp": to("lamp.inbox", type=PRESSED),
        "to-desk": to("desk.inbox", type=PRESSED),
    }
    contract = plane(routes, {"laundry": [PRESSED], "shop": [PRESSED]})
    assert reached(contract, "laundry") == {
        "lamp.inbox": ("to-lamp", True),
        "desk.inbox": ("up -> to-desk", True),
    }
    assert reached(contract, "shop") == {
        "device.inbox": ("down", True),
        "lamp.inbox": ("down -> to-lamp", True),
        "desk.inbox": ("to-desk", True),
    }


def test_a_participant_that_asks_a_type_sends_it() -> None:
    contract = plane({"up": ORG, "dim": to("desk.inbox", type="dim")}, {}, "dim")
    document = {"kind": "device_service", "description": "d", "sends": [], "asks": ["dim"]}
    assert warnings(contract) == [("no participant declares that it sends it", warnings(contract)[0][1])]
    participants = {
        "device": {"kind": "device", "description": "d", "sends": []},
        "lamp": document,
        "desk": {"kind": "cloud_service", "description": "d", "sends": []},
    }
    asking = compile_contract(
        {
            "format": 5,
            "name": "asking",
            "participants": participants,
            "event_types": {"dim": {"description": "d"}},
            "routes": {"up": ORG, "dim": to("desk.inbox", type="dim")},
        },
        "asking",
    )
    (senders,) = [Reachability(asking).rights.declared_senders("dim")]
    assert [each.name for each in senders] == ["lamp"]
    ((message, _),) = warnings(asking)
    assert "never comes to desk.inbox" in message


def test_the_routes_of_each_place_that_miss_a_type_are_named_for_themselves() -> None:
    routes = {
        "of-lamps": to("lamp.inbox", type=PRESSED, senderservice="lamp"),
        "pressed-to-desk": to("desk.inbox", type=PRESSED),
        "up": ORG,
    }
    on_device, in_cloud = warnings(plane(routes, {"laundry": [PRESSED]}))
    assert on_device[0].endswith("lamp.inbox (route of-lamps): no sender passes their filters")
    assert in_cloud[0].endswith("desk.inbox (route pressed-to-desk): no route to device.outbox takes it")


def test_a_forwarder_s_own_reports_go_up_without_a_route() -> None:
    heartbeat = "org.eventplane.device.heartbeat.v1"
    routes = {"up": to("device.outbox", type=PRESSED), "to-desk": to("desk.inbox", type=heartbeat)}
    contract = plane(routes, {"laundry": [PRESSED]}, heartbeat)
    assert reached(contract, "device", heartbeat) == {"desk.inbox": ("to-desk", True)}


def test_the_shipped_contract_with_a_newcomer_s_type_has_one_warning_and_explain_agrees() -> None:
    document = contract_document(plane_contract())
    assert check(plane_contract()) == ()
    document["participants"]["laundry-service"] = {
        "kind": "device_service",
        "description": "Reports a finished wash.",
        "sends": [PRESSED],
    }
    document["event_types"][PRESSED] = {"description": "d"}
    document["routes"] |= {
        "pressed-to-family": to("family-app.inbox", type=PRESSED),
        "pressed-to-carers": to("carers.inbox", type=PRESSED),
    }
    contract = compile_contract(document, "newcomer")
    (warning,) = check(contract)
    assert warning.path == f"event_types.{PRESSED}"
    assert "no route to device.outbox takes it" in warning.message
    assert warning.remedy.startswith("let everything-to-cloud take it, or add a route")
    (outcome,) = outcomes(contract, write_event({"id": "1", "source": "/a", "type": PRESSED}))
    assert (outcome.sender, outcome.receipts) == ("laundry-service", ())
    assert "no route on the device takes it to device.outbox" in outcome.problem
    assert outcome.remedy == "let everything-to-cloud take it, or add a route to device.outbox"


def test_the_cloud_s_routers_see_a_device_that_those_on_the_device_do_not() -> None:
    up = {"filter": {"sql": "NOT EXISTS senderdevice"}, "to": "device.outbox"}
    contract = plane(
        {"up": up, "one": to("desk.inbox", type=PRESSED, senderdevice="home-1")}, {"laundry": [PRESSED]}
    )
    assert reached(contract, "laundry") == {"desk.inbox": ("up -> one", False)}
    assert warnings(contract) == []


def test_a_forwarder_s_report_goes_up_where_a_route_of_the_device_takes_only_some() -> None:
    report = "org.eventplane.device.started.v1"
    routes = {
        "loud-to-lamp": to("lamp.inbox", type=report, loud="yes"),
        "all-to-desk": to("desk.inbox", type=report),
    }
    contract = plane(routes, {}, report)
    assert reached(contract, "device", report) == {
        "lamp.inbox": ("loud-to-lamp", False),
        "desk.inbox": ("all-to-desk", False),
    }
    for loud, reader in (("yes", "lamp.inbox"), ("no", "desk.inbox")):
        event = write_event({"id": "1", "source": "/a", "type": report, "loud": loud})
        (found,) = outcomes(contract, event)
        assert [each.channel.address for each in found.receipts] == [reader]
