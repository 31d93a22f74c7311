"""The function that finds devices whose timers were lost, once a minute, by the index of the table."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lambdas.common.log import logger
from lambdas.common.metrics import Count, count, metrics
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from parts.presence.judge import RESERVE_MS, PresenceJudge
from parts.presence.outage import FleetWatch
from parts.presence.settings import PresenceJudgeSettings
from parts.presence.wiring import PresenceParts, wired


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of one run: devices judged, events sent; whether time ran out before the end."""

    devices: int
    sent: int
    is_complete: bool


class Sweeper:
    """Judges devices that are overdue: their timers were lost, as with a dead-lettered message, or restored
    from a backup."""

    def __init__(self, parts: PresenceParts, judge: PresenceJudge) -> None:
        self._parts = parts
        self._judge = judge

    def reconcile(self, buckets: Sequence[int], overdue_ms: int, remaining_ms: Callable[[], int]) -> Swept:
        """Judge what has been due in `buckets` for `overdue_ms`, the earliest first, while there is time."""
        devices = sent = 0
        is_complete, before_ms = True, self._parts.clock() - overdue_ms
        for bucket in buckets:
            pages = self._parts.table.due(bucket, before_ms)
            # Before each page: even an empty one is a request.
            while (is_complete := remaining_ms() >= RESERVE_MS) and (page := next(pages, None)):
                # The index lags behind the table.
                overdue = [
                    each
                    for each in self._parts.table.read(page).values()
                    if each.due_ms is not None and each.due_ms <= before_ms
                ]
                judged = self._judge.judge(overdue, remaining_ms)
                devices += judged.devices
                sent += judged.sent
        count(Count.TIMERS_LATE, devices)
        reconciled = Swept(devices, sent, is_complete)
        log = logger.warning if devices or not is_complete else logger.info
        log("reconciled", buckets=list(buckets), devices=devices, sent=sent, complete=is_complete)
        return reconciled


@at_init
def services() -> tuple[Sweeper, FleetWatch]:
    """Return what the environment describes. Raises `SettingsError`."""
    settings = PresenceJudgeSettings.read(os.environ)
    parts, outbox = wired(settings), settings.outbox_queue
    return Sweeper(parts, PresenceJudge(parts, outbox)), FleetWatch(parts, settings.presence_limits, outbox)


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Look at the fleet, then reconcile the `buckets` that the schedule names, where something has been due
    for `overdue_ms`. In this order: when many devices go, many timers are late, and take all the time."""
    remaining_ms = context.get_remaining_time_in_millis
    reconciler, fleet = services()
    found = fleet.look(remaining_ms)
    return {**asdict(reconciler.reconcile(event["buckets"], event["overdue_ms"], remaining_ms)), **found}
