"""Read an untyped document field by field, and collect every fault instead of stopping at the first.

A `Setting` declares a member once: its reader, its JSON Schema (contract/schema.py) and its row in the docs
follow it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from eventplane.contract import ParticipantKind
from eventplane.contract.canonical import Problem

Choice = TypeVar("Choice", bound=StrEnum)

NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
NAME_REMEDY: Final = "use lower-case letters, digits and single hyphens, a letter first"


class Section:
    """One mapping of the document at `path`; faults go to the `problems` that all sections share."""

    def __init__(self, path: str, members: object, problems: list[Problem]) -> None:
        self.path = path
        self.problems = problems
        self._seen: set[str] = set()
        if members is None:
            members = {}
        if not isinstance(members, Mapping):
            self.fault("", "this is not a mapping", "write `name: value` pairs")
            members = {}
        self.members: Mapping[Any, Any] = members

    def fault(self, name: str, message: str, remedy: str) -> None:
        """Record a fault of member `name` ('': of the section itself)."""
        path = ".".join(part for part in (self.path, name) if part) or "(document)"
        self.problems.append(Problem(path, message, remedy))

    def section(self, name: str) -> Section:
        """Return the mapping under `name`; an empty one when it is absent."""
        self._seen.add(name)
        path = f"{self.path}.{name}" if self.path else name
        return Section(path, self.members.get(name), self.problems)

    def entries(self) -> dict[str, Section]:
        """Return every member as a section of its own, by name; names are checked."""
        for name in self.members:
            if not isinstance(name, str) or not NAME.fullmatch(name):
                self.fault(str(name), f"{name!r} is not a name", NAME_REMEDY)
        return {str(name): self.section(name) for name in self.members}

    def text(self, name: str, default: str | None = None) -> str:
        """Return a non-empty string."""
        value = self._take(name, default)
        if isinstance(value, str) and value.strip():
            return value
        self.fault(name, f"{value!r} is not a text", f"give `{name}` a non-empty string")
        return ""

    def choice(self, name: str, options: type[Choice], default: Choice | None) -> Choice | None:
        """Return one of the words of `options`; `default` when absent."""
        value = self._take(name, default)
        if value is None:
            return None
        try:
            return options(value)
        except ValueError:
            words = ", ".join(option.value for option in options)
            self.fault(name, f"{value!r} is not known", f"choose one of: {words}")
            return default

    def integer(self, name: str, default: int | None, low: int, high: int, unit: str) -> int | None:
        """Return an integer from `low` to `high` of `unit`; `default` when absent."""
        value = self._take(name, default)
        if value is None and default is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.fault(name, f"{value!r} is out of range", f"give {unit} from {low} to {high}")
        return default

    def boolean(self, name: str, default: bool) -> bool:
        """Return true or false; `default` when absent."""
        value = self._take(name, default)
        if isinstance(value, bool):
            return value
        self.fault(name, f"{value!r} is neither true nor false", "write true or false")
        return default

    def raw(self, name: str) -> Any:
        """Return the member unread, None when absent."""
        return self._take(name, None)

    def finish(self) -> None:
        """Record members that were not read: a misspelt setting must not be ignored silently."""
        for name in self.members:
            if name not in self._seen:
                known = ", ".join(sorted(self._seen))
                self.fault(str(name), "this setting is unknown", f"remove it or use one of: {known}")

    def _take(self, name: str, default: Any) -> Any:
        self._seen.add(name)
        value = self.members.get(name)
        return default if value is None else value


class Only(NamedTuple):
    """The channels where a setting may differ from its default: those at `box` of participants of `kinds`."""

    kinds: tuple[ParticipantKind, ...]
    box: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(ABC):
    """A setting of channels or webhooks: its default, its meaning, and where it may be set.

    `outbox_default` is that of an outbox, if it has its own. One that is not `is_always_written` is left out
    of a compiled contract where it has its default, so that older programs can read the contract.
    """

    default: Any
    meaning: str
    outbox_default: Any = None
    only: Only | None = None
    is_always_written: bool = False

    @abstractmethod
    def read(self, name: str, section: Section, default: Any = None) -> Any:
        """Return the member `name` of `section`; `default` replaces the setting's own."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a given value, without its meaning and its default."""

    def read_of(self, name: str, section: Section, kind: ParticipantKind, box: str = "") -> Any:
        """Return the member `name` of the section of a channel, or of a participant ('')."""
        value = self.read(name, section, self.outbox_default if box == "outbox" else None)
        if self.only and value != self.default and (kind not in self.only.kinds or box != self.only.box):
            section.fault(name, self.only.problem, self.only.remedy)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Word(Setting):
    """A setting that is one word of `options`."""

    options: type[StrEnum]

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        return section.choice(name, self.options, self.default if default is None else default)

    def schema(self) -> dict[str, Any]:
        return {"enum": [each.value for each in self.options]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Setting):
    """A setting that is a whole number of `unit` from `low` to `high`; `unset` is what None means."""

    low: int
    high: int
    unit: str
    unset: str = "no limit"

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        own = self.default if default is None else default
        return section.integer(name, own, self.low, self.high, self.unit)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Setting):
    """A setting that is a text, and is required."""

    default: Any = None

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        return section.text(name, default)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"\S"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Setting):
    """A setting that is true or false."""

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        return section.boolean(name, self.default if default is None else default)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Types(Setting):
    """A setting that lists types of events, or families of them; it is read as a sorted tuple."""

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        listed = section.raw(name)
        if listed is None:
            return self.default if default is None else default
        if not isinstance(listed, list):
            section.fault(name, "it is not a list", "list the types of its events, or `[]` for none")
            return self.default
        for at, each in enumerate(listed):
            if not isinstance(each, str) or not each:
                section.fault(f"{name}[{at}]", f"{each!r} is not a type", "name the `type` of events")
            elif "*" in each.removesuffix(".*"):
                section.fault(f"{name}[{at}]", f"{each!r}: it contains `*`", "write `.*` at the end only")
        return tuple(sorted({each for each in listed if isinstance(each, str)}))

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "pattern": r"^([^*]+|[^*]*\.\*)$"}}
