"""Which events an audit is about, and until when the archive counts as complete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from glue_jobs.common.hours import Days

LATE_DAYS = 14
"""How many days after its acceptance an event can still be written to the archive, days. The longest that an
SQS queue keeps a message (Amazon SQS quotas): until then a router's or archive's backlog may still come."""

DAY_MS = 86_400_000

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, Unix milliseconds: later times are nonsense, and overflow further on."""


@dataclass(frozen=True, slots=True)
class Window:
    """One UTC `day`, or (None) everything."""

    day: date | None = None

    def __str__(self) -> str:
        return self.day.isoformat() if self.day else "all"

    @property
    def folders(self) -> Days:
        """The archive's days that can hold the window's rows.

        The day before is among them: a clock that is behind at midnight writes there, and a device's first
        statement of a day speaks of it.
        """
        if self.day is None:
            return Days()
        return Days(self.day - timedelta(days=1), self.day + timedelta(days=LATE_DAYS))

    @property
    def span_ms(self) -> tuple[int, int]:
        """The first and the last time of the window, Unix milliseconds."""
        if self.day is None:
            return 0, LAST_MS
        first = datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)
        first_ms = int(first.timestamp()) * 1_000
        return first_ms, first_ms + DAY_MS - 1


def date_of(milliseconds: int) -> str:
    """Return the UTC day of a Unix time, `YYYY-MM-DD`."""
    return _date(milliseconds // DAY_MS)


@lru_cache(maxsize=1_024)
def _date(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


LATENESS_S = 3_600
"""How long after its acceptance an event's record may take to the archive before it is missed, seconds. Ours:
four of the longest waits (15 min) between two attempts of a router."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """An audit of the archive as it was `as_of_ms` (Unix milliseconds), which waits for `lateness_s`.

    It follows the clock of whoever audits, not the newest row: a router that has stopped writes no row that
    would ever close the window in which it stopped.
    """

    as_of_ms: int
    lateness_s: int = LATENESS_S

    @property
    def ms(self) -> int:
        """The watermark, Unix milliseconds."""
        return self.as_of_ms - 1_000 * self.lateness_s

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return {"as_of_ms": self.as_of_ms, "lateness_s": self.lateness_s, "watermark_ms": self.ms}
