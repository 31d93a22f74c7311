"""What the functions of presence share, by the settings that they share."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.function_settings import PresenceSettings
from eventplane.presence import PRESENCE
from eventplane.records import Records
from lambdas.common.aws import client, tables
from lambdas.common.clock import Clock, system_clock
from lambdas.common.sqs import SqsSender
from lambdas.presence.reports import Notices
from lambdas.presence.table import PresenceTable
from lambdas.presence.timer_queue import TimerQueue
from lambdas.presence.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts; `sender` sends the monitor's events."""

    table: PresenceTable
    watch: Watch
    timers: TimerQueue
    sender: SqsSender
    clock: Clock


def wired(settings: PresenceSettings) -> Parts:
    """Return the parts that `settings` describe."""
    sender = SqsSender(client("sqs"))
    return Parts(
        table=PresenceTable(Records(tables(), settings.presence_table, PRESENCE)),
        watch=Watch(settings.presence_limits, Notices()),
        timers=TimerQueue(sender, settings.timer_queue),
        sender=sender,
        clock=system_clock,
    )
