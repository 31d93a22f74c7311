"""Reads dataclasses whose fields say what they accept, from TOML and the environment."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Any, TypeVar

from edge.errors import SettingsError

_Number = TypeVar("_Number", int, float)

ENVIRONMENT_PREFIX = "EVENTPLANE_"

_Check = Callable[[Any], Any]
"""From a raw value (TOML's, or the environment's text) to the setting's; ValueError when it does not fit."""


def text(default: Any = MISSING) -> Any:
    """A non-empty text."""
    return _setting(default, "a non-empty text", _as_text)


def word(pattern: str, accepts: str) -> Any:
    """A text that is `pattern` from end to end, which `accepts` says for people."""

    def check(raw: Any) -> str:
        if not re.fullmatch(pattern, _as_text(raw)):
            raise ValueError
        return str(raw)

    return _setting(MISSING, accepts, check)


def path(default: Any = MISSING) -> Any:
    """A path; it need not exist yet."""
    return _setting(default, "a path", lambda raw: Path(_as_text(raw)))


def choice(default: str, options: tuple[str, ...]) -> Any:
    """One of a few words."""

    def check(raw: Any) -> str:
        if raw not in options:
            raise ValueError
        return str(raw)

    return _setting(default, f"one of {', '.join(options)}", check)


def whole(default: int, low: int, high: int, unit: str) -> Any:
    """A whole number of `unit` from `low` to `high`."""
    return _setting(default, f"{unit} from {low} to {high}", lambda raw: _in_range(_as_whole(raw), low, high))


def number(default: float, low: float, high: float, unit: str) -> Any:
    """A number of `unit` from `low` to `high`."""
    return _setting(
        default, f"{unit} from {low} to {high}", lambda raw: _in_range(_as_number(raw), low, high)
    )


def read_settings(
    file: Path,
    environment: Mapping[str, str],
    top: type,
    tables: Mapping[str, type],
    optional: Collection[str] = (),
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The checked members of the dataclass `top` and of each of `tables`. Raises `SettingsError`.

    A table among `optional` that the file does not have is not there; the environment alone does not make it.
    """
    document = _parse(file)
    found = {}
    for name, kind in tables.items():
        if name in optional and name not in document:
            continue
        raw = document.pop(name, {})
        if not isinstance(raw, dict):
            raise SettingsError(name, f"{raw!r} is not a table", f"write it as [{name}]")
        found[name] = _read(kind, raw, f"{name}.", environment, file.parent)
    own = _read(top, document, "", environment, file.parent, ignore=tables)
    return own, found


def _setting(default: Any, accepts: str, check: _Check) -> Any:
    metadata = {"accepts": accepts, "check": check}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(
            "--settings", f"{file}: {error.strerror}", "name a file that can be read"
        ) from error
    except ValueError as error:
        raise SettingsError("--settings", f"{file}: not TOML: {error}", "correct it at that place") from error


def _read(
    kind: type,
    raw: Mapping[str, Any],
    prefix: str,
    environment: Mapping[str, str],
    folder: Path,
    ignore: Iterable[str] = (),
) -> dict[str, Any]:
    known = {each.name: each for each in fields(kind) if each.name not in ignore}
    for name in raw:
        if name not in known:
            raise SettingsError(
                prefix + name, "it is unknown", f"remove it or use one of: {', '.join(known)}"
            )
    values = {}
    for name, each in known.items():
        variable = ENVIRONMENT_PREFIX + (prefix + name).replace(".", "_").upper()
        given = environment.get(variable, raw.get(name))
        if given is not None:
            values[name] = _checked(each, given, prefix + name, folder)
        elif each.default is MISSING:
            raise SettingsError(prefix + name, "it is missing", f"set it, or {variable}, to {_accepts(each)}")
    return values


def _checked(each: Field[Any], given: Any, name: str, folder: Path) -> Any:
    try:
        value = each.metadata["check"](given)
    except ValueError:
        raise SettingsError(name, f"{given!r} does not fit", f"give {_accepts(each)}") from None
    return folder / value if isinstance(value, Path) else value


def _accepts(each: Field[Any]) -> str:
    return str(each.metadata["accepts"])


def _as_text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError
    return raw


def _as_whole(raw: Any) -> int:
    return int(_plain(raw, int, str))


def _as_number(raw: Any) -> float:
    return float(_plain(raw, int, float, str))


def _plain(raw: Any, *kinds: type) -> Any:
    """Python takes True for 1 and cuts 1.5 to 1; a setting does neither."""
    if type(raw) not in kinds:
        raise ValueError
    return raw


def _in_range(value: _Number, low: _Number, high: _Number) -> _Number:
    # Written so that NaN is out of every range.
    if not low <= value <= high:
        raise ValueError
    return value
