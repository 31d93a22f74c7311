"""The entry of the presence functions, which share their code: their source says which one it is."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

from eventplane.settings import SettingsError
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery
from lambdas.common.sqs import SqsSender
from lambdas.presence.deadlines import Reconciler, TimerReader
from lambdas.presence.judge import Judge
from lambdas.presence.notices import Notices
from lambdas.presence.observations import Reader, read_heartbeat, read_presence
from lambdas.presence.recorder import Recorder
from lambdas.presence.settings import SCHEDULE, TIMERS, read_settings
from lambdas.presence.table import PresenceTable
from lambdas.presence.timers import TimerQueue
from lambdas.presence.watch import Watch

READERS: Final[dict[str, Reader]] = {"presence": read_presence, "heartbeats": read_heartbeat}
"""What a recorder reads, by its source."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader of a queue, and the answer to it."""

    reader: Recorder | TimerReader
    redelivery: Redelivery


@cache
def service() -> Reading | Reconciler:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    sqs = client("sqs")
    table, timers = PresenceTable(client("dynamodb"), settings.table), TimerQueue(sqs, settings.timer_queue)
    watch, clock = Watch(settings.limits, Notices()), system_clock
    redelivery = Redelivery(sqs, settings.source_queue)
    if settings.source in READERS:
        read = READERS[settings.source]
        return Reading(Recorder(read=read, table=table, watch=watch, timers=timers, clock=clock), redelivery)
    if settings.source not in (TIMERS, SCHEDULE):
        known = ", ".join((*READERS, TIMERS, SCHEDULE))
        raise SettingsError("EVENTPLANE_SOURCE", f"is {settings.source!r}, none of {known}")
    judge = Judge(
        table=table,
        watch=watch,
        sender=SqsSender(sqs),
        outbox_url=settings.outbox_url,
        timers=timers,
        clock=clock,
    )
    if settings.source == SCHEDULE:
        return Reconciler(table=table, judge=judge, clock=clock)
    return Reading(TimerReader(table=table, judge=judge, timers=timers, clock=clock), redelivery)


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> PartialResponse | dict[str, Any]:
    """Read one batch of a queue; or reconcile the `buckets` that the schedule names, where something has been
    due for `overdue_ms`."""
    it, remaining_ms = service(), context.get_remaining_time_in_millis
    if isinstance(it, Reconciler):
        return asdict(it.reconcile(event["buckets"], event["overdue_ms"], remaining_ms))
    messages = read_messages(event)
    count(Metric.MESSAGES, len(messages))
    failed = it.reader.process(messages, remaining_ms)
    count(Metric.RETRIED, len(failed))
    return it.redelivery.answer(messages, failed, remaining_ms)
