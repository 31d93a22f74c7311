"""Run the forwarder while its spool's disk is missing, read-only or broken.

A spool in memory, which stores nothing, replaces the one on the disk. Every sender gets a receipt that says
so, and urgent events go to inboxes and cloud as volatile deliveries. The disk is tried again with growing
intervals, and a report from memory informs the cloud.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from edge.decision import Decider
from edge.delivery_queues import BEST_EFFORT_RANK, UNSTORED_RANK, VolatileEvent
from edge.errors import SpoolCorruptError, SpoolError, SpoolFullError, SpoolUnavailableError
from edge.reports import Heading, Heartbeat, disk_failed, heartbeat
from edge.settings import Settings
from edge.spool.store import Spool
from edge.system import Host

_log = logging.getLogger(__name__)

FIRST_RETRY_S = 1.0
"""Seconds after a failure until the disk is tried again; twice as long after each further one."""

MOST_RETRY_S = 10.0
"""Longest wait, seconds; as long as the attempt took, if that is longer. Ours: alarms stored before the disk
failed wait for the next attempt, and a disk that fails slowly takes half of the forwarder's time at most."""

MOST_RECOVERY_S = 3_600.0
"""The same for a spool that is damaged after its recovery. Ours: each attempt writes all that can be read of
it, and flash wears out."""

WELL_AFTER_S = 600.0
"""Seconds that a disk must work before its next failure counts as the first one."""


class DiskWatch:
    """Opens the spool of `settings` on its disk, or in memory while that fails. Times are monotonic seconds.

    `failure` is why the spool is in memory, None while it is on the disk.
    """

    def __init__(self, settings: Settings, system: Host, open_spool: Callable[..., Spool] = Spool) -> None:
        self.failure: SpoolError | None = None
        self._settings = settings
        self._open_spool = open_spool
        self._system = system
        self._failures = 0
        self._failed_at = 0.0
        self._works_since = 0.0
        self._retry_at = 0.0
        self._reported_at: float | None = None
        self._reports = 0

    def open(self, now: float) -> Spool:
        """Return the spool on its disk, else one in memory.

        Raises `SpoolError` while another process has it.
        """
        try:
            return self._opened(now)
        except (SpoolUnavailableError, SpoolFullError, SpoolCorruptError) as error:
            return self.without_disk(error, now)

    def open_again(self, now: float) -> Spool | None:
        """Open the spool on its disk when it is time to try; None while it is not, or that fails."""
        if self.failure is None or now < self._retry_at:
            return None
        try:
            return self._opened(now)
        except SpoolError as error:
            self._failed(error, now)
            return None

    def without_disk(self, error: SpoolError, now: float) -> Spool:
        """Return a spool in memory for the one that failed with `error`."""
        if self.failure is None:
            self._failed_at = now
            if now >= self._works_since + WELL_AFTER_S:
                self._failures = 0
            _log.critical("%s; urgent events go on from memory, nothing else is accepted", error)
        self._failed(error, now)
        return self._spool(on_disk=False)

    def deadline(self) -> float | None:
        """Return when the disk is to be tried again, None while it works."""
        return None if self.failure is None else self._retry_at

    def reports(self, decider: Decider, epoch: str, figures: Heartbeat, now: float) -> list[VolatileEvent]:
        """Return the reports for the cloud that are due now; none while the disk works.

        At once, and then as often as a heartbeat, which would not be stored either.
        """
        every_s = self._settings.heartbeat_s
        if self.failure is None or (self._reported_at is not None and now < self._reported_at + every_s):
            return []
        self._reported_at = now
        headings = [
            Heading(self._settings.thing, epoch, self._reports + each, decider.timestamp()) for each in (1, 2)
        ]
        self._reports += 2
        failure = self.failure
        return [
            decider.volatile(disk_failed(headings[0], failure, now - self._failed_at), UNSTORED_RANK),
            decider.volatile(heartbeat(headings[1], every_s, figures()), BEST_EFFORT_RANK),
        ]

    def _opened(self, now: float) -> Spool:
        spool = self._spool(on_disk=True)
        if self.failure is not None:
            _log.warning("the spool is on its disk again, after %.0f s without it", now - self._failed_at)
        if spool.origin.kind == "created" and spool.origin.damage:
            _log.error("%s", spool.origin.damage)
        self.failure, self._reported_at, self._works_since = None, None, now
        return spool

    def _spool(self, *, on_disk: bool) -> Spool:
        return self._open_spool(
            self._settings.spool,
            self._system,
            capacity_bytes=self._settings.spool_capacity_bytes,
            capacity_deliveries=self._settings.spool_capacity_deliveries,
            on_disk=on_disk,
            thing=self._settings.thing,
        )

    def _failed(self, error: SpoolError, now: float) -> None:
        if self.failure is not None and str(error) != str(self.failure):
            _log.error("%s", error)
        self.failure = error
        ended_at = self._system.monotonic()
        most_s = MOST_RECOVERY_S if isinstance(error, SpoolCorruptError) else MOST_RETRY_S
        pause_s = min(most_s, FIRST_RETRY_S * 2.0 ** min(self._failures, 32))
        self._retry_at = ended_at + max(pause_s, ended_at - now)
        self._failures += 1
