"""What the archive writer is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventplane.settings import SettingsError
from eventplane.traffic import Quota, QuotaError, read_quota
from lambdas.common.settings import text

QUEUE = "EVENTPLANE_TRAFFIC_QUEUE"
QUOTA = "EVENTPLANE_DEVICE_QUOTA"


@dataclass(frozen=True, slots=True)
class ArchiveWriterSettings:
    """`archive_bucket` is where the tap is written; `source_queue` the URL of the queue with its frames.

    `traffic_queue` is the URL of the presence monitor's queue, None where there is no monitor; it is told of
    devices that are loud by the `quota`.
    """

    source_queue: str
    archive_bucket: str
    traffic_queue: str | None
    quota: Quota | None


def read_settings(environment: Mapping[str, str]) -> ArchiveWriterSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    is_counted = bool(environment.get(QUEUE))
    return ArchiveWriterSettings(
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE"),
        archive_bucket=text(environment, "EVENTPLANE_ARCHIVE_BUCKET"),
        traffic_queue=text(environment, QUEUE) if is_counted else None,
        quota=_quota(environment) if is_counted else None,
    )


def _quota(environment: Mapping[str, str]) -> Quota:
    try:
        return read_quota(text(environment, QUOTA))
    except QuotaError as error:
        raise SettingsError(QUOTA, str(error)) from error
