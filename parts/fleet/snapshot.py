"""The scheduled function that writes the fleet's devices in service into the archive.

The delivery audit expects these devices: one that is silent shows there and nowhere else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

from eventplane.device_record import FLEET, REGISTRY, FleetRecord
from eventplane.records import Records
from lambdas.common.archive import Archiver
from lambdas.common.aws import client, tables
from lambdas.common.log import log_foreign, logger
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from lambdas.common.system import Clock, random_bytes, system_clock
from parts.fleet.lifecycle import in_service
from parts.fleet.settings import SnapshotSettings

NAME: Final = "snapshot"
"""One object an hour: a snapshot that is repeated replaces itself."""


class FleetSnapshot:
    """Writes all that `read` returns as one object, so that a snapshot is whole or not there."""

    def __init__(self, *, read: Callable[[], Iterable[FleetRecord]], archive: Archiver, clock: Clock) -> None:
        self._read = read
        self._archive = archive
        self._clock = clock

    def write(self) -> int:
        """Write the snapshot and return the number of devices; without one, no object is written.

        Raises botocore's errors, and then nothing is written.
        """
        written = 0

        def lines() -> Iterator[str]:
            nonlocal written
            for record in self._read():
                written += 1
                yield json.dumps(asdict(record), separators=(",", ":"))

        key = self._archive.put_lines(FLEET, NAME, self._clock(), lines())
        logger.info("fleet written", devices=written, key=key)
        return written


@at_init
def service() -> FleetSnapshot:
    """Return the snapshot that the environment describes. Raises `SettingsError`."""
    settings = SnapshotSettings.read(os.environ)
    devices = Records(tables(), settings.fleet_table, REGISTRY)
    return FleetSnapshot(
        read=lambda: in_service(devices.all(log_foreign)),
        archive=Archiver(client("s3"), settings.archive_bucket, random_bytes),
        clock=system_clock,
    )


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> dict[str, int]:  # noqa: ARG001 - Lambda passes it
    """Write one snapshot and return how many devices it has."""
    return {"devices": service().write()}
