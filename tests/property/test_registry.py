"""By its links one finds in the registry what the contract says, who sends and who receives, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contract import load_contract
from contract.explain import outcomes
from eventplane.contract import Contract
from eventplane.envelope import write_event
from eventplane.registry.build import build_registry
from eventplane.registry.document import export
from eventplane.registry.model import GROUPS
from eventplane.registry.view import RegistryError, look_up
from tests.small_contract import small_contract

BASE = "https://registry.example"
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


registry = cache(build_registry)


def get(contract: Contract, url: str) -> Any:
    path, _, query = url.removeprefix(BASE).partition("?")
    asked = dict(each.split("=") for each in query.split("&")) if query else {}
    return look_up(registry(contract), path, asked, BASE)


def collection(contract: Contract, url: str) -> dict[str, Any]:
    """All pages of a collection, two entities at a time."""
    found: dict[str, Any] = {}
    link: str = f"{url}?limit=2"
    while link:
        answer = get(contract, link)
        found |= answer.body
        link = answer.headers.get("Link", "").partition(">")[0].removeprefix("<")
    return found


def walk(contract: Contract) -> dict[str, dict[str, Any]]:
    """Every entity by its xid, found by links alone; each is where it says that it is."""
    waiting = [
        (GROUPS[plural].resources, get(contract, BASE + "/").body[f"{plural}url"]) for plural in GROUPS
    ]
    entities: dict[str, dict[str, Any]] = {}
    for resources, url in waiting:
        for id, entity in collection(contract, url).items():
            assert entity["xid"].endswith(f"/{id}")
            assert get(contract, entity["self"]).body == entity
            entities[entity["xid"]] = entity
            waiting += [(dict[str, Any](), entity[f"{plural}url"]) for plural in resources]
            if "versionsurl" in entity:
                waiting.append(({}, entity["versionsurl"]))
                assert get(contract, entity["metaurl"]).body["defaultversionid"] == entity["versionid"]
    return entities


def reached(contract: Contract, event_type: str) -> set[str]:
    """The inboxes that an event comes to, whoever sends it who may."""
    event = write_event({"id": "1", "source": "/a", "type": event_type, "todevice": "home-1"})
    return {each.channel.address for outcome in outcomes(contract, event) for each in outcome.receipts}


def named(entities: Mapping[str, dict[str, Any]], plural: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for xid, each in entities.items() if xid.rsplit("/", 2)[1] == plural}


@given(contracts())
def test_following_links_finds_exactly_what_the_contract_has(contract: Contract) -> None:
    entities = walk(contract)
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
        versions = [
            each
            for xid, each in entities.items()
            if xid.startswith(f"{messages[name].get('dataschemaxid')}/")
        ]
        assert [each["name"] for each in versions] == list(event_type.schemas)
        documents = [get(contract, each["self"].removesuffix("$details")).body for each in versions]
        assert documents == list(event_type.schemas.values())


def places(value: Any, at: str = "#") -> Iterator[tuple[str, Any]]:
    """Every object of a document, and its JSON pointer."""
    if isinstance(value, dict):
        yield at, value
        for name, each in value.items():
            yield from places(each, f"{at}/{name}")


@given(contracts())
def test_the_document_has_every_entity_at_the_place_that_it_names(contract: Contract) -> None:
    document = json.loads(json.dumps(export(registry(contract))))
    found = {value["xid"]: at for at, value in places(document) if "xid" in value and "self" in value}
    assert found.pop("/") == "#"
    assert {xid: f"#{xid}" for xid in found} == found
    entities = {xid for xid in found if not xid.endswith("/meta")}
    assert entities == set(walk(contract))


OWN = registry(load_contract())
STEPS = st.sampled_from(
    "care-at-home messages schemas org.eventplane.home.message.v1 versions 1 meta $details device.inbox "
    f"model export .. {' '.join(GROUPS)}".split()
)
PATHS = st.lists(STEPS | st.text(max_size=5), max_size=7).map("/".join)
QUERIES = st.dictionaries(st.sampled_from(["limit", "after", "inline"]), st.text(max_size=5))


@given(PATHS, QUERIES)
def test_any_request_is_answered_or_refused_by_name(path: str, query: dict[str, str]) -> None:
    try:
        answer = look_up(OWN, f"/{path}", query, BASE)
    except RegistryError as error:
        assert error.status in (400, 404)
        assert json.loads(json.dumps(error.document(BASE)))["subject"] == f"/{path}"
    else:
        json.dumps(answer.body)
        assert all(value.isprintable() and value.isascii() for value in answer.headers.values())
