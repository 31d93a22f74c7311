"""Reads a contract file and its payload schemas into a checked `Contract`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from eventplane.contract import Contract, ContractError, Problem, compile_contract

CONTRACT_FILE = Path(__file__).parent / "event_plane.yaml"
"""The plane's own contract."""


def load_contract(path: Path = CONTRACT_FILE) -> Contract:
    """The contract of a YAML file; schema names are files under `schemas/` beside it.

    Raises `ContractError` with the file, the path inside it and the remedy for every problem found.
    """
    try:
        document = yaml.load(path.read_text("utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise _failure(
            path, "(file)", f"cannot be read: {error.strerror}", "name an existing file"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = " ".join(str(error).split())
        raise _failure(path, "(file)", f"not YAML: {message}", "correct it at that place") from error
    problems: list[Problem] = []
    if isinstance(document, dict):
        _inline_schemas(document.get("event_types"), path.parent / "schemas", problems)
    if problems:
        raise ContractError(str(path), problems)
    return compile_contract(document, str(path))


def _inline_schemas(event_types: Any, folder: Path, problems: list[Problem]) -> None:
    """Replace each schema's file name by the schema itself, so that the compiled contract stands alone."""
    if not isinstance(event_types, dict):
        return
    for name, event_type in event_types.items():
        file_name = event_type.get("schema") if isinstance(event_type, dict) else None
        if not isinstance(file_name, str):
            continue
        path = f"event_types.{name}.schema"
        try:
            schema = json.loads((folder / file_name).read_text("utf-8"))
            jsonschema.Draft202012Validator.check_schema(schema)
        except (OSError, ValueError) as error:
            problems.append(Problem(path, f"{file_name}: {error}", "put a JSON Schema into schemas/"))
        except jsonschema.SchemaError as error:
            problems.append(
                Problem(
                    path, f"{file_name} at {error.json_path}: {error.message}", "write JSON Schema 2020-12"
                )
            )
        else:
            event_type["schema"] = schema


def _failure(path: Path, place: str, message: str, remedy: str) -> ContractError:
    return ContractError(str(path), [Problem(place, message, remedy)])


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML without the silent loss of the first of two equal keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)
