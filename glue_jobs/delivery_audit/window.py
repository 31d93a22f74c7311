"""Which events an audit is about: those that IoT Core accepted on one UTC day, or all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as sf

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

    def folders(self) -> Column:
        """Of the archive's `date` folders, those that can hold the window's rows."""
        if self.day is None:
            return sf.lit(True)
        last = self.day + timedelta(days=LATE_DAYS)
        return sf.col("date").between(self.day.isoformat(), last.isoformat())

    def around(self) -> Column:
        """As `folders`, and the day before: a device's first statement of a day speaks of it."""
        if self.day is None:
            return sf.lit(True)
        first, last = self.day - timedelta(days=1), self.day + timedelta(days=LATE_DAYS)
        return sf.col("date").between(first.isoformat(), last.isoformat())

    def holds(self, day: Column) -> Column:
        """Whether `day` (`YYYY-MM-DD`) lies in the window."""
        return sf.lit(True) if self.day is None else day == self.day.isoformat()


def day_of(milliseconds: Column) -> Column:
    """The UTC day of a Unix time, `YYYY-MM-DD`."""
    days = sf.floor(milliseconds / DAY_MS).cast("int")
    return sf.date_add(sf.lit(date(1970, 1, 1)), days).cast("string")


def is_time(milliseconds: Column) -> Column:
    """Whether this is a time that can be, Unix milliseconds."""
    return sf.coalesce(milliseconds.between(0, LAST_MS), sf.lit(False))
