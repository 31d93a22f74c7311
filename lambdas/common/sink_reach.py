"""Where the endpoints that participants subscribe may be."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from lambdas.common.settings import SettingsError, text

VARIABLE: Final = "EVENTPLANE_SINKS"


class SinkReach(StrEnum):
    """Nowhere where the contract has nobody who posts to them, anywhere where the cloud is emulated."""

    NOWHERE = "nowhere"
    INTERNET = "internet"
    ANYWHERE = "anywhere"


def read_sink_reach(environment: Mapping[str, str]) -> SinkReach:
    """What `environment` says. Raises `SettingsError`."""
    try:
        return SinkReach(text(environment, VARIABLE))
    except ValueError:
        raise SettingsError(VARIABLE, f"is none of {', '.join(SinkReach)}") from None
