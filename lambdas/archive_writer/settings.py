"""What the archive writer is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.common.settings import text


@dataclass(frozen=True, slots=True)
class ArchiveWriterSettings:
    """`archive_bucket` is where the tap is written; `source_queue` the URL of the queue with its frames."""

    source_queue: str
    archive_bucket: str


def read_settings(environment: Mapping[str, str]) -> ArchiveWriterSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return ArchiveWriterSettings(
        source_queue=text(environment, "EVENTPLANE_SOURCE_QUEUE"),
        archive_bucket=text(environment, "EVENTPLANE_ARCHIVE_BUCKET"),
    )
