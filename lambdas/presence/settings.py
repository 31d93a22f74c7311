"""What the presence functions are told by their environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from eventplane.traffic import QuotaError, read_quota
from lambdas.common.settings import SettingsError, text, text_mapping
from lambdas.presence.watch import Limits

LIMITS: Final = "EVENTPLANE_PRESENCE_LIMITS"

QUOTA: Final = "EVENTPLANE_DEVICE_QUOTA"

SWEEP: Final = "schedule"
"""The source of the sweeper."""


@dataclass(frozen=True, slots=True)
class PresenceSettings:
    """`source` says what the function is fed with (see `handler`); only the sweeper has an `outbox_url`,
    only the others a `source_queue`."""

    source: str
    table: str
    limits: Limits
    outbox_url: str | None
    source_queue: str


def read_settings(environment: Mapping[str, str]) -> PresenceSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    source = text(environment, "EVENTPLANE_SOURCE")
    return PresenceSettings(
        source=source,
        table=text(environment, "EVENTPLANE_PRESENCE_TABLE"),
        limits=_limits(environment),
        outbox_url=text(environment, "EVENTPLANE_OUTBOX_URL") if source == SWEEP else None,
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE") if source != SWEEP else "",
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
