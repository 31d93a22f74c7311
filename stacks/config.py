"""The environments of `environments.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from eventplane.errors import EventPlaneError
from eventplane.settings import WrongValueError, value_of
from stacks.environment import Environment
from stacks.settings import EnvironmentSettingError

BASE: Final = "base"
"""The table with what environments leave out."""


class UnknownEnvironmentError(EventPlaneError):
    """There is no environment called `name`; `known` are those there are."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"environment {name!r} is unknown; use ENV=NAME (make) or --context env=NAME (cdk) with one of: "
            f"{', '.join(known)}"
        )
        self.name = name
        self.known = known


def read(text: str) -> dict[str, Environment]:
    """Return the environments that a TOML `text` declares, by name. Raises `EnvironmentSettingError`."""
    try:
        document = tomllib.loads(text)
        base = document.pop(BASE, {})
        for table, members in {BASE: base, **document}.items():
            if isinstance(members, dict) and "name" in members:
                raise EnvironmentSettingError(f"{table}.name", f"is the name of the table {table}; remove it")
        return {
            name: value_of(Environment, _merged({**base, "name": name}, own), name, is_strict=True)
            for name, own in document.items()
        }
    except (ValueError, RecursionError) as error:
        raise EnvironmentSettingError("the file", f"is not TOML: {error}") from error
    except WrongValueError as error:
        raise EnvironmentSettingError(error.setting, error.problem) from error


def _merged(base: Any, own: Any) -> Any:
    """Return `own`, with the members of `base` that it leaves out, also in the mappings that both have."""
    if not isinstance(base, Mapping) or not isinstance(own, Mapping):
        return own
    return {**base, **{name: _merged(base.get(name), each) for name, each in own.items()}}


ENVIRONMENTS: Final = read(Path(__file__).with_name("environments.toml").read_text("utf-8"))
"""All environments by name."""


def environment(name: str) -> Environment:
    """The environment called `name`. Raises `UnknownEnvironmentError`."""
    try:
        return ENVIRONMENTS[name]
    except KeyError:
        raise UnknownEnvironmentError(name, tuple(ENVIRONMENTS)) from None
