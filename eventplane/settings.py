"""Declare and read the settings of functions.

The settings of a function are declared once, written by the stacks, and read by the function. A subclass of
`Settings` is a frozen dataclass. Its field `source_queue` is the environment variable
`EVENTPLANE_SOURCE_QUEUE`; its types say how the value is written:

- a text or an enumeration's text as it is,
- a number, a tuple, and any other dataclass as JSON,
- a mapping of texts as JSON too: the names by the pattern of their texts, in which `*` is the name, with `-`
  for each `.`, as queues are called after addresses. AWS Lambda has 4 KB for all variables of a function, and
  the URLs of a plane's queues differ in little else. What is named `*` is such a pattern itself,
- `X | None` is left out where it is None; a variable that is not set gives the default of its field,
- a field whose type is itself a `Settings` has its fields among the others.

Other documents are read by the same types (`structure`), and checked as `fields.py` declares settings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from types import NoneType
from typing import Any, Final, Self, TypeVar, get_args, get_origin, get_type_hints

from eventplane.errors import EventPlaneError
from eventplane.fields import Range, Texts, shown
from eventplane.values import nearest

T = TypeVar("T")

PREFIX: Final = "EVENTPLANE_"

_MOST: Final = 10**9

_NAME: Final = "*"
"""The name, in the pattern of a mapping's texts."""


class SettingsError(EventPlaneError):
    """An environment variable is missing or malformed. `variable` is its name."""

    variable: str
    problem: str
    message = "environment variable {variable} {problem}; the stacks set it, so deploy them again"


class WrongValueError(EventPlaneError):
    """The `setting`, given by its path, has a value that its declaration does not accept, or none."""

    setting: str
    problem: str
    message = "{setting} {problem}"


def variable_of(field: str) -> str:
    """Return the name of the environment variable that holds `field`."""
    return f"{PREFIX}{field.upper()}"


@dataclass(frozen=True)
class Settings:
    """Base of the settings of all functions."""

    def variables(self) -> dict[str, str]:
        """Return the environment variables that `read` reads. Texts may be tokens of the CDK."""
        found: dict[str, str] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Settings):
                found |= value.variables()
            elif value is not None:
                found[variable_of(each.name)] = written(value)
        return found

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Return the settings in `environment`. Raises `SettingsError`."""
        types = get_type_hints(cls)
        return cls(**{each.name: _read(each, types[each.name], environment) for each in fields(cls)})


def written(value: Any) -> str:
    """Return the text of `value` in a variable. Texts may be tokens of the CDK."""
    if isinstance(value, str):
        return str(value)
    return json.dumps(_by_pattern(value) if isinstance(value, Mapping) else value, default=asdict)


def _by_pattern(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of `texts` by pattern. Raises ValueError for a text that has a `*` already."""
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        if _NAME in text and name != _NAME:
            raise ValueError(f"{text!r} has a {_NAME}, which is the name in a pattern")
        before, found, after = text.rpartition(_in_pattern(name))
        names.setdefault(before + (_NAME if found else "") + after, []).append(name)
    return names


def _in_pattern(name: str) -> str:
    return name.replace(".", "-")


def without_none(hint: Any) -> Any:
    """Return the type `hint` without the None that it may allow."""
    return (
        next((each for each in get_args(hint) if each is not NoneType), hint) if is_optional(hint) else hint
    )


def is_optional(hint: Any) -> bool:
    """Return whether the type `hint` allows None."""
    return NoneType in get_args(hint)


def _read(field: Field[Any], annotation: Any, environment: Mapping[str, str]) -> Any:
    kind = without_none(annotation)
    if isinstance(kind, type) and issubclass(kind, Settings):
        is_absent = not any(environment.get(variable_of(each.name)) for each in fields(kind))
        return None if is_optional(annotation) and is_absent else kind.read(environment)
    variable = variable_of(field.name)
    text = environment.get(variable, "")
    if not text:
        if field.default is not MISSING or is_optional(annotation):
            return None if field.default is MISSING else field.default
        raise SettingsError(variable, "is not set")
    try:
        is_text = isinstance(kind, type) and issubclass(kind, str)
        given = text if is_text else _filled(json.loads(text))
        return _value(field, kind, _by_name(given) if get_origin(kind) is Mapping else given)
    except (ValueError, TypeError, LookupError, EventPlaneError) as error:
        raise SettingsError(variable, f"is malformed ({error})") from error


def _by_name(given: Any) -> dict[str, str]:
    patterns = value_of(Mapping[str, tuple[str, ...]], given)
    return {
        name: pattern.replace(_NAME, _in_pattern(name))
        for pattern, names in patterns.items()
        for name in _filled([*names])
    }


def _filled(given: Any) -> Any:
    if given == []:
        raise ValueError("it is empty")
    return given


def accepted(field: Field[Any], value: Any, path: str = "") -> Any:
    """Return `value` if the declaration of `field` accepts it. Raises `WrongValueError`."""
    accepts: Range | Texts | None = field.metadata.get("accepts")
    if accepts is None or (value is None and field.default is None):
        return value
    try:
        read = accepts.read(value)
    except ValueError as error:
        raise WrongValueError(path or field.name, f"is {shown(value)}; give {accepts}") from error
    # What is a number already stays as it is written: 3 does not become 3.0.
    return value if read == value else read


def check(settings: Any) -> None:
    """Raise `WrongValueError` for a field of a dataclass whose value its declaration does not accept."""
    for each in fields(settings):
        accepted(each, getattr(settings, each.name))


def structure(kind: type[T], given: Mapping[str, Any], path: str = "", *, is_strict: bool = True) -> T:
    """Return the dataclass `kind` whose members `given` has, the mapping at `path` of a document.

    Members that `kind` does not have are refused where `is_strict`. Raises `WrongValueError`, and what a
    type raises.
    """
    prefix = f"{path}." if path else ""
    declared = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if is_strict and name not in declared:
            raise WrongValueError(
                prefix + name, f"is unknown; remove it, or {nearest(name, declared, prefix)}"
            )
    hints, values = get_type_hints(kind), {}
    for name, each in declared.items():
        if name in given:
            values[name] = _value(each, hints[name], given[name], prefix + name, is_strict=is_strict)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise WrongValueError(prefix + name, "is missing; set it")
    try:
        return kind(**values)
    except WrongValueError as error:
        raise type(error)(prefix + error.setting, error.problem) from error


def _value(field: Field[Any], hint: Any, given: Any, path: str = "", *, is_strict: bool = False) -> Any:
    if "accepts" in field.metadata:
        return accepted(field, given, path)
    return value_of(hint, given, path or "it", is_strict=is_strict)


def value_of(hint: Any, given: Any, path: str = "it", *, is_strict: bool = False) -> Any:
    """Return the value of the type `hint` that JSON or TOML has as `given`, at `path` of a document.

    Raises `WrongValueError`, and what a type raises.
    """
    kind = without_none(hint)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (tuple, frozenset) and isinstance(given, list):
        return origin(
            value_of(arguments[0], each, f"{path}[{at}]", is_strict=is_strict)
            for at, each in enumerate(given)
        )
    if origin is Mapping and isinstance(given, dict):
        return {name: value_of(arguments[1], each, f"{path}.{name}") for name, each in given.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(given, dict):
        return structure(kind, given, path, is_strict=is_strict)
    if kind is bool and isinstance(given, bool):
        return given
    if kind is int and type(given) is int and 0 <= given <= _MOST:
        return given
    if kind is float and type(given) in (int, float) and math.isfinite(given):
        return given
    if isinstance(given, str) and isinstance(kind, type) and issubclass(kind, StrEnum | str):
        return kind(given)
    raise WrongValueError(path, f"is {shown(given)}, and no {getattr(kind, '__name__', kind)}")
