"""What the keeper is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.common.settings import text, whole_number


@dataclass(frozen=True, slots=True)
class KeeperSettings:
    """`table` is the fleet's registry, `certificate_arns` what the ARNs of certificates start with.

    `queue` is the URL of the function's own source, `grace_s` the seconds that a replaced certificate has.
    """

    table: str
    certificate_arns: str
    queue: str
    grace_s: int


def read_settings(environment: Mapping[str, str]) -> KeeperSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return KeeperSettings(
        table=text(environment, "EVENTPLANE_FLEET_TABLE"),
        certificate_arns=text(environment, "EVENTPLANE_CERTIFICATE_ARNS"),
        queue=text(environment, "EVENTPLANE_SOURCE_QUEUE"),
        grace_s=whole_number(environment, "EVENTPLANE_CERTIFICATE_GRACE_S", least=0),
    )
