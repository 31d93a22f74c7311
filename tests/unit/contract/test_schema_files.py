"""Payload schemas: read from their files, and refused where a router could not use them."""

import json
from pathlib import Path
from typing import Any

import pytest

from contract import load_contract
from eventplane.attributes import value_problem
from eventplane.contract import ContractError, Problem

pytestmark = pytest.mark.source("P11")

ID = "https://schemas.example.org/reading.v1"
GOOD = {"$id": ID, "type": "object"}


def plane(folder: Path, event_types: dict[str, Any], **schemas: Any) -> Path:
    """A contract file with `event_types`, and the files under schemas/ beside it."""
    (folder / "schemas").mkdir(exist_ok=True)
    for name, schema in schemas.items():
        (folder / "schemas" / f"{name}.json").write_text(json.dumps(schema))
    document = {
        "format": 8,
        "name": "plane",
        "participants": {"home": {"kind": "device", "description": "x"}},
        "event_types": {name: {"description": "x"} | each for name, each in event_types.items()},
        "routes": {"up": {"filter": {"prefix": {"type": "t"}}, "to": "home.outbox"}},
    }
    file = folder / "plane.yaml"
    file.write_text(json.dumps(document))
    return file


def problems(file: Path) -> tuple[Problem, ...]:
    with pytest.raises(ContractError) as caught:
        load_contract(file)
    return caught.value.problems


def test_the_schemas_are_in_the_contract_in_the_order_of_the_list(tmp_path: Path) -> None:
    newer = {"$id": ID + ".1", "allOf": [{"$ref": "reading.v1"}]}
    types = {"t": {"schemas": ["new.json", "old.json"], "schema_check": "known"}}
    contract = load_contract(plane(tmp_path, types, old=GOOD, new=newer))
    assert list(contract.event_types["t"].schemas.items()) == [(ID + ".1", newer), (ID, GOOD)]


def test_a_schema_is_read_from_the_contracts_folder_only(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / "schemas").mkdir(parents=True)
    (tmp_path / "secret.json").write_text(json.dumps(GOOD))
    (inside / "schemas/link.json").symlink_to(tmp_path / "secret.json")
    for name in ("../../secret.json", str(tmp_path / "secret.json"), "link.json"):
        (found,) = problems(plane(inside, {"t": {"schemas": [name], "schema_check": "known"}}))
        assert found.message == f"{name} is not beneath schemas/"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object"}, "no `$id`"),
        ({"$id": "reading.json"}, "not an absolute URI"),
        ({"$id": 5}, "5 is not of type"),
        ({"$id": ID, "type": "no such type"}, "at $.type"),
        ({"$id": ID, "pattern": "("}, "at $.pattern"),
        ({"$id": ID, "patternProperties": {"(": True}}, "is not a 'regex'"),
        ({"$id": ID, "$schema": "http://json-schema.org/draft-07/schema#"}, "of another dialect"),
        ({"$id": ID, "$schema": 7}, "of another dialect"),
        ({"$id": ID, "$ref": "#/$defs/none"}, "`$ref` #/$defs/none does not exist"),
        ({"$id": ID, "items": {"$ref": "https://elsewhere.example/x"}}, "does not exist"),
        ({"$id": ID, "not": {"anyOf": [{"$dynamicRef": "#none"}]}}, "#none does not exist"),
        ({"$id": ID, "type": "object", "examples": [{}, 5]}, "examples[1] at $: 5 is not of type 'object'"),
        (True, "not a JSON Schema"),
        ([], "not of type 'object', 'boolean'"),
    ],
)
def test_an_unusable_schema_is_one_problem(tmp_path: Path, schema: Any, message: str) -> None:
    types = {"t": {"schemas": ["good.json", "bad.json"], "schema_check": "strict"}}
    (problem,) = problems(plane(tmp_path, types, good=GOOD | {"$id": "a:1"}, bad=schema))
    assert problem.path == "event_types.t.schemas[1]"
    assert message in problem.message
    assert problem.remedy


def test_every_faulty_file_is_named_at_once(tmp_path: Path) -> None:
    types = {
        "t": {"schemas": ["none.json", "bad.json"], "schema_check": "known"},
        "t2": {"schemas": ["good.json", "good.json"]},
        "t3": {"schemas": ["same.json"]},
    }
    bad, same = {"$id": "a:1", "type": 1}, GOOD | {"title": "not the same"}
    found = {each.path: each for each in problems(plane(tmp_path, types, bad=bad, good=GOOD, same=same))}
    assert list(found) == [
        "event_types.t.schemas[0]",
        "event_types.t.schemas[1]",
        "event_types.t2.schemas[1]",
        "event_types.t3.schemas[0]",
    ]
    assert found["event_types.t.schemas[0]"].message == (
        "schemas/none.json cannot be read: No such file or directory"
    )
    assert "in the list twice" in found["event_types.t2.schemas[1]"].message
    assert "another schema has" in found["event_types.t3.schemas[0]"].message


def test_a_schema_without_a_list_is_refused(tmp_path: Path) -> None:
    (problem,) = problems(plane(tmp_path, {"t": {"schema": "old.json"}}, old=GOOD))
    assert (problem.path, problem.remedy) == ("event_types.t.schema", "write `schemas: [FILE, ...]`")


@pytest.mark.source("P11")
def test_every_schema_of_the_plane_can_be_named_by_an_event() -> None:
    for event_type in load_contract().event_types.values():
        # At any host: a new participant brings schemas of its own.
        assert all(value_problem("dataschema", id) is None for id in event_type.schemas)
