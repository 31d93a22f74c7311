"""What the presence functions are told by their environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from eventplane.settings import SettingsError
from eventplane.traffic import QuotaError, read_quota
from lambdas.common.settings import text, text_mapping
from lambdas.presence.watch import Limits

LIMITS: Final = "EVENTPLANE_PRESENCE_LIMITS"

QUOTA: Final = "EVENTPLANE_DEVICE_QUOTA"

TIMERS: Final = "timers"
"""The source of the function that judges devices at their deadlines."""

SCHEDULE: Final = "schedule"
"""The source of the reconciler."""


@dataclass(frozen=True, slots=True)
class PresenceSettings:
    """`source` says what the function is fed with (see `handler`). Only those that judge devices have an
    `outbox_url`, all but the reconciler a `source_queue`."""

    source: str
    table: str
    limits: Limits
    timer_queue: str
    outbox_url: str
    source_queue: str


def read_settings(environment: Mapping[str, str]) -> PresenceSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    source = text(environment, "EVENTPLANE_SOURCE")
    return PresenceSettings(
        source=source,
        table=text(environment, "EVENTPLANE_PRESENCE_TABLE"),
        limits=_limits(environment),
        timer_queue=text(environment, "EVENTPLANE_TIMER_QUEUE"),
        outbox_url=text(environment, "EVENTPLANE_OUTBOX_URL") if source in (TIMERS, SCHEDULE) else "",
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE") if source != SCHEDULE else "",
    )


def _limits(environment: Mapping[str, str]) -> Limits:
    values = text_mapping(environment, LIMITS)
    try:
        seconds = {each.name: float(values[each.name]) for each in fields(Limits) if each.name != "quota"}
        return Limits(**seconds, quota=read_quota(text(environment, QUOTA)))
    except QuotaError as error:
        raise SettingsError(QUOTA, str(error)) from error
    except (LookupError, ValueError) as error:
        raise SettingsError(LIMITS, f"does not give every limit in seconds ({error!r})") from error
