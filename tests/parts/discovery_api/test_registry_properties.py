"""The registry has what the contract says, who sends and who receives, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contract.explain import outcomes
from eventplane.contract import Contract
from eventplane.envelope import write_event
from parts.discovery_api.build import build_registry
from tests.small_contract import small_contract

DEVICE_SERVICES = ("bell", "chime")
CLOUD_SERVICES = ("desk", "porter")
SERVICES = (*DEVICE_SERVICES, *CLOUD_SERVICES)
TYPES = ("org.example.ring.v1", "org.example.battery.v1", "an id that is none/at all")
DESTINATIONS = ("home.outbox", "home.inbox", *(f"{each}.inbox" for each in SERVICES))
SENT = st.none() | st.lists(st.sampled_from([*TYPES, "org.example.*"]), unique=True, max_size=2)
FILTERS = st.one_of(
    st.builds(lambda each: {"exact": {"type": each}}, st.sampled_from(TYPES)),
    st.builds(lambda each: {"prefix": {"type": each}}, st.sampled_from(["org.example.", "an ", "z"])),
    st.builds(
        lambda each: {"not": {"suffix": {"type": each}}}, st.sampled_from(["ring.v1", "battery.v1", "all"])
    ),
)
ROUTES = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(FILTERS, st.sampled_from(DESTINATIONS)), min_size=1, max_size=8
)


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    """Small planes whose filters look at the type alone, so that a matched type is a delivered event."""
    services = {
        each: {
            "kind": "device_service" if each in DEVICE_SERVICES else "cloud_service",
            "sends": draw(SENT),
        }
        for each in SERVICES
    }
    schemas = {
        each: [
            {"$id": f"https://schemas.example/{TYPES.index(each)}/{number}", "title": "A"}
            for number in range(draw(st.integers(0, 3)))
        ]
        for each in TYPES
    }
    return small_contract(
        {"home": {"kind": "device", "sends": draw(SENT)}, **services},
        draw(ROUTES),
        {each: {"schemas": schemas[each]} for each in TYPES},
    )


def entities_of(contract: Contract) -> dict[str, dict[str, Any]]:
    """Every entity by its xid; each is at the place that it names."""
    document = json.loads(json.dumps(build_registry(contract)))
    found = {value["xid"]: (at, value) for at, value in places(document) if "xid" in value}
    assert found.pop("/")[0] == "#"
    for xid, (at, value) in found.items():
        assert at == value["self"] == f"#{xid}"
    return {xid: value for xid, (_, value) in found.items()}


def places(value: Any, at: str = "#") -> Iterator[tuple[str, Any]]:
    """Every object of a document, and its JSON pointer."""
    if isinstance(value, dict):
        yield at, value
        for name, each in value.items():
            yield from places(each, f"{at}/{name}")


def reached(contract: Contract, event_type: str) -> set[str]:
    """The inboxes that an event comes to, whoever sends it who may."""
    event = write_event({"id": "1", "source": "/a", "type": event_type, "todevice": "home-1"})
    return {each.channel.address for outcome in outcomes(contract, event) for each in outcome.receipts}


def named(entities: Mapping[str, dict[str, Any]], plural: str) -> dict[str, dict[str, Any]]:
    """The groups of `plural`, or the versions of its resources, by the contract's names."""
    return {
        each["name"]: each
        for xid, each in entities.items()
        if plural in (xid.split("/")[-2], *xid.split("/")[-4:-3]) and "name" in each
    }


@given(contracts())
def test_the_document_has_exactly_what_the_contract_has(contract: Contract) -> None:
    entities = entities_of(contract)
    assert named(entities, "participants").keys() == contract.participants.keys()
    assert named(entities, "routes").keys() == {each.name for each in contract.routes}
    assert named(entities, "endpoints").keys() == {
        f"{name}.{box}" for name in contract.participants for box in ("inbox", "outbox")
    }
    messages = named(entities, "messages")
    assert messages.keys() == contract.event_types.keys()
    for name, event_type in contract.event_types.items():
        said = messages[name]["eventplane"]
        senders = {entities[each]["name"] for each in said["senders"]}
        assert senders == {each.name for each in contract.participants.values() if each.may_send(name)}
        receivers = {entities[each["endpoint"]]["name"] for each in said["receivers"]}
        assert receivers == reached(contract, name)
        assert all(route in entities for each in said["receivers"] for route in each["routes"])
        schema = messages[name].get("dataschemaxid")
        versions = [each for xid, each in entities.items() if xid.startswith(f"{schema}/versions/")]
        assert [each["name"] for each in versions] == list(event_type.schemas)
        assert [each["schema"] for each in versions] == list(event_type.schemas.values())
        numbers = [each["versionid"] for each in versions]
        assert [each["ancestor"] for each in versions] == [*numbers[:1], *numbers[:-1]]
        assert [each["isdefault"] for each in versions] == [each == numbers[-1] for each in numbers]
        if versions:
            assert entities[f"{schema}/meta"]["defaultversionid"] == numbers[-1]
