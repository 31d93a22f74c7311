"""What the keeper is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.common.settings import text


@dataclass(frozen=True, slots=True)
class KeeperSettings:
    """`table` is the fleet's registry, `certificate_arns` what the ARNs of certificates start with."""

    table: str
    certificate_arns: str


def read_settings(environment: Mapping[str, str]) -> KeeperSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return KeeperSettings(
        table=text(environment, "EVENTPLANE_FLEET_TABLE"),
        certificate_arns=text(environment, "EVENTPLANE_CERTIFICATE_ARNS"),
    )
