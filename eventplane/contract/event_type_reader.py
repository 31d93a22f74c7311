"""Event types, and the versions of their payloads: one JSON Schema each, known by its `$id`.

Whether a document is a good JSON Schema is for who reads the files to say; the core needs no such library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventplane.attributes import value_problem
from eventplane.contract.guarantees import read_guarantee
from eventplane.contract.model import EventType
from eventplane.contract.reader import Section
from eventplane.contract.vocabulary import Downlink, Priority, SchemaCheck

_Schema = Mapping[str, Any]


def read_event_types(section: Section, format_version: int) -> dict[str, EventType]:
    """The event types in a contract of `format_version`; faults go where the section's faults go."""
    types = {}
    by_id: dict[str, _Schema] = {}
    for name in section.members:
        each = section.section(name)
        check = each.choice("schema_check", SchemaCheck, SchemaCheck.NONE) or SchemaCheck.NONE
        listed = _listed(each, format_version)
        types[str(name)] = EventType(
            name=str(name),
            description=each.text("description"),
            priority=each.choice("priority", Priority, None),
            schemas=_by_id(listed, check, each, by_id),
            schema_check=check,
            downlink=each.choice("downlink", Downlink, None),
            delivery_guarantee=read_guarantee(each),
        )
        if not listed and check is not SchemaCheck.NONE:
            each.fault("schema_check", "there is no schema to check by", "list `schemas`, or remove this")
        each.finish()
    return types


def _listed(section: Section, format_version: int) -> list[Any]:
    """What is listed as schemas, whatever it is."""
    listed = section.raw("schemas")
    if "schema" in section.members:
        only = section.raw("schema")
        if format_version == 1 and listed is None:
            return [] if only is None else [only]
        section.fault("schema", "since format 2 a payload has versions", "write `schemas: [FILE, ...]`")
    if listed is not None and not isinstance(listed, list):
        section.fault("schemas", "it is not a list", "list files under schemas/, the oldest version first")
        return []
    return listed or []


def _by_id(
    listed: list[Any], check: SchemaCheck, section: Section, by_id: dict[str, _Schema]
) -> dict[str, _Schema]:
    """The good ones of the `listed` schemas by their `$id`; `by_id` has those of all event types."""
    schemas: dict[str, _Schema] = {}
    needed = len(listed) > 1 or check is not SchemaCheck.NONE
    for at, schema in enumerate(listed):
        path = f"schemas[{at}]" if "schemas" in section.members else "schema"
        if not isinstance(schema, Mapping):
            section.fault(path, "it is not a JSON Schema", "name a file under schemas/ that holds one")
        elif fault := _id_fault(schema, needed, schemas, by_id):
            section.fault(path, *fault)
        else:
            schemas[schema.get("$id", "")] = schema
    by_id.update((id, schema) for id, schema in schemas.items() if id)
    return schemas


def _id_fault(
    schema: _Schema, needed: bool, own: Mapping[str, _Schema], by_id: Mapping[str, _Schema]
) -> tuple[str, str] | None:
    """What is wrong with the `$id` and what to do; None when nothing is."""
    id = schema.get("$id")
    if id is None:
        remedy = "give it an absolute URI of its own as `$id`"
        return ("it has no `$id`, so that no event can name it", remedy) if needed else None
    # An event must be able to carry it as its `dataschema`.
    problem = value_problem("dataschema", id) if isinstance(id, str) else "it is not a string"
    if not problem and "#" in id:
        problem = "it has a fragment"
    if problem:
        return f"`$id` {id!r:.200}: {problem}", "write an absolute URI without a fragment"
    if id in own:
        return f"`$id` {id} stands twice in the list", "give every version an `$id` of its own"
    if by_id.get(id, schema) != schema:
        return f"another schema has the `$id` {id}", "give every schema an `$id` of its own"
    return None
