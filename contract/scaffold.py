"""New entries of a contract: a participant, an event type with its schema, and the routes between them.

Each is inserted into the contract's text, which is compiled in a copy and written only if all of it is valid.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from contract.checks import check
from contract.edit import ContractEditError, add_entry, append_item
from contract.loader import CONTRACT_FILE, load_contract
from eventplane import __version__
from eventplane.contract import Contract, ContractError, Participant, ParticipantKind, SchemaCheck, names_type
from eventplane.contract.possibilities import can_match, of_type
from eventplane.contract.reader import NAME, NAME_REMEDY
from eventplane.errors import EventPlaneError
from eventplane.names import SUBSCRIBERS
from eventplane.reach import Reachability

_PROJECT: Final = Path(__file__).parent / "project"
"""The files of a new project: `X.in` becomes `X`, with its name for `@NAME@`, our version for `@VERSION@`."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_VERSION: Final = re.compile(r"v\d+(\.\d+)*")


class ScaffoldError(EventPlaneError):
    """An entry was not added: `problem`. Nothing has changed."""

    problem: str
    remedy: str
    message = "{problem}; {remedy}"


@dataclass(slots=True)
class Scaffold:
    """A contract's text with new entries, and the files that come with it."""

    path: Path
    original: Contract
    text: str
    contract: Contract
    """The contract with the entries, as it was last compiled."""
    added: list[str] = field(default_factory=list)
    """What was added, in words."""
    schemas: dict[str, bytes] = field(default_factory=dict)
    """New files under `schemas/`: name -> content."""
    warnings: tuple[str, ...] = ()
    """Warnings that the new entries cause."""
    read: str = field(init=False)
    """The text without the entries."""

    def __post_init__(self) -> None:
        self.read = self.text

    @classmethod
    def of(cls, path: Path) -> Scaffold:
        """Read the contract at `path`. Raises `ContractError` and `ScaffoldError`."""
        if path.suffix == ".json":
            raise ScaffoldError(
                f"{path}: a compiled contract", "name the YAML file that it was compiled from"
            )
        contract = load_contract(path)
        return cls(path, contract, path.read_bytes().decode("utf-8"), contract)

    def add(self, place: str, name: str, value: Any) -> None:
        """Add the entry `name` to the section `place`. Raises `ScaffoldError`."""
        self.text = self._edited(lambda: add_entry(self.text, (place,), name, value))
        self.added.append(f"{place}.{name}")

    def add_route(self, name: str, filter: dict[str, Any], to: str) -> None:
        """Add a route under a name that no other route has. Raises `ScaffoldError`."""
        taken = {each.name for each in self.contract.routes}
        number = next(at for at in range(1, len(taken) + 2) if _numbered(name, at) not in taken)
        self.add("routes", _numbered(name, number), {"filter": filter, "to": to})

    def declare_sent(self, participant: Participant, type: str) -> None:
        """Add `type` to what `participant` sends, unless it is there. Raises `ScaffoldError`."""
        if participant.may_send(type):
            return
        place = ("participants", participant.name, "sends")
        self.text = self._edited(lambda: append_item(self.text, place, type))
        self.added.append(f"{'.'.join(place)}: {type}")

    def compile(self) -> None:
        """Check the text as it is now, and find its new warnings. Raises `ContractError`."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / self.path.name
            existing = self.path.parent / "schemas"
            schemas = Path(folder) / "schemas"
            if existing.is_dir():
                shutil.copytree(existing, schemas)
            schemas.mkdir(exist_ok=True)
            for name, content in self.schemas.items():
                (schemas / name).write_bytes(content)
            copy.write_bytes(self.text.encode())
            try:
                self.contract = load_contract(copy)
            except ContractError as error:
                raise ContractError(str(self.path), error.problems) from error
        before = {str(each) for each in check(self.original)}
        self.warnings = tuple(each for each in map(str, check(self.contract)) if each not in before)

    def write(self) -> None:
        """Write the new schemas and the contract. Raises `ScaffoldError`, also for a changed file."""
        folder = self.path.parent / "schemas"
        file = self.path.resolve()  # a link stays one
        try:
            with _alone(file.parent):
                if file.read_bytes() != self.read.encode():
                    problem = f"{self.path} has changed since this command read it"
                    raise ScaffoldError(problem, "nothing was added: repeat the command")
                folder.mkdir(exist_ok=True)
                for name, content in self.schemas.items():
                    (folder / name).write_bytes(content)
                # Replaced at once: a contract that is half written would be invalid.
                new = file.with_name(f".{file.name}.new")
                new.write_bytes(self.text.encode())
                shutil.copymode(file, new)
                new.replace(file)
        except OSError as error:
            problem = f"{error.filename}: cannot be written: {error.strerror}"
            raise ScaffoldError(problem, "name a contract in a folder of yours by --contract") from error

    def _edited(self, edit: Callable[[], str]) -> str:
        try:
            return edit()
        except ContractEditError as error:
            raise ScaffoldError(f"{self.path}: {error}", "then repeat the command for the rest") from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for other commands that write in `folder`. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def copy_contract(folder: Path) -> Path:
    """Copy the plane's own contract with its schemas into the new `folder`, and return the contract's file.

    Raises `ScaffoldError`.
    """
    file = folder / CONTRACT_FILE.name
    try:
        if file.exists():  # beside no schemas
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        shutil.copytree(CONTRACT_FILE.parent / "schemas", folder / "schemas")
        return Path(shutil.copy(CONTRACT_FILE, file))
    except OSError as error:
        raise ScaffoldError(f"{folder}: cannot be made: {error.strerror}", "name a new folder") from error


def new_project(folder: Path) -> list[Path]:
    """Write a project of its own, called as the `folder`, into that new or empty folder; return its files.

    It has a contract with a schema, two services and their test. Raises `ScaffoldError`.
    """
    try:
        name = folder.resolve().name
    except RuntimeError as error:  # Python 3.11's word for links that lead to each other
        raise ScaffoldError(f"{folder}: its links lead in a circle", "name a new folder") from error
    if not NAME.fullmatch(name):
        raise ScaffoldError(f"{name!r} is not a name", NAME_REMEDY)
    files = {}
    for each in sorted(_PROJECT.rglob("*.in")):
        text = each.read_text("utf-8").replace("@NAME@", name).replace("@VERSION@", __version__)
        files[folder / each.relative_to(_PROJECT).with_suffix("")] = text
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ScaffoldError(f"{folder}: the folder is not empty", "name a new or an empty folder")
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    except OSError as error:
        problem = f"{error.filename or folder}: cannot be made: {error.strerror}"
        raise ScaffoldError(problem, "name a new folder in one of yours") from error
    return list(files)


def new_participant(
    path: Path,
    name: str,
    kind: ParticipantKind,
    *,
    description: str = "",
    receives: Sequence[str] = (),
    webhook: bool = False,
) -> Scaffold:
    """Return the contract at `path` with a participant that receives `receives`: types, or families `X.*`.

    Raises `ContractError`, `ScaffoldError`.
    """
    scaffold = Scaffold.of(path)
    if name in scaffold.contract.participants:
        raise ScaffoldError(
            f"{path}: the participant {name} exists", "choose another name, or edit its entry"
        )
    entry: dict[str, Any] = {"kind": kind.value, "description": description or f"The {_spaced(name)}."}
    if webhook:
        entry["inbox"] = {"webhook": {}}
    entry["sends"] = []
    taken = [_filter_of(each) for each in receives]
    wanted = taken[0] if len(taken) == 1 else {"any": taken}
    if taken and kind is ParticipantKind.CLOUD_SERVICE and SUBSCRIBERS in scaffold.contract.participants:
        entry["may_subscribe"] = wanted
    scaffold.add("participants", name, entry)
    if taken:
        scaffold.add_route(f"events-to-{name}", wanted, f"{name}.inbox")
    scaffold.compile()
    _lead(scaffold, name, [each for each in scaffold.contract.event_types if names_type(receives, each)])
    scaffold.compile()
    return scaffold


def new_event_type(
    path: Path,
    type: str,
    sender: str,
    *,
    description: str = "",
    priority: str = "",
    receivers: Sequence[str] = (),
    schema_id: str = "",
) -> Scaffold:
    """Return the contract at `path` with an event type that `sender` sends, and routes to the `receivers`.

    Its schema is new and takes any object; its `$id` is `schema_id`, or made from the type's domain.
    Raises `ContractError`, `ScaffoldError`.
    """
    scaffold = Scaffold.of(path)
    contract = scaffold.contract
    if type in contract.event_types:
        raise ScaffoldError(f"{path}: the event type {type} exists", "choose another name, or edit its entry")
    for each in (sender, *receivers):
        if each not in contract.participants:
            known = ", ".join(contract.participants)
            raise ScaffoldError(f"{path}: no participant is called {each}", f"name one of: {known}")
    file = f"{'-'.join(_words(type))}{_version(type)}.json"
    if not (path.parent / "schemas" / file).exists():
        scaffold.schemas[file] = _schema(schema_id or _schema_id(type, file), description or type)
    entry: dict[str, Any] = {"description": description or f"{' '.join(_words(type)).capitalize()}."}
    if priority:
        entry["priority"] = priority
    entry |= {"schemas": [file], "schema_check": SchemaCheck.STRICT.value}
    scaffold.add("event_types", type, entry)
    scaffold.declare_sent(contract.participants[sender], type)
    for each in receivers:
        scaffold.add_route(f"{'-'.join(_words(type))}-to-{each}", _filter_of(type), f"{each}.inbox")
        scaffold.compile()
        _lead(scaffold, each, [type])
    scaffold.compile()
    return scaffold


def receivers_of(contract: Contract, type: str) -> list[str]:
    """Return the participants that receive events of `type` from those who declare to send it."""
    reach = Reachability(contract)
    return list(
        dict.fromkeys(
            way.channel.participant
            for sender in reach.rights.declared_senders(type)
            for way in reach.ways(type, sender)
            if way.channel.participant != contract.device.name
        )
    )


def _lead(scaffold: Scaffold, receiver: str, types: Iterable[str]) -> None:
    """Add routes between device and cloud for those of `types` that do not come to `receiver` otherwise."""
    contract = scaffold.contract
    reach = Reachability(contract)
    is_on_device = contract.participants[receiver].kind.is_on_device
    relay, where = (
        (contract.device.inbox, "to-devices") if is_on_device else (contract.device.outbox, "to-cloud")
    )
    led = [each for each in contract.routes if each.destination == relay.address]
    for type in types:
        crosses = any(
            sender.kind.is_on_device is not is_on_device for sender in reach.rights.declared_senders(type)
        )
        if crosses and not any(can_match(each.filter, of_type(type)) for each in led):
            scaffold.add_route(f"{'-'.join(_words(type))}-{where}", _filter_of(type), relay.address)


def _filter_of(type: str) -> dict[str, Any]:
    return {"prefix": {"type": type[:-1]}} if type.endswith(".*") else {"exact": {"type": type}}


def _spaced(name: str) -> str:
    return name.replace("-", " ")


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _version(type: str) -> str:
    found = _VERSION.search(type.rpartition(".")[2])
    return f".{found[0]}" if found else ".v1"


def _words(type: str) -> list[str]:
    """Return what follows the domain in a type, without its version: `laundry`, `done`."""
    parts = [each for each in type.split(".") if not _VERSION.fullmatch(each)]
    words = (re.sub(r"[^a-z0-9]+", "-", each.lower()).strip("-") for each in parts[2:] or parts[-1:])
    return [each for each in words if each] or ["event"]


def _schema_id(type: str, file: str) -> str:
    """Return the URI of a type's schema at its own domain, which the type has in reverse."""
    domain = ".".join(reversed(type.split(".")[:2]))
    return f"https://schemas.{domain}/{file}"


def _schema(id: str, title: str) -> bytes:
    schema = {
        "$schema": _DIALECT,
        "$id": id,
        "title": title,
        "type": "object",
        "properties": {},
        "additionalProperties": True,
        "examples": [{}],
    }
    return (json.dumps(schema, indent=2, ensure_ascii=False) + "\n").encode()
