"""Where the functions tell the spans of events to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eventplane.trace_context import DEFAULT_SHARE
from stacks.setting_error import EnvironmentSettingError

_URL: Final = re.compile(
    r"(http://(localhost|127\.0\.0\.1):\d{1,5}|https://[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?)(/[\w.~-]+)*/?",
    re.ASCII,
)
_LAYER: Final = re.compile(r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:layer:[A-Za-z0-9_-]+:\d+")


@dataclass(frozen=True, kw_only=True)
class TracingSettings:
    """The collector, and what it is told.

    Args:
        endpoint: base URL of an OpenTelemetry collector that takes OTLP over HTTP, without credentials.
        share: of the events that carry no `traceparent`, so many are drawn, 0 to 1.
        collector_layer: ARN of a Lambda layer that runs the collector beside each function, at
            `http://localhost:4318`; it holds the credentials that a backend asks for.
    """

    endpoint: str
    share: float = DEFAULT_SHARE
    collector_layer: str | None = None

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.endpoint):
            # It is not repeated, since it may hold a password.
            raise EnvironmentSettingError(
                "tracing.endpoint", "is neither https:// without credentials nor http://localhost:PORT"
            )
        if not 0 <= self.share <= 1:
            raise EnvironmentSettingError("tracing.share", f"is {self.share}, not within 0 to 1")
        if self.collector_layer is not None and not _LAYER.fullmatch(self.collector_layer):
            raise EnvironmentSettingError(
                "tracing.collector_layer", f"is {self.collector_layer!r}, not the ARN of a layer's version"
            )

    @property
    def variables(self) -> dict[str, str]:
        """What a function is told (lambdas/common/tracing_settings.py)."""
        return {"EVENTPLANE_OTLP_ENDPOINT": self.endpoint, "EVENTPLANE_TRACE_SHARE": str(self.share)}
