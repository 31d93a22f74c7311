"""What the function is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lambdas.common.settings import bundle_root, text


@dataclass(frozen=True, slots=True)
class UplinkInterestSettings:
    """Tables by name, the queue `outbox` by URL; beneath `root` lies the contract that came with the code."""

    contracts: str
    subscriptions: str
    desired: str
    outbox: str
    root: Path


def read_settings(environment: Mapping[str, str]) -> UplinkInterestSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return UplinkInterestSettings(
        contracts=text(environment, "EVENTPLANE_CONTRACTS_TABLE"),
        subscriptions=text(environment, "EVENTPLANE_SUBSCRIPTIONS_TABLE"),
        desired=text(environment, "EVENTPLANE_DESIRED_TABLE"),
        outbox=text(environment, "EVENTPLANE_OUTBOX_QUEUE"),
        root=bundle_root(environment),
    )
