"""Read dataclasses whose fields declare settings, from TOML and the environment."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from edge.errors import DeviceSettingsError, SettingProblem
from eventplane.values import Range, nearest
from eventplane_mqtt.endpoint import is_host

ENVIRONMENT_PREFIX = "EVENTPLANE_"


class TextSetting(NamedTuple):
    """The texts that `accepts` names; `read` makes the setting's value of one, or raises ValueError."""

    accepts: str
    read: Callable[[Any], Any]
    pattern: str = r".*\S.*"

    def __str__(self) -> str:
        return self.accepts


def text(default: Any = MISSING) -> Any:
    """Declare a non-empty text."""
    return _setting(default, TextSetting("a non-empty text", _as_text))


def word(pattern: str, accepts: str, default: Any = MISSING) -> Any:
    """Declare a text that is `pattern` from end to end, which `accepts` says for people."""

    def read(raw: Any) -> str:
        if not re.fullmatch(pattern, _as_text(raw)):
            raise ValueError
        return str(raw)

    return _setting(default, TextSetting(accepts, read, pattern))


def host_name(default: Any = MISSING, *, is_socket_allowed: bool = False) -> Any:
    """Declare a host name or an IP address, or the path of a Unix socket where `is_socket_allowed`."""

    def read(raw: Any) -> str:
        if not is_host(_as_text(raw)) and not (is_socket_allowed and re.fullmatch(r"/[^\x00]+", raw)):
            raise ValueError
        return str(raw)

    accepts = "a host name or IP address, without scheme and port"
    return _setting(default, TextSetting(f"{accepts}, or a path" if is_socket_allowed else accepts, read))


def path(default: Any = MISSING, accepts: str = "a path") -> Any:
    """Declare a path, which need not exist yet. A text of several lines is a file's content, not its name."""

    def read(raw: Any) -> Path:
        if not _as_text(raw).isprintable():
            raise ValueError
        return Path(raw)

    return _setting(default, TextSetting(accepts, read))


def flag(default: bool) -> Any:
    """Declare a setting that is true or false."""
    words = {"true": True, "false": False}

    def read(raw: Any) -> bool:
        if raw is not True and raw is not False and raw not in words:
            raise ValueError
        return words.get(raw, raw is True)

    return _setting(default, TextSetting("true or false", read))


def choice(default: str, options: tuple[str, ...]) -> Any:
    """Declare one of a few words."""
    return word("|".join(map(re.escape, options)), f"one of {', '.join(options)}", default)


def whole(default: int, low: int, high: int, unit: str) -> Any:
    """Declare a whole number of `unit` from `low` to `high`."""
    return _setting(default, Range(low, high, unit, is_whole=True))


def number(default: float, low: float, high: float, unit: str) -> Any:
    """Declare a number of `unit` from `low` to `high`."""
    return _setting(default, Range(low, high, unit))


class SettingsReader:
    """Reads a TOML `file` under an `environment` that overrides it; collects what is wrong as `problems`."""

    def __init__(self, file: Path, environment: Mapping[str, str]) -> None:
        self.problems: list[SettingProblem] = []
        self._folder = file.parent
        self._environment = environment
        self._document = self._parse(file)

    def read(self, kind: type, table: str = "", *, tables: Collection[str] = ()) -> dict[str, Any]:
        """Return the valid settings of the dataclass `kind` in `[table]`, "" for the top level.

        `tables` are members of the top level that are read by themselves.
        """
        known = {each.name: each for each in fields(kind) if each.name not in tables}
        prefix = f"{table}." if table else ""
        raw = self._table(table) if table else self._document
        for name in raw:
            if name not in known and name not in tables:
                remedy = f"remove it, or {nearest(name, known, prefix)}"
                self._note(prefix + name, "it is unknown", remedy)
        self._refuse_unknown_variables(prefix, known)
        values: dict[str, Any] = {}
        for name, each in known.items():
            variable = variable_of(prefix + name)
            given = self._environment.get(variable, raw.get(name))
            if given is not None:
                values |= self._checked(each, given, prefix)
            elif each.default is MISSING:
                self._note(
                    prefix + name, "it is missing", f"set it, or {variable}, to {each.metadata['accepts']}"
                )
        return values

    def has(self, table: str) -> bool:
        """Return whether the file has `[table]`; the environment alone does not make it."""
        return table in self._document

    def _note(self, setting: str, problem: str, remedy: str) -> None:
        self.problems.append(SettingProblem(setting, problem, remedy))

    def _parse(self, file: Path) -> dict[str, Any]:
        try:
            return tomllib.loads(file.read_text("utf-8"))
        except OSError as error:
            problem = SettingProblem(
                "--settings", f"{file}: {error.strerror}", "name a file that can be read"
            )
            raise DeviceSettingsError([problem]) from error
        except ValueError as error:
            problem = SettingProblem("--settings", f"{file}: not TOML: {error}", "correct it at that place")
            raise DeviceSettingsError([problem]) from error

    def _table(self, name: str) -> Mapping[str, Any]:
        raw = self._document.get(name, {})
        if isinstance(raw, dict):
            return raw
        self._note(name, f"{raw!r} is not a table", f"write it as [{name}]")
        return {}

    def _checked(self, each: Field[Any], given: Any, prefix: str) -> dict[str, Any]:
        try:
            value = each.metadata["accepts"].read(given)
        except ValueError:
            # What may be a key, or a URL with a password, is not repeated.
            is_secret = isinstance(given, str) and re.search("[\n@]", given)
            shown = "what has several lines or an @" if is_secret else repr(given)
            self._note(prefix + each.name, f"{shown} does not fit", f"give {each.metadata['accepts']}")
            return {}
        return {each.name: self._folder / value if isinstance(value, Path) else value}

    def _refuse_unknown_variables(self, prefix: str, known: Collection[str]) -> None:
        """Refuse those of a table only: other programs of the plane have variables with our prefix, too."""
        start = variable_of(prefix)
        variables = {variable_of(prefix + name) for name in known}
        for variable in sorted(self._environment):
            if prefix and variable.startswith(start) and variable not in variables:
                remedy = f"remove it, or {nearest(variable, variables)}"
                self._note(variable, "no setting has this variable", remedy)


def variable_of(setting: str) -> str:
    """Return the environment variable that overrides a setting."""
    return ENVIRONMENT_PREFIX + setting.replace(".", "_").upper()


def _setting(default: Any, accepts: TextSetting | Range) -> Any:
    return field(default=default, metadata={"accepts": accepts})


def _as_text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError
    return raw
