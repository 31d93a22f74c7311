"""Makes edge/packaging/forwarder.toml, the forwarder's complete settings, and its JSON Schema.

Both are made from the declarations by which the forwarder reads them.
"""

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any

from edge.settings import OPTIONAL, TABLES, Settings
from edge.settings_reader import TextSetting
from eventplane.values import Range

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


def settings_schema() -> str:
    """Return the JSON Schema of the file, for editors. It requires nothing: a variable may replace each."""
    properties = _properties(Settings)
    for table, kind in TABLES.items():
        about = (kind.__doc__ or "").partition("\n")[0]
        properties[table] = {"type": "object", "description": about, "properties": _properties(kind)}
        properties[table]["additionalProperties"] = False
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The settings of Event Plane's forwarder",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return json.dumps(schema, indent=2) + "\n"


def _properties(kind: type) -> dict[str, Any]:
    declared = [each for each in dataclasses.fields(kind) if "accepts" in each.metadata]
    return {each.name: {**_schema(each), "description": meanings(kind)[each.name]} for each in declared}


def _schema(each: dataclasses.Field[Any]) -> dict[str, Any]:
    default = {} if each.default in (dataclasses.MISSING, None) else {"default": each.default}
    match each.metadata["accepts"]:
        case Range(low, high, _, is_whole):
            kind = "integer" if is_whole else "number"
            return {"type": kind, "minimum": low, "maximum": high, **default}
        case _ if isinstance(each.default, bool):
            return {"type": "boolean", **default}
        case TextSetting(pattern=pattern):
            return {"type": "string", "pattern": f"^({pattern})$", **default}
    raise NotImplementedError(each.name)


def _setting(name: str, each: dataclasses.Field[Any], meaning: str, off: str) -> str:
    is_required = each.default is dataclasses.MISSING
    about = f"{'Required. ' if is_required else ''}{meaning} Accepts: {each.metadata['accepts']}."
    # TOML writes texts, numbers and booleans as JSON does. An empty text is to be filled in.
    value = PACKAGED.get(name, "" if is_required or each.default is None else each.default)
    mark = off if name in PACKAGED else "#"
    return _comment(about) + f"{mark}{name.rpartition('.')[2]} = {json.dumps(value)}\n"


def _comment(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="# ", subsequent_indent="# ") + "\n"
