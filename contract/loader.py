"""Read files: a contract with its payload schemas into a checked `Contract`, and an event."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaRegistry, SchemaResource

from contract.bounded_yaml import BoundedLoader
from eventplane.contract import (
    Contract,
    ContractError,
    ContractFormatError,
    Problem,
    check_compiled,
    compile_contract,
    load_compiled,
)
from eventplane.dead_letter import Refusal
from eventplane.device_reports import PLANE_TYPES
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.names import SENDERS
from eventplane.payloads import payload_problem, payload_refusal, schemas_of

_MOST_CONTRACT: Final = 64 * 1024 * 1024
_MOST_EVENT: Final = 1024 * 1024
"""Most bytes of a file that are read: far more than what is valid has, in YAML as well."""

CONTRACT_FILE = Path(__file__).parent / "event_plane.yaml"
"""The plane's own contract."""

PROJECT_CONTRACTS: Final = ("contract/event_plane.yaml", "event_plane.yaml")
"""Where a contract is in a project's folder."""


CONTRACT_VARIABLE: Final = "EVENTPLANE_CONTRACT"
"""Environment variable with the file of the contract that commands are about."""


def chosen_contract() -> Path | None:
    """Return the file that `EVENTPLANE_CONTRACT` names, otherwise this project's; None if there is none."""
    if not (named := os.environ.get(CONTRACT_VARIABLE)):
        return project_contract(Path())
    path, here = Path(named), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def project_contract(folder: Path) -> Path | None:
    """Return the contract of `folder`, or else of the nearest folder above it; None if there is none."""
    for each in (folder, *folder.absolute().parents):
        for name in PROJECT_CONTRACTS:
            if (each / name).is_file():
                return each / name
    return None


def load_contract(path: Path = CONTRACT_FILE) -> Contract:
    """Return the contract of a file; see `load_checked`."""
    return load_checked(path)[0]


def load_checked(path: Path) -> tuple[Contract, list[Problem]]:
    """Return the contract of a file, and a warning for each schema by which nothing is checked.

    Of YAML, schema names are files under `schemas/` beside it. A name that ends in `.json` is a compiled
    contract. Raises `ContractError` with the file, the path inside it and the remedy for every problem found.
    """
    try:
        raw = content(path, _MOST_CONTRACT)
        if path.suffix == ".json":
            contract = load_compiled(raw, str(path))
            check_compiled(contract, str(path))
            return contract, []
        document, problems = _read_yaml(raw.decode(), BoundedLoader)
    except OSError as error:
        raise _failure(
            path, "(file)", f"cannot be read: {error.strerror}", "name an existing file"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise _failure(path, "(file)", f"not YAML: {message}", "correct it at that place") from error
    warnings: list[Problem] = []
    if isinstance(document, dict):
        warnings += _unread_schemas(document, path.parent / "schemas")
        problems += inline_schemas(document, path.parent / "schemas")
    try:
        contract = compile_contract(document, str(path))
    except ContractFormatError:
        raise
    except ContractError as error:
        raise ContractError(str(path), [*problems, *error.problems]) from error
    if problems := [*problems, *unknown_protocols(contract)]:
        raise ContractError(str(path), problems)
    return contract, warnings


def _unread_schemas(document: dict[str, Any], folder: Path) -> Iterator[Problem]:
    """Warn of schemas by which nothing is checked, but for types that say so, and those of the plane."""
    slots = list(_slots(document.get("event_types")))
    types = {slot.path.rpartition(".")[0]: slot.event_type for slot in slots}
    for path, event_type in types.items():
        if "schema_check" not in event_type and path.partition(".")[2] not in PLANE_TYPES:
            yield Problem(
                f"{path}.schema_check",
                "it is missing, so that nothing reads the schemas and no payload is checked",
                "set it to `strict` or `known`, or to `none` if the events are to pass unread",
            )
    listed = {(folder / each.value).resolve() for each in slots if isinstance(each.value, str)}
    text, remedy = "no event type lists it, so that nothing reads it", "add it to `schemas`, or delete it"
    for file in sorted(folder.rglob("*.json")):
        if file.resolve() not in listed:
            yield Problem(f"schemas/{file.relative_to(folder)}", text, remedy)


def _failure(path: Path, place: str, message: str, remedy: str) -> ContractError:
    return ContractError(str(path), [Problem(place, message, remedy)])


def content(path: Path, most: int = _MOST_EVENT) -> bytes:
    """Return the bytes of a file, `-` for standard input. Raises `OSError`, also for more than `most` bytes.

    A device or a pipe may have no end, and a file more than fits into memory.
    """
    with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return raw


class EventFileError(EventPlaneError):
    """The file `origin` has no valid event, because of `problem`."""

    origin: str
    problem: str
    remedy: str
    message = "{origin}: {problem}; {remedy}"


class _EventLoader(BoundedLoader):
    """Times stay text: in an event they are strings."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own
        first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def load_event(path: Path) -> Envelope:
    """Return the event in a file, `-` for standard input. Raises `EventFileError`.

    It is JSON, unless the name ends in `.yaml` or `.yml`, or another name holds text that no brace begins.
    """
    origin = "standard input" if str(path) == "-" else str(path)
    try:
        raw = content(path, _MOST_EVENT)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise EventFileError(
            origin, problem, "name a file with one event, or - for standard input"
        ) from error
    is_yaml = path.suffix in (".yaml", ".yml")
    if not is_yaml and path.suffix != ".json":
        is_yaml = not raw.lstrip().startswith(b"{")
    try:
        return parse_event(_json_of_yaml(raw) if is_yaml else raw)
    except EnvelopeError as error:
        raise EventFileError(origin, f"no valid event: {error}", "correct it there") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        problem = f"neither JSON nor YAML: {' '.join(str(error).split())}"
        raise EventFileError(origin, problem, "write one event, in JSON or YAML") from error


def _json_of_yaml(raw: bytes) -> bytes:
    document, problems = _read_yaml(raw.decode(), _EventLoader)
    if problems:
        raise ValueError(f"{problems[0].path}: {problems[0].message}")
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def _read_yaml(text: str, kind: type[BoundedLoader]) -> tuple[Any, list[Problem]]:
    """The document of a YAML text, and its repeated keys. Raises YAMLError, ValueError or RecursionError."""
    # The safe loader's two steps, with the search for repeated keys between them.
    loader = kind(text)
    node = loader.get_single_node()
    if node is None:
        return None, []
    problems = list(repeated_keys(node))
    return loader.construct_document(node), problems


def unknown_protocols(contract: Contract) -> Iterator[Problem]:
    """Report every channel whose protocol no installed package adds: a deployment could not write there."""
    known = entry_points(group=SENDERS).names
    for channel in contract.channels:
        if channel.is_added_protocol and channel.transport not in known:
            yield Problem(
                f"participants.{channel.address}.transport",
                f"no installed package adds the protocol {channel.transport!r}",
                "install it beside this checkout, or correct the name",
            )


def repeated_keys(root: yaml.Node) -> Iterator[Problem]:
    """Return a problem for each key under `root` that its mapping has twice: YAML keeps only the last."""
    waiting = [("", root)]
    seen: set[int] = set()
    while waiting:
        path, node = waiting.pop()
        # An alias is the node itself once more, and could even contain itself.
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from _repeated_in(node, path)
            waiting += [(_join(path, key.value), value) for key, value in reversed(node.value)]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(f"{path}[{at}]", value) for at, value in reversed(list(enumerate(node.value)))]


def _repeated_in(mapping: yaml.MappingNode, path: str) -> Iterator[Problem]:
    first: dict[str, yaml.ScalarNode] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        earlier = first.setdefault(key.value, key)
        if earlier is not key:
            lines = f"line {earlier.start_mark.line + 1} and line {key.start_mark.line + 1}"
            yield Problem(
                _join(path, key.value),
                f"the name is there twice, in {lines}",
                "rename or remove one of the two",
            )


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NO_SCHEMA = "put a JSON Schema into schemas/"
_WRONG_DIALECT = "write JSON Schema 2020-12"

_Fault = tuple[str, str]
"""A fault of a schema, and the remedy."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place for a schema in the document: `holder[at]`, in the list of `event_type`."""

    path: str
    event_type: dict[str, Any]
    holder: list[Any]
    at: int

    @property
    def value(self) -> Any:
        return self.holder[self.at]

    @property
    def id(self) -> str | None:
        id = self.value.get("$id") if isinstance(self.value, dict) else None
        return id if isinstance(id, str) else None


def inline_schemas(document: dict[str, Any], folder: Path) -> list[Problem]:
    """Replace the schemas' file names in `document` by the schemas. Return the problems."""
    slots = list(_slots(document.get("event_types")))
    faults = [(slot, fault) for slot in slots if (fault := _inline(slot, folder))]
    bad = {slot.path for slot, _ in faults}
    good = [slot for slot in slots if slot.path not in bad and isinstance(slot.value, dict)]
    registry: SchemaRegistry = Registry().with_resources(
        (slot.id, DRAFT202012.create_resource(slot.value)) for slot in good if slot.id
    )
    faults += [(slot, fault) for slot in good if (fault := _unusable(slot.value, registry))]
    for slot, _ in faults:
        # So that one fault does not cause another: that a schema is missing.
        for name in ("schemas", "schema_check"):
            slot.event_type.pop(name, None)
    return [Problem(slot.path, *fault) for slot, fault in faults]


def _slots(event_types: Any) -> Iterator[_Slot]:
    if not isinstance(event_types, dict):
        return
    for name, event_type in event_types.items():
        if not isinstance(event_type, dict):
            continue
        path = f"event_types.{name}"
        listed: Any = event_type.get("schemas")
        for at in range(len(listed) if isinstance(listed, list) else 0):
            yield _Slot(f"{path}.schemas[{at}]", event_type, listed, at)


def _inline(slot: _Slot, folder: Path) -> _Fault | None:
    file_name = slot.value
    if isinstance(file_name, str):
        if not (folder / file_name).resolve().is_relative_to(folder.resolve()):
            return f"{file_name} is not beneath schemas/", _NO_SCHEMA
        try:
            slot.holder[slot.at] = json.loads(content(folder / file_name, _MOST_CONTRACT).decode())
        except OSError as error:
            return f"schemas/{file_name} cannot be read: {error.strerror}", _NO_SCHEMA
        except (ValueError, RecursionError) as error:
            return f"schemas/{file_name} is no JSON: {error}", _NO_SCHEMA
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
        return f"`$ref` {reference} does not exist", "refer to this schema, or to another of the contract's"
    validator = jsonschema.Draft202012Validator(schema, registry=registry)
    for number, example in enumerate(schema.get("examples", ())):
        if error := jsonschema.exceptions.best_match(validator.iter_errors(example)):
            return (
                f"examples[{number}] at {error.json_path}: {error.message}",
                "correct the example, or the schema",
            )
    return None


def check_payload(contract: Contract, event: Envelope) -> Refusal | None:
    """Return why the cloud refuses the payload of `event`, or None."""
    return payload_check(contract)(event)


def payload_check(contract: Contract) -> Callable[[Envelope], Refusal | None]:
    """Return a check of payloads by `contract`: it returns why the cloud refuses one, or None."""
    schemas = schemas_of(contract)
    registry: SchemaRegistry = Registry().with_resources(
        (id, DRAFT202012.create_resource(schema)) for id, schema in schemas.items()
    )

    validators: dict[str, Any] = {}

    def problem_of(event: Envelope, id: str) -> str | None:
        if id not in validators:
            validators[id] = jsonschema.Draft202012Validator(schemas[id], registry=registry)
        return payload_problem(event, validators[id])

    return lambda event: payload_refusal(contract, event, problem_of)


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
