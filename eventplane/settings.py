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
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from types import NoneType
from typing import Any, Final, Self, get_args, get_origin, get_type_hints

from eventplane.errors import EventPlaneError
from eventplane.values import whole_number

PREFIX: Final = "EVENTPLANE_"

_MOST: Final = 10**9

_NAME: Final = "*"
"""The name, in the pattern of a mapping's texts."""


class SettingsError(EventPlaneError):
    """An environment variable is missing or malformed. `variable` is its name."""

    variable: str
    problem: str
    message = "environment variable {variable} {problem}; the stacks set it, so deploy them again"


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


def _read(field: Field[Any], annotation: Any, environment: Mapping[str, str]) -> Any:
    options = get_args(annotation)
    is_optional = NoneType in options
    kind = next(each for each in options if each is not NoneType) if is_optional else annotation
    if isinstance(kind, type) and issubclass(kind, Settings):
        is_absent = not any(environment.get(variable_of(each.name)) for each in fields(kind))
        return None if is_optional and is_absent else kind.read(environment)
    variable = variable_of(field.name)
    text = environment.get(variable, "")
    if not text:
        if field.default is not MISSING or is_optional:
            return None if field.default is MISSING else field.default
        raise SettingsError(variable, "is not set")
    try:
        is_text = isinstance(kind, type) and issubclass(kind, str)
        return _value(kind, text if is_text else json.loads(text))
    except (ValueError, TypeError, LookupError, EventPlaneError) as error:
        raise SettingsError(variable, f"is malformed ({error})") from error


def _value(kind: Any, given: Any) -> Any:
    """The value of the type `kind` that JSON has as `given`. Raises ValueError, and what a type raises."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(given, list) and given:
        return tuple(_value(arguments[0], each) for each in given)
    if origin is Mapping and isinstance(given, dict):
        return {
            name: pattern.replace(_NAME, _in_pattern(name))
            for pattern, names in given.items()
            for name in _value(tuple[str, ...], names)
        }
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(given, dict):
        types = get_type_hints(kind)
        return kind(**{each.name: _value(types[each.name], given[each.name]) for each in fields(kind)})
    if kind is int:
        return whole_number(given, _MOST)
    if kind is float and type(given) in (int, float) and math.isfinite(given):
        return float(given)
    if isinstance(given, str) and isinstance(kind, type) and issubclass(kind, StrEnum | str):
        return kind(given)
    raise ValueError(f"not the JSON of {getattr(kind, '__name__', kind)}")
