"""Why an hour could not be compacted. Its raw objects stay, so nothing is lost by it."""

from __future__ import annotations

from collections.abc import Mapping

from eventplane.errors import EventPlaneError


class HourError(EventPlaneError):
    """One hour could not be compacted."""


class ChangedHourError(HourError):
    """Objects of `hour` changed while it was read."""

    def __init__(self, hour: str) -> None:
        super().__init__(f"{hour}: its objects changed meanwhile (an erasure?); run the compaction again")
        self.hour = hour


class UnverifiedError(HourError):
    """What was written for `hour` is not what was read: `read` and `written` rows and checksums."""

    def __init__(self, hour: str, read: tuple[int, int], written: tuple[int, int]) -> None:
        super().__init__(
            f"{hour}: {written[0]} rows (checksum {written[1]}) were written for {read[0]} ({read[1]}); "
            "the raw objects stay as they are, run the compaction again"
        )
        self.hour = hour
        self.read = read
        self.written = written


class SourcesGoneError(HourError):
    """`hour` has objects that came after it was compacted, and lacks some that had been: `late`, by name."""

    def __init__(self, hour: str, late: tuple[str, ...]) -> None:
        super().__init__(
            f"{hour}: {', '.join(late)[:500]} came after the hour was compacted, and its first objects are "
            "gone; restore their old versions, or move these objects to the folder of the present hour"
        )
        self.hour = hour
        self.late = late


class CompactedGoneError(HourError):
    """`files` of the compacted `hour` are gone or no longer published, so its raw objects are kept."""

    def __init__(self, hour: str, files: tuple[str, ...]) -> None:
        super().__init__(
            f"{hour}: {', '.join(files)[:500]} should hold its rows and are gone or not published; restore "
            "their old versions, or delete the hour's receipt to compact it again from the raw objects"
        )
        self.hour = hour
        self.files = files


class CompactionError(EventPlaneError):
    """Some hours failed: `failures` by folder and hour. All others are compacted."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        told = "; ".join(f"{hour}: {reason:.300}" for hour, reason in list(failures.items())[:10])
        super().__init__(f"{len(failures)} hours stay as they are: {told}")
        self.failures = dict(failures)
