"""The registry of the plane's own contract, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from eventplane.contract import compile_contract, contract_document
from eventplane.registry.build import build_registry
from eventplane.registry.view import ApiNotFoundError, BadFlagError, NotFoundError, Representation, look_up
from tests.plane import shipped_contract
from tests.unit.contract.small import small

CONTRACT = shipped_contract()
REGISTRY = build_registry(CONTRACT)
BASE = "https://registry.example/v"
MESSAGES = "/messagegroups/care-at-home/messages"
KEYWORD = "org.eventplane.alarm.keyword.v1"
SCHEMA = f"/schemagroups/care-at-home/schemas/{KEYWORD}"


def get(path: str, **query: str) -> Representation:
    return look_up(REGISTRY, path, query, BASE)


def test_the_root_names_its_contract_and_links_to_its_groups() -> None:
    root = get("/").body
    assert root["registryid"] == "care-at-home"
    assert root["labels"] == {"contractversion": CONTRACT.version}
    assert root["endpointsurl"] == f"{BASE}/endpoints"
    assert root["endpointscount"] == len(CONTRACT.channels)


@pytest.mark.source("P4")
def test_a_message_and_a_route_have_their_guarantee() -> None:
    document = contract_document(CONTRACT)
    document["event_types"][KEYWORD]["delivery_guarantee"] = "at_least_once"
    document["routes"]["daily-life-to-family"]["delivery_guarantee"] = "best_effort"
    registry = build_registry(compile_contract(document, "declared"))
    for path, guarantee in (
        (f"{MESSAGES}/{KEYWORD}", "at_least_once"),
        ("/routes/daily-life-to-family", "best_effort"),
    ):
        said = look_up(registry, path, {}, BASE).body["eventplane"]
        assert said["delivery_guarantee"] == guarantee
        assert "delivery_guarantee" not in get(path).body["eventplane"]


def test_a_participant_lists_the_types_that_it_sends_and_asks() -> None:
    said = get("/participants/carers").body["eventplane"]
    assert said["sends"] == ["org.eventplane.home.*"]
    assert said["asks"] == ["org.eventplane.home.message.v1"]
    assert said["endpoints"]["replies"] == "/endpoints/carers.replies"
    assert "asks" not in get("/participants/family-app").body["eventplane"]


@pytest.mark.parametrize(
    ("event_type", "every"), [(KEYWORD, True), ("org.eventplane.activity.motion.v1", False)]
)
def test_a_route_with_more_conditions_than_the_type_does_not_promise_every_event(
    event_type: str, every: bool
) -> None:
    receivers = get(f"{MESSAGES}/{event_type}").body["eventplane"]["receivers"]
    (family,) = (each for each in receivers if each["participant"] == "/participants/family-app")
    assert (family["every_event"], family["routes"]) == (
        every,
        ["/routes/everything-to-cloud", "/routes/daily-life-to-family"],
    )


def test_a_schema_is_the_document_with_its_metadata_in_details() -> None:
    document, details = get(SCHEMA), get(f"{SCHEMA}$details").body
    assert document.content_type == "application/schema+json"
    assert document.body == next(iter(CONTRACT.event_types[KEYWORD].schemas.values()))
    assert document.headers["xRegistry-schemaid"] == KEYWORD
    assert document.headers["xRegistry-self"] == details["self"] == f"{BASE}{SCHEMA}$details"
    assert details["name"] == document.body["$id"]
    assert "schema" not in details
    assert get(f"{SCHEMA}/versions/1").body == document.body


def endpoint(of: str, **box: Any) -> dict[str, Any]:
    """The endpoint of `of`, a channel of a small plane, whose settings are `box`."""
    registry = build_registry(small({f"participants/{of.replace('.', '/')}": box}))
    found: dict[str, Any] = look_up(registry, f"/endpoints/{of}", {}, BASE).body
    return found


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
    settings = get("/endpoints/climate-service.outbox").body["eventplane"]["settings"]
    assert (settings["expiry_s"], settings["when_full"]) == (604_800, "drop_oldest")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/nothing", ApiNotFoundError),
        ("/endpoints/device.outbox/nothing", ApiNotFoundError),
        (f"{MESSAGES}/{KEYWORD}/nothing", ApiNotFoundError),
        (f"{MESSAGES}/{KEYWORD}/versions/1/more", ApiNotFoundError),
        (f"{SCHEMA}/meta$details", ApiNotFoundError),
        ("/export/more", ApiNotFoundError),
        ("/endpoints/nobody.inbox", NotFoundError),
        ("/messagegroups/other/messages", NotFoundError),
        (f"{MESSAGES}/org.example.v1/versions", NotFoundError),
        (f"{SCHEMA}/versions/7", NotFoundError),
    ],
)
def test_an_unknown_path_or_entity_is_refused_by_name(
    path: str, error: type[ApiNotFoundError | NotFoundError]
) -> None:
    with pytest.raises(error) as caught:
        get(path)
    assert (caught.value.status, caught.value.subject) == (404, path)


def test_a_collection_comes_in_pages() -> None:
    first = get("/routes", limit="3")
    total = len(CONTRACT.routes)
    last = list(first.body)[-1]
    assert first.headers["Link"] == f'<{BASE}/routes?limit=3&after={last}>;rel="next";count={total}'
    assert get("/routes", limit="100", after=last).headers == {}


@pytest.mark.parametrize("limit", ["", "0", "101", "1.5", "\u00b2", "9" * 5_000])
def test_a_malformed_limit_is_refused(limit: str) -> None:
    with pytest.raises(BadFlagError, match="ask for 1 to 100"):
        get("/routes", limit=limit)
