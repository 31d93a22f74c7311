"""Reads a contract file and its payload schemas into a checked `Contract`."""

from __future__ import annotations

from pathlib import Path

import yaml

from contract.protocols import unknown_protocols
from contract.repeated_keys import repeated_keys
from contract.schema_files import inline_schemas
from eventplane.contract import (
    Contract,
    ContractError,
    ContractFormatError,
    Problem,
    compile_contract,
    load_compiled,
)

CONTRACT_FILE = Path(__file__).parent / "event_plane.yaml"
"""The plane's own contract."""


def load_contract(path: Path = CONTRACT_FILE) -> Contract:
    """The contract of a YAML file; schema names are files under `schemas/` beside it.

    Raises `ContractError` with the file, the path inside it and the remedy for every problem found.
    """
    try:
        # The safe loader's two steps, with the look for equal keys between them.
        loader = yaml.SafeLoader(path.read_text("utf-8"))
        node = loader.get_single_node()
        problems = list(repeated_keys(node)) if node else []
        document = loader.construct_document(node) if node else None
    except OSError as error:
        raise _failure(
            path, "(file)", f"cannot be read: {error.strerror}", "name an existing file"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = " ".join(str(error).split())
        raise _failure(path, "(file)", f"not YAML: {message}", "correct it at that place") from error
    if isinstance(document, dict):
        problems += inline_schemas(document, path.parent / "schemas")
    try:
        contract = compile_contract(document, str(path))
    except ContractFormatError:
        raise
    except ContractError as error:
        raise ContractError(str(path), [*problems, *error.problems]) from error
    if problems := [*problems, *unknown_protocols(contract)]:
        raise ContractError(str(path), problems)
    return contract


def _failure(path: Path, place: str, message: str, remedy: str) -> ContractError:
    return ContractError(str(path), [Problem(place, message, remedy)])


def load_any(path: Path) -> Contract:
    """The contract of a YAML file or, when its name ends in `.json`, of a compiled one."""
    if path.suffix != ".json":
        return load_contract(path)
    try:
        return load_compiled(path.read_bytes(), str(path))
    except OSError as error:
        raise _failure(
            path, "(file)", f"cannot be read: {error.strerror}", "name an existing file"
        ) from error
