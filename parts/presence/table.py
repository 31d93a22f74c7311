"""The states of devices in the table of presence."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from eventplane.presence import DeviceState, Standing, due_in, standing_between
from eventplane.records import Records
from lambdas.common.log import log_foreign

PAGE: Final = 100
"""Devices read at a time: as many as one BatchGetItem takes (DynamoDB API Reference)."""


class PresenceTable:
    """Reads and writes `records`. What AWS refuses is raised as botocore raises it."""

    def __init__(self, records: Records[DeviceState]) -> None:
        self._records = records

    def read(self, devices: Collection[str]) -> dict[str, DeviceState]:
        """Return the states of up to `PAGE` devices; a new one for a device that is not known.

        Left out are devices that DynamoDB does not get to, and those whose items are unreadable.
        """
        found = self._records.read_many(devices, log_foreign)
        return {device: state or DeviceState(device) for device, state in found.items()}

    def write(self, state: DeviceState, due_ms: int | None) -> DeviceState | None:
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
