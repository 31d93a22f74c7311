"""Tables and JSON Schemas of declared settings (eventplane/fields.py), and edge/packaging/forwarder.toml, the
forwarder's complete file.
"""

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from edge.settings import OPTIONAL, TABLES, Settings
from eventplane.fields import Range, Texts
from eventplane.settings import without_none

Schema = dict[str, Any]

_HEAD = """\
# The forwarder's settings, each with its meaning, what it accepts and its default. Remove the "#" before a
# name to change its value. The environment overrides this file: EVENTPLANE_CLOUD_HOST sets `host` of [cloud].
# `eventplane-forwarder check --settings FILE` reports everything that is wrong.
"""

_IDENTITY = "/var/lib/eventplane/identity.pem"

PACKAGED = {
    "contract": "/etc/eventplane/contract.json",
    "spool": "/var/lib/eventplane/spool.db",
    # Debian's package ca-certificates has it.
    "cloud.ca": "/etc/ssl/certs/Amazon_Root_CA_1.pem",
    "cloud.certificate": _IDENTITY,
    "cloud.key": _IDENTITY,
    "provisioning.claim_certificate": "/etc/eventplane/claim.crt",
    "provisioning.claim_key": "/etc/eventplane/claim.key",
}
"""Setting -> its value where the packages put the files and the units may write."""

_WIDTH = 110


def documented(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the text below each name that `body` assigns or declares, in one line."""
    found = {}
    for statement, text in itertools.pairwise(body):
        match statement, text:
            case (
                ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(ast.Constant(str(meaning))),
            ):
                found[name] = " ".join(meaning.split())
    return found


@cache
def meanings(table: type) -> dict[str, str]:
    """Return the meaning of each setting of a dataclass: the text below its field, in one line."""
    found: dict[str, str] = {}
    for kind in reversed(table.__mro__):
        if dataclasses.is_dataclass(kind):
            (declared,) = ast.parse(inspect.getsource(kind)).body
            found |= documented(declared.body if isinstance(declared, ast.ClassDef) else [])
    return found


def settings_file() -> str:
    """Return the text of the file: complete, with what the packages decide filled in."""
    parts = [_HEAD]
    for table, kind in {"": Settings, **TABLES}.items():
        off = "#" if table in OPTIONAL else ""
        if table:
            parts.append(_comment(f"{(kind.__doc__ or '').partition(chr(10))[0]}") + f"{off}[{table}]\n")
        parts += [
            _setting(f"{table}.{each.name}" if table else each.name, each, meanings(kind)[each.name], off)
            for each in dataclasses.fields(kind)
            if "accepts" in each.metadata
        ]
    return "\n".join(parts)


def declared(kind: type) -> Iterator[tuple[str, dataclasses.Field[Any], Any, str]]:
    """Yield name, field, type and meaning of each setting of a dataclass: first those that are no tables."""
    hints = get_type_hints(kind)
    found = [(each.name, each, without_none(hints[each.name])) for each in dataclasses.fields(kind)]
    for name, each, hint in sorted(found, key=lambda it: dataclasses.is_dataclass(it[2])):
        about = (hint.__doc__ or "").partition("\n")[0] if dataclasses.is_dataclass(hint) else ""
        yield name, each, hint, meanings(kind).get(name, about)


def settings_rows(kind: type, given: Mapping[str, Any], prefix: str = "") -> Iterator[list[str]]:
    """Yield a row for each setting of a dataclass, with what is `given` as its default."""
    for name, each, hint, meaning in declared(kind):
        is_made = each.default_factory is not dataclasses.MISSING
        default = given.get(name, None if is_made else each.default)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            inner = default if isinstance(default, Mapping) else {}
            yield from settings_rows(hint, inner, f"{prefix}{name}.")
        else:
            accepts = str(each.metadata.get("accepts", _LISTS.get(get_origin(hint), "")))
            yield [f"`{prefix}{name}`", _default(default), accepts, meaning]


_LISTS = {tuple: "a list", frozenset: "a list", Mapping: "a table"}


def _default(value: object) -> str:
    if value is dataclasses.MISSING:
        return "required"
    # As TOML and the environment write it.
    text = json.dumps(sorted(value)) if isinstance(value, frozenset | tuple) else str(value)
    return "none" if value in (None, "", ()) else f"`{text.lower() if isinstance(value, bool) else text}`"


def schema_of(kind: type, *without: str) -> Schema:
    """Return the JSON Schema of a dataclass's settings. It requires nothing: they may come from elsewhere."""
    properties: dict[str, Any] = {}
    for name, each, hint, meaning in declared(kind):
        if name in without:
            continue
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            properties[name] = {"type": "object", "description": meaning, **schema_of(hint)}
        else:
            properties[name] = {**_schema(each, hint), "description": meaning}
    return {"properties": properties, "additionalProperties": False}


def settings_schema(title: str, **members: Any) -> str:
    """Return the text of a JSON Schema of a file of settings, for editors."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "type": "object"}
    return json.dumps({**head, **members}, indent=2) + "\n"


def _schema(each: dataclasses.Field[Any], hint: Any) -> Schema:
    default = {} if each.default in (dataclasses.MISSING, None, "") else {"default": each.default}
    match each.metadata.get("accepts"):
        case Range(low, high, _, is_whole):
            kind = "integer" if is_whole else "number"
            return {"type": kind, "minimum": low, "maximum": high, **default}
        case Texts() if hint is bool:
            return {"type": "boolean", **default}
        case Texts(pattern=pattern):
            return {"type": "string", "pattern": f"^({pattern})$", **default}
    match get_origin(hint), get_args(hint):
        case (container, (inner, *_)) if container in (tuple, frozenset):
            is_table = dataclasses.is_dataclass(inner)
            items = {"type": "object", **schema_of(inner)} if is_table else _TYPES[inner]
            return {"type": "array", "items": items}
        case _, (_, inner):
            return {"type": "object", "additionalProperties": _TYPES[inner]}
    raise NotImplementedError(each.name)


_TYPES: dict[Any, Schema] = {str: {"type": "string"}, int: {"type": "integer"}}


def _setting(name: str, each: dataclasses.Field[Any], meaning: str, off: str) -> str:
    is_required = each.default is dataclasses.MISSING
    about = f"{'Required. ' if is_required else ''}{meaning} Accepts: {each.metadata['accepts']}."
    # TOML writes texts, numbers and booleans as JSON does. An empty text is to be filled in.
    value = PACKAGED.get(name, "" if is_required or each.default is None else each.default)
    mark = off if name in PACKAGED else "#"
    return _comment(about) + f"{mark}{name.rpartition('.')[2]} = {json.dumps(value)}\n"


def _comment(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="# ", subsequent_indent="# ") + "\n"
