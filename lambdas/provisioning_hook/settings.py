"""What the hook is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.common.settings import text


@dataclass(frozen=True, slots=True)
class HookSettings:
    """`table` is the fleet's registry."""

    table: str


def read_settings(environment: Mapping[str, str]) -> HookSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return HookSettings(table=text(environment, "EVENTPLANE_FLEET_TABLE"))
