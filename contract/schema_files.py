"""The payload schemas of a contract: read from their files, and checked to be ones that a router can use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaRegistry, SchemaResource

from eventplane.contract import Problem

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NO_SCHEMA = "put a JSON Schema into schemas/"
_WRONG_DIALECT = "write JSON Schema 2020-12"

_Fault = tuple[str, str]
"""What is wrong with a schema, and what to do."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place for a schema in the document: `holder[key]`, which belongs to `event_type`."""

    path: str
    event_type: dict[str, Any]
    holder: Any
    key: Any

    @property
    def value(self) -> Any:
        return self.holder[self.key]

    @property
    def id(self) -> str | None:
        id = self.value.get("$id") if isinstance(self.value, dict) else None
        return id if isinstance(id, str) else None


def inline_schemas(document: dict[str, Any], folder: Path) -> list[Problem]:
    """Replace the schemas' file names in `document` by the schemas, so that the contract stands alone."""
    slots = list(_slots(document.get("event_types")))
    faults = [(slot, fault) for slot in slots if (fault := _inline(slot, folder))]
    if document.get("format") != 1:
        # What nothing ever used, in format 1, need not be usable.
        bad = {slot.path for slot, _ in faults}
        good = [slot for slot in slots if slot.path not in bad and isinstance(slot.value, dict)]
        registry: SchemaRegistry = Registry().with_resources(
            (slot.id, DRAFT202012.create_resource(slot.value)) for slot in good if slot.id
        )
        faults += [(slot, fault) for slot in good if (fault := _unusable(slot.value, registry))]
    for slot, _ in faults:
        # One fault is not also another one: that there is no schema, or none to check by.
        for name in ("schema", "schemas", "schema_check"):
            slot.event_type.pop(name, None)
    return [Problem(slot.path, *fault) for slot, fault in faults]


def _slots(event_types: Any) -> Iterator[_Slot]:
    if not isinstance(event_types, dict):
        return
    for name, event_type in event_types.items():
        if not isinstance(event_type, dict):
            continue
        path = f"event_types.{name}"
        if event_type.get("schema") is not None:
            yield _Slot(f"{path}.schema", event_type, event_type, "schema")
        listed = event_type.get("schemas")
        for at in range(len(listed) if isinstance(listed, list) else 0):
            yield _Slot(f"{path}.schemas[{at}]", event_type, listed, at)


def _inline(slot: _Slot, folder: Path) -> _Fault | None:
    file_name = slot.value
    if isinstance(file_name, str):
        try:
            slot.holder[slot.key] = json.loads((folder / file_name).read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            return f"{file_name}: {error}", _NO_SCHEMA
    name = file_name if isinstance(file_name, str) else "the schema"
    dialect = slot.value.get("$schema", _DIALECT) if isinstance(slot.value, dict) else _DIALECT
    if dialect != _DIALECT:
        return f"{name} is of another dialect, {dialect}", _WRONG_DIALECT
    try:
        jsonschema.Draft202012Validator.check_schema(slot.value)
    except jsonschema.SchemaError as error:
        return f"{name} at {error.json_path}: {error.message}", _WRONG_DIALECT
    return None


def _unusable(schema: dict[str, Any], registry: SchemaRegistry) -> _Fault | None:
    if "$id" not in schema:
        return "the schema has no `$id`, so that no event can name it", "give it an absolute URI as `$id`"
    resource = DRAFT202012.create_resource(schema)
    for reference in _dead_references(resource, registry.resolver_with_root(resource)):
        return f"`$ref` {reference} leads nowhere", "refer to this schema, or to another of the contract's"
    validator = jsonschema.Draft202012Validator(schema, registry=registry)
    for number, example in enumerate(schema.get("examples", ())):
        if error := jsonschema.exceptions.best_match(validator.iter_errors(example)):
            return (
                f"examples[{number}] at {error.json_path}: {error.message}",
                "correct the example, or the schema",
            )
    return None


def _dead_references(resource: SchemaResource, resolver: Any) -> Iterator[str]:
    """The references that a router could not follow: it loads nothing from the network."""
    schema = resource.contents
    for keyword in ("$ref", "$dynamicRef"):
        reference = schema.get(keyword) if isinstance(schema, dict) else None
        if reference is not None:
            try:
                resolver.lookup(reference)
            except Unresolvable:
                yield reference
    for each in resource.subresources():
        yield from _dead_references(each, resolver.in_subresource(each))
