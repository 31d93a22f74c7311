"""What the function of the Discovery API is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lambdas.common.settings import bundle_root, text, whole_number


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """`contracts_table` has the published contracts, `subscriptions_table` the routes that participants
    added; both are looked at every `refresh_s` seconds."""

    contracts_table: str
    subscriptions_table: str
    refresh_s: int
    root: Path


def read_settings(environment: Mapping[str, str]) -> DiscoverySettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return DiscoverySettings(
        contracts_table=text(environment, "EVENTPLANE_CONTRACTS_TABLE"),
        subscriptions_table=text(environment, "EVENTPLANE_SUBSCRIPTIONS_TABLE"),
        refresh_s=whole_number(environment, "EVENTPLANE_CONTRACT_REFRESH_S"),
        root=bundle_root(environment),
    )
