"""Example payloads: one of every schema that has one, the same each time, and valid."""

from typing import Any

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from contract.example import NoExampleError, example_of
from eventplane.payloads import schemas_of
from tests.plane import shipped_contract

ID = "https://schemas.example.org/it.json"
SHIPPED = schemas_of(shipped_contract())


def example(schema: dict[str, Any], **others: dict[str, Any]) -> Any:
    schemas = {ID: {"$id": ID, **schema}, **{each["$id"]: each for each in others.values()}}
    found = example_of(ID, schemas)
    assert found == example_of(ID, schemas)
    registry = Registry().with_resources(
        (id, DRAFT202012.create_resource(each)) for id, each in schemas.items()
    )
    jsonschema.Draft202012Validator(schemas[ID], registry=registry).validate(found)
    return found


@pytest.mark.parametrize("id", SHIPPED)
def test_shipped_schemas(id: str) -> None:
    others = {name: schema for name, schema in SHIPPED.items() if name != id}
    bare = {name: value for name, value in SHIPPED[id].items() if name != "examples"}
    assert isinstance(example(bare, **others), dict)
    for given in SHIPPED[id].get("examples", [])[:1]:
        assert example_of(id, SHIPPED) == given


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


TREE = an_object(name={"type": "string"}, children={"type": "array", "items": {"$ref": "#"}})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"enum": [3, "b"]},
        {"const": None},
        {"type": "object", "const": {"$ref": "no reference"}},
        {"type": ["null", "string"]},
        {"type": "string", "minLength": 200},
        {"type": "string", "maxLength": 0},
        {"type": "string", "pattern": r"^[A-Z]{3}-\d{4}$"},
        {"type": "string", "pattern": "^(on|off)$", "minLength": 3},
        {"type": "string", "pattern": "^[^a-z]+$", "minLength": 5},
        {"type": "string", "pattern": r"\w+@\w+\.\w{2,}"},
        {"type": "string", "pattern": "^.{12,}[^.]?$"},
        {"type": "string", "pattern": r"^\D\S[\d_]+é$"},
        an_object(a={"format": "date-time"}, b={"format": "uuid", "type": "string"}, c={"format": "odd"}),
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
        {"type": "number", "minimum": 36.05, "maximum": 36.3, "multipleOf": 0.1},
        {"type": "integer", "maximum": -5},
        {"type": "integer", "minimum": 10**18},
        {"type": "integer", "multipleOf": 3, "minimum": 10},
        {"minimum": 7, "maximum": 7},
        {"type": "array", "minItems": 3, "maxItems": 3, "items": {"type": "string", "maxLength": 2}},
        {"type": "array", "minItems": 4, "uniqueItems": True, "items": {"enum": ["a", "b", "c", "d"]}},
        {"type": "array", "minItems": 3, "uniqueItems": True, "items": an_object(n={"type": "integer"})},
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        {"type": "array", "contains": {"const": 7}, "minContains": 2, "items": {"type": "integer"}},
        {
            "oneOf": [
                an_object(kind={"const": "a"}, x={"type": "integer"}) | {"additionalProperties": False},
                an_object(kind={"const": "b"}),
            ]
        },
        {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": -5}]},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": False}},
        {"allOf": [an_object(a={"type": "string"}), {"properties": {"a": {"minLength": 9}}}]},
        {"allOf": [{"type": "number", "minimum": 2}, {"type": ["integer", "null"], "minimum": 5}]},
        {"not": {"const": "example"}, "type": "string"},
        {
            "if": an_object(country={"const": "nl"}),
            "then": an_object(plz={"type": "string", "pattern": "^[0-9]{4}$"}),
            "else": an_object(zip={}),
        },
        {"$defs": {"n": {"type": "integer", "minimum": 4}}, **an_object(x={"$ref": "#/$defs/n"})},
        {"$defs": {"n": {"$anchor": "n", "type": "integer"}}, "$ref": "#n", "minimum": 7},
        TREE,
        an_object(next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
        an_object(**{f"next{each}": {"anyOf": [{"type": "null"}, {"$ref": "#"}]} for each in range(9)}),
        {"type": "object", "minProperties": 3, "additionalProperties": {"type": "integer"}},
        {"minProperties": 1, "patternProperties": {"^x-[a-z]+$": {}}, "additionalProperties": False},
        an_object(a={}) | {"dependentRequired": {"a": ["b"]}, "properties": {"b": {"type": "boolean"}}},
        an_object(a={}) | {"dependentSchemas": {"a": an_object(z={"const": 1})}},
        {"type": "object", "properties": {"a": False, "b": {"type": "string"}}},
    ],
    ids=str,
)  # fmt: skip
def test_awkward_schemas(schema: dict[str, Any]) -> None:
    example(schema)


def test_other_documents_are_followed() -> None:
    id = "https://other.example.org/units.json"
    units = {"$id": id, "$defs": {"unit": {"$ref": "#/$defs/any"}, "any": {"enum": ["C"]}}}
    assert example(an_object(unit={"$ref": f"{id}#/$defs/unit"}), other=units) == {"unit": "C"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "const": 4},
        {"type": "string", "minLength": 10**9},
        {"type": "array", "minItems": 10**9},
        {"type": "string", "pattern": r"^\p{L}$"},
        {"type": "string", "pattern": "a{4000000}"},
        an_object(next={"$ref": "#"}),
        an_object(**{f"next{each}": {"$ref": "#"} for each in range(9)}),
    ],
    ids=str,
)  # fmt: skip
def test_without_an_example_the_error_says_what_to_do(schema: dict[str, Any]) -> None:
    with pytest.raises(NoExampleError, match=r"no example of .*it\.json was found; write one"):
        example(schema)
