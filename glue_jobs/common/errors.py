"""Why a job cannot work on an archive."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class ArchiveNotFoundError(EventPlaneError):
    """There is no archive at `uri`."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri}: no such folder; give --INPUT a folder or s3://bucket/")
        self.uri = uri
