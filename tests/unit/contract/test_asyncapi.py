"""The contract as AsyncAPI: valid by the specification's own schema, and whole."""

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from contract import load_contract
from contract.asyncapi import asyncapi
from eventplane.__main__ import main
from eventplane.contract import Contract
from tests.plane import shipped_contract
from tests.unit.contract.small import RING, small

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "tests" / "golden" / "asyncapi-3.0.0.json.gz"
"""schemas/3.0.0.json of the npm package @asyncapi/specs 6.11.1 (Apache-2.0), compressed."""

ODD = {
    "participants/desk/inbox": {"webhook": {}},
    "participants/desk/asks": [RING],
    "participants/desk/outbox/transport": "sqs_fifo",
    "participants/shop": {"kind": "cloud_service", "description": "d", "inbox": {"transport": "nats"}},
    "participants/bell/sends": [RING, "org.example.door.*", "com.elsewhere", "a/b ~#%ä", "a/b ~#%ö"],
    f"event_types/{RING}/schemas": [{"$id": "a:1", "examples": [{"a": 1}]}, {"$id": "a:2"}],
    "routes/to-shop": {"filter": {"exact": {"type": RING}}, "to": "shop.inbox"},
    "routes/down": {"filter": {"exact": {"type": RING}}, "to": "device.inbox"},
    "routes/to-bell": {"filter": {"exact": {"type": RING}}, "to": "bell.inbox"},
}
CONTRACTS = {
    "shipped": shipped_contract,
    "doorbell": lambda: load_contract(ROOT / "docs" / "examples" / "doorbell.yaml"),
    "odd": lambda: small(ODD),
    "smart home": lambda: load_contract(ROOT / "docs" / "examples" / "smart-home" / "event_plane.yaml"),
    "smallest": small,
}


@cache
def exported(name: str) -> tuple[Contract, dict[str, Any]]:
    contract = CONTRACTS[name]()
    return contract, asyncapi(contract)


def references(document: Any) -> Iterator[str]:
    """Yield the references of the document, but for those of payload schemas, which are theirs."""
    if isinstance(document, dict):
        yield from (each for name, each in document.items() if name == "$ref")
        inner = {name: each for name, each in document.items() if name != "payload"}
        document = list(inner.values())
    if isinstance(document, list):
        for each in document:
            yield from references(each)


def found(document: Any, reference: str) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        document = document[name]
    return document


@pytest.mark.parametrize("name", CONTRACTS)
def test_it_is_valid_by_the_schema_of_the_specification(name: str) -> None:
    schema = json.loads(gzip.decompress(SCHEMA.read_bytes()))
    errors = jsonschema.Draft7Validator(schema).iter_errors(exported(name)[1])
    assert [(each.json_path, each.message[:200]) for each in errors] == []


def test_the_schema_refuses_what_is_none() -> None:
    validator = jsonschema.Draft7Validator(json.loads(gzip.decompress(SCHEMA.read_bytes())))
    document = exported("odd")[1]
    for wrong in ({"operations": {"a": {"action": "ask"}}}, {"asyncapi": "3"}, {"channels": {"a": {"x": 1}}}):
        assert list(validator.iter_errors(document | wrong)) != []


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_rule_beyond_the_schema_is_kept(name: str) -> None:
    document = exported(name)[1]
    assert all(found(document, each) for each in references(document))
    for channel in document["channels"].values():
        used = set(re.findall(r"{(\w+)}", channel["address"] or ""))
        assert set(channel.get("parameters", {})) == used
    for operation in document["operations"].values():
        ours = f"{operation['channel']['$ref']}/messages/"
        assert operation["messages"]
        assert all(each["$ref"].startswith(ours) for each in operation["messages"])
    named = {
        each["$ref"] for channel in document["channels"].values() for each in channel["messages"].values()
    }
    assert named == {f"#/components/messages/{each}" for each in document["components"]["messages"]}


def test_it_has_each_declared_type_with_its_payloads() -> None:
    contract, document = exported("shipped")
    messages = document["components"]["messages"]
    assert set(contract.event_types) <= set(messages)
    for name, declared in contract.event_types.items():
        payload = messages[name].get("payload", {}).get("schema")
        listed = list(declared.schemas.values())
        assert payload == (listed[0] if len(listed) == 1 else {"anyOf": listed} if listed else None)


def test_operations_follow_the_routes() -> None:
    document = exported("odd")[1]
    sends = {name: {each["$ref"].rpartition("/")[2] for each in it["messages"]} for name, it in
             document["operations"].items()}  # fmt: skip
    assert sends["bell.send"] == {RING, "com.elsewhere", "a_b_____", "a_b______"}
    assert sends["desk.ask"] == {RING}
    assert "desk.send" not in sends
    assert (
        RING
        in sends["desk.receive"] & sends["shop.receive"] & sends["bell.receive"] & sends["device.receive"]
    )
    assert document["operations"]["desk.ask"]["reply"]["channel"] == {"$ref": "#/channels/desk.replies"}
    addresses = {name: each["address"] for name, each in document["channels"].items()}
    assert addresses["bell.outbox"] == "eventplane/bell/outbox"
    assert addresses["desk.outbox"] == "eventplane-{environment}-desk-outbox.fifo"
    assert addresses["device.inbox"] == "devices/{thing}/inbox"
    assert addresses["desk.inbox"] is addresses["shop.inbox"] is None


def test_mapped_topics_are_channels() -> None:
    contract, document = exported("smart home")
    operations = {name: each for name, each in document["operations"].items() if ".send." in name}
    assert set(operations) == {f"{each.participant}.send.{each.name}" for each in contract.mappings} != set()
    for each in contract.mappings:
        operation = operations[f"{each.participant}.send.{each.name}"]
        channel = found(document, operation["channel"]["$ref"])
        assert (operation["action"], channel["address"]) == ("send", each.topic)
        message = found(document, next(iter(channel["messages"].values()))["$ref"])
        assert each.type in message["summary"]
        assert "payload" not in message, "no schema of ours says what a program publishes"


def test_one_participant_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", "asyncapi", "--participant", "call-service"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {each.partition(".")[0] for each in document["operations"]} == {"call-service"}
    assert set(document["channels"]) == {"call-service.inbox", "call-service.outbox"}
    assert set(document["servers"]) == {"home"}
    assert all(found(document, each) for each in references(document))
    assert main(["contract", "asyncapi", "--participant", "nobody"]) == 2
    assert "no participant is called nobody; name one of: " in capsys.readouterr().err
