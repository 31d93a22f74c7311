"""Whether, and where to, a function tells the spans of events. Off is the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from eventplane.settings import SettingsError
from lambdas.common.settings import text

ENDPOINT: Final = "EVENTPLANE_OTLP_ENDPOINT"
SHARE: Final = "EVENTPLANE_TRACE_SHARE"


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """The collector's base URL, the `share` (0 to 1) of events that are drawn without being asked for it,
    and the name of this function as a `service`."""

    endpoint: SplitResult
    share: float
    service: str


def read_tracing(environment: Mapping[str, str]) -> TracingSettings | None:
    """The settings in `environment`; None where there is no endpoint. Raises `SettingsError`."""
    if not environment.get(ENDPOINT):
        return None
    return TracingSettings(
        _endpoint(environment), _share(environment), text(environment, "POWERTOOLS_SERVICE_NAME")
    )


def _endpoint(environment: Mapping[str, str]) -> SplitResult:
    try:
        parts = urlsplit(environment[ENDPOINT])
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise SettingsError(ENDPOINT, "is not the http:// or https:// URL of a collector")
    return parts


def _share(environment: Mapping[str, str]) -> float:
    try:
        share = float(text(environment, SHARE))
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SettingsError(SHARE, "is not a number from 0 to 1")
    return share
