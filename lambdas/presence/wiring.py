"""What the functions of presence share, from the settings that they share."""

from __future__ import annotations

from eventplane.function_settings import PresenceSettings
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.sqs import SqsSender
from lambdas.presence.judge import Judge
from lambdas.presence.reports import Notices
from lambdas.presence.table import PresenceTable
from lambdas.presence.timer_queue import TimerQueue
from lambdas.presence.watch import Watch


class Wiring:
    """The parts that `settings` describe."""

    def __init__(self, settings: PresenceSettings) -> None:
        self._sqs = client("sqs")
        self.table = PresenceTable(client("dynamodb"), settings.presence_table)
        self.timers = TimerQueue(self._sqs, settings.timer_queue)
        self.watch = Watch(settings.presence_limits, Notices())
        self.clock = system_clock

    def judge(self, outbox: str) -> Judge:
        """Return the judge that reports to the queue at the URL `outbox`."""
        return Judge(
            table=self.table,
            watch=self.watch,
            sender=SqsSender(self._sqs),
            outbox_url=outbox,
            timers=self.timers,
            clock=self.clock,
        )
