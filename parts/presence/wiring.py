"""Shared by the functions of presence, from the settings that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eventplane.presence import PRESENCE
from eventplane.records import Records, Tables
from lambdas.common.aws import client, tables
from lambdas.common.sqs import SqsSender
from lambdas.common.system import Clock, system_clock
from parts.presence.settings import PresenceFunctionSettings
from parts.presence.table import Population, PresenceTable
from parts.presence.timer_queue import TimerQueue
from parts.presence.watch import Watcher


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceParts:
    """The parts; `sender` sends the monitor's events."""

    table: PresenceTable
    population: Population
    watch: Watcher
    timers: TimerQueue
    sender: SqsSender
    clock: Clock


def wired(settings: PresenceFunctionSettings) -> PresenceParts:
    """Return the parts that `settings` describe."""
    return parts_of(settings, client("sqs"), tables(), system_clock)


def parts_of(settings: PresenceFunctionSettings, sqs: Any, store: Tables, clock: Clock) -> PresenceParts:
    """Return the parts that `settings` describe, with a client of SQS."""
    sender, table = SqsSender(sqs), PresenceTable(Records(store, settings.presence_table, PRESENCE))
    return PresenceParts(
        table=table,
        population=Population(table, settings.presence_limits.outage),
        watch=Watcher(settings.presence_limits),
        timers=TimerQueue(sender, settings.timer_queue),
        sender=sender,
        clock=clock,
    )
