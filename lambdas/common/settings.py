"""A function's settings: environment variables, read once, refused with their name when they are wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from eventplane.settings import SettingsError
from eventplane.whole_numbers import whole_number as bounded

_MOST = 10**9


def text(environment: Mapping[str, str], variable: str) -> str:
    """A non-empty text. Raises `SettingsError`."""
    value = environment.get(variable, "")
    if not value:
        raise SettingsError(variable, "is not set")
    return value


def whole_number(environment: Mapping[str, str], variable: str, least: int = 1) -> int:
    """A number from `least`. Raises `SettingsError`."""
    try:
        return bounded(text(environment, variable), _MOST, least)
    except ValueError as error:
        raise SettingsError(variable, f"is {error}") from None


def text_mapping(environment: Mapping[str, str], variable: str) -> dict[str, str]:
    """A JSON object of texts. Raises `SettingsError`."""
    try:
        value = json.loads(text(environment, variable))
    except ValueError as error:
        raise SettingsError(variable, f"is not JSON ({error})") from error
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise SettingsError(variable, "is not a JSON object of texts")
    return value


def text_list(environment: Mapping[str, str], variable: str) -> tuple[str, ...]:
    """A JSON array of texts, at least one. Raises `SettingsError`."""
    try:
        value = json.loads(text(environment, variable))
    except ValueError as error:
        raise SettingsError(variable, f"is not JSON ({error})") from error
    if not (isinstance(value, list) and value and all(isinstance(each, str) for each in value)):
        raise SettingsError(variable, "is not a JSON array of texts")
    return tuple(value)


def bundle_root(environment: Mapping[str, str]) -> Path:
    """Where the function's code asset lies unpacked. Raises `SettingsError` outside of Lambda."""
    return Path(text(environment, "LAMBDA_TASK_ROOT"))
