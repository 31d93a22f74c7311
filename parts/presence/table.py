"""The states of devices in the table of presence; of the fleet, how many are connected, lost or quiet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from eventplane.presence import BUCKETS, OutageLimits, PresenceItem, Standing, due_in, standing_between
from eventplane.records import Records
from lambdas.common.log import log_foreign

HasTime = Callable[[], bool]


class Population:
    """Counts the devices in `table`. Whatever counts raises TimeoutError when it has no time left."""

    def __init__(self, table: PresenceTable, limits: OutageLimits) -> None:
        self._table = table
        self._limits = limits

    def census(self, now_ms: int, has_time: HasTime) -> dict[Standing, int]:
        """Return how many devices have each standing."""
        return {each: sum(map(len, self.pages(each, 0, now_ms, has_time))) for each in Standing}

    def outage(self, now_ms: int, has_time: HasTime, settled_ms: int = 0, counted: int | None = None) -> int:
        """Return how many devices went lately, or are left of an outage, if they are one; else 0.

        Those that lost their connections in the last `settled_ms` are not counted. The fleet has `counted`
        devices; None: it is counted as far as it takes.
        """
        lately_ms = now_ms - 1_000 * self._limits.within_s
        went = sum(
            len(page)
            for each, since_ms, until_ms in (
                (Standing.LOST, lately_ms, now_ms - settled_ms),
                (Standing.QUIET, lately_ms, now_ms),
                (Standing.HELD, lately_ms, now_ms),
                (Standing.LISTED, 0, now_ms),
            )
            for page in self.pages(each, since_ms, until_ms, has_time)
        )
        if went < self._limits.least:
            return 0
        most = went / self._limits.share
        fleet = self._least(now_ms, has_time, most) if counted is None else counted
        return went if fleet <= most else 0

    def _least(self, now_ms: int, has_time: HasTime, most: float) -> int:
        """Return how many devices the fleet has; one with more than `most` is not counted to its end."""
        found = 0
        for page in chain.from_iterable(self.pages(each, 0, now_ms, has_time) for each in Standing):
            found += len(page)
            if found > most:
                break
        return found

    def pages(
        self, standing: Standing, since_ms: int, until_ms: int, has_time: HasTime
    ) -> Iterator[list[str]]:
        """Yield the devices with this `standing` since between two times, Unix ms, a page at a time."""
        for bucket in range(BUCKETS):
            pages = self._table.standing(standing, bucket, since_ms, until_ms)
            while True:
                if not has_time():
                    raise TimeoutError("the fleet was not counted in time")
                if (page := next(pages, None)) is None:
                    break
                yield page


PAGE: Final = 100
"""Devices read at a time: as many as one BatchGetItem takes (DynamoDB API Reference)."""


class PresenceTable:
    """Reads and writes `records`. What AWS refuses is raised as botocore raises it."""

    def __init__(self, records: Records[PresenceItem]) -> None:
        self._records = records

    def read(self, devices: Collection[str]) -> dict[str, PresenceItem]:
        """Return the states of up to `PAGE` devices; a new one for a device that is not known.

        Left out are devices that DynamoDB does not get to, and those whose items are unreadable.
        """
        found = self._records.read_many(devices, log_foreign)
        return {device: state or PresenceItem(device) for device, state in found.items()}

    def write(self, state: PresenceItem, due_ms: int | None) -> PresenceItem | None:
        """Write the successor of the stored state, and return it; None if another was faster."""
        return self._records.write(replace(state, due_ms=due_ms))

    def due(self, bucket: int, now_ms: int) -> Iterator[list[str]]:
        """Yield the devices of `bucket` that are due at `now_ms` (Unix milliseconds), a page at a time."""
        for keys in self._records.key_pages(due_in(bucket, now_ms, PAGE)):
            yield [device for (device,) in keys]

    def standing(self, standing: Standing, bucket: int, since_ms: int, until_ms: int) -> Iterator[list[str]]:
        """Yield the devices of `bucket` with this `standing` since between two times, a page at a time."""
        for keys in self._records.key_pages(standing_between(standing, bucket, since_ms, until_ms)):
            yield [device for (device,) in keys]
