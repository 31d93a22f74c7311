"""The archive's hours: which there are, and which nobody writes to any more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from eventplane.archive_layout import COMPACTED, COMPACTIONS, PUBLISHED
from glue_jobs.common.objects import Objects

GRACE = timedelta(minutes=30)
"""How long after its end an hour may still be written to. An object's hour is taken just before it is
written, and the function that writes it lives 15 minutes at most (AWS Lambda quotas)."""

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)

_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_HOUR_FOLDER = re.compile(r"hour=([01]\d|2[0-3])")


@dataclass(frozen=True, slots=True, order=True)
class Hour:
    """One UTC hour; `start` is its beginning."""

    start: datetime

    @classmethod
    def at(cls, number: int) -> Hour:
        """Return the hour of a `number`."""
        return cls(_FIRST + number * _HOUR)

    @property
    def number(self) -> int:
        """The hour counted from 1970."""
        return (self.start - _FIRST) // _HOUR

    @property
    def start_ms(self) -> int:
        """Its beginning, Unix milliseconds."""
        return round(1_000 * self.start.timestamp())

    @property
    def partition(self) -> str:
        """Its folder below the folder of a table."""
        return f"date={self.start:%Y-%m-%d}/hour={self.start:%H}"

    def raw(self, folder: str) -> str:
        """Return where the writers put the hour's rows."""
        return f"{folder}/{self.partition}"

    def compacted(self, folder: str) -> str:
        """Return where its compacted files lie."""
        return f"{COMPACTED}/{folder}/{self.partition}"

    def published(self, folder: str) -> str:
        """Return the object that says which of these count, one URI a line."""
        return f"{PUBLISHED}/{folder}/{self.partition}/files"

    def receipt(self, folder: str) -> str:
        """Return the object that says how it was compacted."""
        return f"{COMPACTIONS}/{folder}/{self.partition}/receipt.json"

    def is_closed(self, now: datetime) -> bool:
        """Return whether nobody writes to it any more."""
        return self.is_older_than(GRACE, now)

    def is_older_than(self, age: timedelta, now: datetime) -> bool:
        """Return whether the hour ended more than `age` ago."""
        return now - self.start >= timedelta(hours=1) + age  # a sum could be beyond the year 9999


@dataclass(frozen=True, slots=True)
class Days:
    """The hours to work on: `first` to `last`, UTC days; None is open."""

    first: date | None = None
    last: date | None = None

    def holds(self, day: date) -> bool:
        return (self.first is None or self.first <= day) and (self.last is None or day <= self.last)


def hours_of(objects: Objects, folder: str, days: Days) -> Iterator[Hour]:
    """Yield the hours that lie in `folder`, the earliest first; folders with other names are left out."""
    for day_folder in objects.folders(folder):
        day = day_of_folder(day_folder)
        if day is None or not days.holds(day):
            continue
        for hour_folder in objects.folders(f"{folder}/{day_folder}"):
            if hour := _HOUR_FOLDER.fullmatch(hour_folder):
                yield Hour(datetime(day.year, day.month, day.day, int(hour[1]), tzinfo=UTC))


def hour_of(name: str) -> Hour | None:
    """Return the hour in whose folder the object `name` lies, None where that is none."""
    parts = name.split("/")
    for day_folder, hour_folder in pairwise(parts):
        day, hour = day_of_folder(day_folder), _HOUR_FOLDER.fullmatch(hour_folder)
        if day and hour:
            return Hour(datetime(day.year, day.month, day.day, int(hour[1]), tzinfo=UTC))
    return None


def day_of_folder(folder: str) -> date | None:
    """Return the UTC day of a folder `date=YYYY-MM-DD`, None where it is none."""
    found = _DATE.fullmatch(folder)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None  # 2026-13-45
