"""The Discovery API: the registry's document, and the function as API Gateway calls it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.explain import outcomes
from eventplane.contract import Contract, subscription_table
from eventplane.envelope import write_event
from lambdas.common.http_api import Request
from lambdas.router import wiring
from parts.discovery_api import handler
from parts.discovery_api.build import build_registry
from parts.discovery_api.handler import PATHS, DiscoveryService, InForceRegistry
from tests.dynamodb import create_table
from tests.http_api import HOST, Call, send
from tests.plane import shipped_contract
from tests.small_contract import small_contract, with_changes
from tests.unit.contract.small import small
from tests.unit.lambdas.support import SUBSCRIPTIONS, TABLE, TABLES, Cloud, deploy, with_route

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


@pytest.mark.long
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


CONTRACT = shipped_contract()
REGISTRY = build_registry(CONTRACT)
MESSAGES = "/messagegroups/care-at-home/messages"
KEYWORD = "org.eventplane.alarm.keyword.v1"
SCHEMA = f"/schemagroups/care-at-home/schemas/{KEYWORD}"


def get(path: str, registry: dict[str, Any] = REGISTRY) -> dict[str, Any]:
    """The entity at `path` of the document; of a resource its only version."""
    found = registry
    for step in path.split("/")[1:]:
        found = found[step]
    return found["versions"]["1"] if "versions" in found else found


def test_the_document_names_its_contract() -> None:
    assert (REGISTRY["registryid"], REGISTRY["name"]) == ("care-at-home", "care-at-home")
    assert REGISTRY["labels"] == {"contractversion": CONTRACT.version}
    assert REGISTRY["endpoints"].keys() == {each.address for each in CONTRACT.channels}


@pytest.mark.source("P4")
def test_a_message_and_a_route_have_their_guarantee() -> None:
    route = "routes/daily-life-to-family"
    guarantees = {f"event_types/{KEYWORD}": "at_least_once", route: "best_effort"}
    changes = {f"{path}/delivery_guarantee": each for path, each in guarantees.items()}
    registry = build_registry(with_changes(CONTRACT, changes))
    for path, guarantee in ((f"{MESSAGES}/{KEYWORD}", "at_least_once"), (f"/{route}", "best_effort")):
        said = get(path, registry)["eventplane"]
        assert said["delivery_guarantee"] == guarantee
        assert "delivery_guarantee" not in get(path)["eventplane"]


def test_a_participant_lists_the_types_that_it_sends_and_asks() -> None:
    said = get("/participants/carers")["eventplane"]
    assert said["sends"] == ["org.eventplane.home.*"]
    assert said["asks"] == ["org.eventplane.home.message.v1"]
    assert said["endpoints"]["replies"] == "/endpoints/carers.replies"
    assert "asks" not in get("/participants/family-app")["eventplane"]


@pytest.mark.parametrize(
    ("event_type", "every"), [(KEYWORD, True), ("org.eventplane.activity.motion.v1", False)]
)
def test_more_conditions_promise_less(event_type: str, every: bool) -> None:
    receivers = get(f"{MESSAGES}/{event_type}")["eventplane"]["receivers"]
    (family,) = (each for each in receivers if each["participant"] == "/participants/family-app")
    assert (family["every_event"], family["routes"]) == (
        every,
        ["/routes/everything-to-cloud", "/routes/daily-life-to-family"],
    )


def test_a_schema_is_within_its_metadata() -> None:
    version = get(SCHEMA)
    assert version["schema"] == next(iter(CONTRACT.event_types[KEYWORD].schemas.values()))
    assert (version["schemaid"], version["versionid"], version["isdefault"]) == (KEYWORD, "1", True)
    assert version["name"] == version["schema"]["$id"]
    assert version["self"] == f"#{SCHEMA}/versions/1"


def endpoint(of: str, **box: Any) -> dict[str, Any]:
    """The endpoint of `of`, a channel of a small plane, whose settings are `box`."""
    registry = build_registry(small({f"participants/{of.replace('.', '/')}": box}))
    return get(f"/endpoints/{of}", registry)


@pytest.mark.parametrize(
    ("of", "box", "usage", "protocol", "options"),
    [
        ("bell.outbox", {}, "producer", "MQTT/3.1.1", {"topic": "eventplane/bell/outbox", "qos": 1}),
        (
            "bell.inbox",
            {"delivery_guarantee": "best_effort"},
            "consumer",
            "MQTT/3.1.1",
            {"topic": "eventplane/bell/inbox", "qos": 0},
        ),
        (
            "device.outbox",
            {},
            "producer",
            "MQTT/3.1.1",
            {"topic": "$aws/rules/{rule}/devices/{thing}/outbox", "qos": 1},
        ),
        ("device.inbox", {}, "consumer", "MQTT/3.1.1", {"topic": "devices/{thing}/inbox", "qos": 1}),
        ("desk.inbox", {"transport": "sqs_fifo"}, "consumer", "SQS", {"fifo": True}),
        ("desk.outbox", {}, "producer", "SQS", {"fifo": False}),
        ("desk.inbox", {"webhook": {}}, "producer", "HTTP", {"method": "POST"}),
    ],
)
def test_a_channel_is_an_endpoint_of_its_transport(
    of: str, box: dict[str, Any], usage: str, protocol: str, options: dict[str, Any]
) -> None:
    found = endpoint(of, **box)
    assert (found["usage"], found["protocol"]) == ([usage], protocol)
    assert found["protocoloptions"] == {"deployed": False, **options}


def test_an_endpoint_has_the_settings_of_its_channel() -> None:
    settings = get("/endpoints/climate-service.outbox")["eventplane"]["settings"]
    assert (settings["expiry_s"], settings["when_full"]) == (604_800, "drop_oldest")


REFRESH_S = 30


@pytest.fixture
def call(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Sends one request to the function."""
    deploy(monkeypatch, tmp_path, cloud.contract, TABLES)
    monkeypatch.setattr(wiring, "system_clock", cloud.clock)
    return lambda path, method="GET", **more: send(handler.handle, method, path, **more)


@pytest.mark.parametrize("path", PATHS)
def test_the_registry_is_one_document(call: Call, cloud: Cloud, path: str) -> None:
    answer = call(path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert answer.body["labels"] == {"contractversion": cloud.contract.version}
    assert answer.body["participants"].keys() == cloud.contract.participants.keys()
    head = call(path, method="HEAD")
    assert (head.status, head.text, head.headers) == (200, "", answer.headers)


def test_a_known_document_is_not_sent_again(call: Call) -> None:
    first = call("/")
    tag = first.headers["ETag"]
    for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = call("/", if_none_match=condition)
        assert (again.status, again.text, again.headers["ETag"]) == (304, "", tag)
    assert call("/", if_none_match='"other"').text == first.text


def test_a_published_contract_is_served_with_another_tag(call: Call, cloud: Cloud) -> None:
    tag = call("/").headers["ETag"]
    cloud.publish(with_route(cloud.contract, "more", "carers.inbox"))
    cloud.subscribe("messages", "org.eventplane.home.message.v1", "care-analytics")
    assert "more" not in call("/").body["routes"]
    cloud.clock.advance(REFRESH_S)
    answer = call("/", if_none_match=tag)
    assert answer.status == 200
    assert answer.body["routes"]["more"]["eventplane"]["to"] == "/endpoints/carers.inbox"
    # A subscription is a route, and its participant a receiver.
    messages = answer.body["messagegroups"]["care-at-home"]["messages"]
    (message,) = messages["org.eventplane.home.message.v1"]["versions"].values()
    receivers = message["eventplane"]["receivers"]
    ways = {each["participant"]: each["routes"] for each in receivers}
    assert ways["/participants/care-analytics"] == ["/routes/care-analytics-subscribes-messages"]
    # While a table does not answer what it said last stays.
    cloud.dynamodb.delete_table(TableName=TABLE)
    cloud.dynamodb.delete_table(TableName=SUBSCRIPTIONS)
    cloud.clock.advance(REFRESH_S)
    assert call("/").text == answer.text


def test_a_process_that_could_not_read_the_tables_answers_503(call: Call, cloud: Cloud) -> None:
    cloud.dynamodb.delete_table(TableName=SUBSCRIPTIONS)
    answer = call("/")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert answer.body["type"].endswith("/spec.md#server_error")
    create_table(cloud.dynamodb, SUBSCRIPTIONS, subscription_table.PARTITION, subscription_table.SORT)
    cloud.clock.advance(2)
    assert call("/").status == 200


@pytest.mark.parametrize(
    ("path", "changes", "status", "type"),
    [
        ("/nothing", {}, 404, "http.md#api_not_found"),
        ("/routes", {}, 404, "http.md#api_not_found"),
        ("/", {"method": "POST"}, 405, "spec.md#method_not_allowed"),
        ("/%ff\u00e9/../\u0000", {}, 404, "http.md#api_not_found"),
    ],
)
def test_a_refusal_is_typed(call: Call, path: str, changes: dict[str, Any], status: int, type: str) -> None:
    answer = call(path, **changes)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    problem = answer.body
    assert problem["type"].endswith(f"/{type}")
    assert problem["status"] == status
    assert problem["instance"].startswith(f"https://{HOST}/")
    assert ("Allow" in answer.headers) is (status == 405)


def test_too_large_answers_are_refused(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "MAX_BODY_BYTES", 10_000)
    discovery = DiscoveryService(lambda: InForceRegistry(contract))
    answer = discovery.answer(Request("GET", "https://a", "/export", {}, {}))
    assert (answer.status, "contract's file" in answer.body) == (406, True)
