"""The JSON Schema of the contract's file, for editors: made of the declarations that the compiler reads by.

It says the shape: members, words, ranges, and what each kind of participant may have. What settings mean
together, names that others refer to, and expressions are the compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from eventplane.attributes import NAME as ATTRIBUTE
from eventplane.contract import REPLIES, ParticipantKind, SchemaCheck, Transport
from eventplane.contract.canonical import FORMAT, OLDEST_FORMAT
from eventplane.contract.channels import ADDED_PROTOCOL, RECEIPTS, SETTINGS, TRANSPORTS, WEBHOOK_SETTINGS
from eventplane.contract.compiler import EVENT_TYPE, ROUTE
from eventplane.contract.participants import PARTICIPANT
from eventplane.contract.reader import NAME, Setting, Text
from eventplane.filters import COMBINATIONS, COMPARISONS
from eventplane.limits import MAX_ATTRIBUTE_NAME

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_FILTER: Final = {"$ref": "#/$defs/filter"}


def contract_schema() -> Schema:
    """Return the schema of `contract/event_plane.yaml`, and of a compiled contract."""
    participant = {
        "type": "object",
        "required": ["kind", "description"],
        "properties": {"kind": {"enum": list(ParticipantKind), "description": "where it runs"}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": each}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{each}"},
            }
            for each in ParticipantKind
        ],
    }
    return {
        "$schema": DIALECT,
        "title": "The contract of an event plane",
        **_members(
            {
                "format": {"type": "integer", "minimum": OLDEST_FORMAT, "maximum": FORMAT},
                "name": {"type": "string", "pattern": r"\S"},
                "participants": _entries(participant),
                "event_types": {"type": ["object", "null"], "additionalProperties": _event_type()},
                "routes": {**_entries(_route()), "type": ["object", "null"]},
            },
            "format",
            "name",
            "participants",
        ),
        "$defs": {
            "filter": _filter(),
            **{
                f"{kind}.{box}": _channel(kind, box)
                for kind in ParticipantKind
                for box in ("inbox", "outbox")
            },
            **{each: _participant(each) for each in ParticipantKind},
        },
    }


def _members(properties: Mapping[str, Schema], *required: str) -> Schema:
    return {
        "type": "object" if required else ["object", "null"],
        "properties": dict(properties),
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


def _entries(entry: Schema) -> Schema:
    names = {"pattern": f"^{NAME.pattern}$"}
    return {"type": "object", "propertyNames": names, "additionalProperties": entry}


def _setting(setting: Setting, kind: ParticipantKind | None = None, box: str = "") -> Schema:
    """Return the schema of a member; null stands for its default, the only value where it has no meaning."""
    default = setting.outbox_default if box == "outbox" and setting.outbox_default else setting.default
    if isinstance(default, tuple):
        default = {} if setting.schema().get("type") == "object" else list(default)
    about: Schema = {"description": re.sub(r"\[(.*?)\]\(.*?\)", r"\1", setting.meaning)}
    if isinstance(setting, Text):
        return {**setting.schema(), **about}
    if default is not None:
        about["default"] = default
    if kind and (only := setting.only) and (kind not in only.kinds or box != only.box):
        return {"enum": [None] if default is None else [default, None], **about}
    return {"anyOf": [setting.schema(), {"type": "null"}], **about}


def _participant(kind: ParticipantKind) -> Schema:
    members = {name: _setting(each, kind) for name, each in PARTICIPANT.items()}
    boxes = {box: {"$ref": f"#/$defs/{kind}.{box}"} for box in ("inbox", "outbox")}
    return _members({"kind": {"const": kind}, **members, **boxes}, "kind", "description")


def _channel(kind: ParticipantKind, box: str) -> Schema:
    transport: Schema = {"enum": [*TRANSPORTS[kind], None]}
    if kind is ParticipantKind.CLOUD_SERVICE:
        # Of a package that adds it.
        added = {
            "type": "string",
            "pattern": f"^{ADDED_PROTOCOL.pattern}$",
            "not": {"enum": list(Transport)},
        }
        transport = {"anyOf": [transport, added]}
    members = {name: _setting(each, kind, box) for name, each in {**SETTINGS, "receipts": RECEIPTS}.items()}
    webhook: Schema = {"type": "null"}
    if kind is ParticipantKind.CLOUD_SERVICE and box == "inbox":
        # Where formats 3 to 8 have it.
        former = {"give_up_after_s": SETTINGS["give_up_after_s"]}
        webhook = _members({name: _setting(each) for name, each in {**WEBHOOK_SETTINGS, **former}.items()})
    return _members({"transport": transport, **members, "webhook": webhook})


def _event_type() -> Schema:
    schema = {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"$id": {"type": "string"}}, "required": ["$id"]},
        ]
    }
    schemas = {
        "type": ["array", "null"],
        "items": schema,
        "description": "the versions of the payload, files under schemas/, the oldest first",
    }
    members = {name: _setting(each) for name, each in EVENT_TYPE.items()}
    checks = {"enum": [each for each in SchemaCheck if each is not SchemaCheck.NONE]}
    return {
        **_members({**members, "schemas": schemas}, "description"),
        "if": {"properties": {"schema_check": checks}, "required": ["schema_check"]},
        "then": {"properties": {"schemas": {"type": "array", "minItems": 1}}, "required": ["schemas"]},
    }


def _route() -> Schema:
    members = {name: _setting(each) for name, each in ROUTE.items()}
    members["to"]["pattern"] = rf"^{NAME.pattern}\.(inbox|outbox|{REPLIES})$"
    interest = {"type": ["array", "null"], "items": _FILTER, "description": "written by the plane"}
    return _members(
        {**members, "filter": _FILTER, "description": {}, "interest": interest},
        "to",
        "filter",
    )


def _filter() -> Schema:
    comparisons = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": f"^{ATTRIBUTE.pattern}$", "maxLength": MAX_ATTRIBUTE_NAME},
        "additionalProperties": {"type": "string", "minLength": 1},
    }
    dialects: Schema = dict.fromkeys(COMPARISONS, comparisons)
    dialects |= {each: {"type": "array", "minItems": 1, "items": _FILTER} for each in COMBINATIONS}
    dialects |= {"not": _FILTER, "sql": {"type": "string", "description": "an expression in CESQL"}}
    one = {"minProperties": 1, "maxProperties": 1}
    return {"type": "object", "properties": dialects, "additionalProperties": False, **one}
