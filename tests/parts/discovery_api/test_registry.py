"""The registry of the plane's own contract."""

from __future__ import annotations

from typing import Any

import pytest

from parts.discovery_api.build import build_registry
from tests.plane import shipped_contract
from tests.small_contract import with_changes
from tests.unit.contract.small import small

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
    only: dict[str, Any] = found["versions"]["1"] if "versions" in found else found
    return only


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
def test_a_route_with_more_conditions_than_the_type_does_not_promise_every_event(
    event_type: str, every: bool
) -> None:
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
