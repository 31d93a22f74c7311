"""The function that judges devices whose timers fired."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from eventplane.presence import PresenceItem
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from parts.presence.judge import RESERVE_MS, PresenceJudge
from parts.presence.settings import PresenceJudgeSettings
from parts.presence.timer_queue import Timer, read_timer
from parts.presence.wiring import PresenceParts, wired

PUNCTUAL_MS: Final = 5_000
"""A device is judged within so many milliseconds after its deadline; what takes longer is counted as late."""


@dataclass(frozen=True, slots=True)
class _Fired:
    """A timer, and the message that it came in."""

    timer: Timer
    message: QueueMessage

    @property
    def is_redelivered(self) -> bool:
        """True if an earlier run may have ended halfway."""
        return self.message.attempt > 1

    def is_late(self, now_ms: int) -> bool:
        """Return whether it comes later than promised. A timer that was due when it was sent began then."""
        return now_ms - max(self.timer.due_ms, self.message.sent_at_ms) > PUNCTUAL_MS


class TimerReader:
    """Judges the devices in the queue of timers; idempotent, in any order.

    Each write of a new deadline arms a timer of its own, so a timer of another deadline than the stored one
    is obsolete, unless the stored one has come. A redelivered timer takes over what a run before it may have
    left: unsent events, and a deadline without a timer. Not a redriven one, which SQS counts from 1 again: if
    all that are late armed another, a backlog of timers would feed itself. The reconciler finds what is left.
    """

    def __init__(self, parts: PresenceParts, judge: PresenceJudge) -> None:
        self._parts = parts
        self._judge = judge

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Judge the devices of up to a page of timers; return the ids of those that have to come again."""
        fired: defaultdict[str, list[_Fired]] = defaultdict(list)

        def take(message: QueueMessage) -> bool:
            timer = read_timer(message.body)
            fired[timer.device].append(_Fired(timer, message))
            return True

        failed = set(handle_each(messages, take))
        unfinished = self._work_off(fired, invocation.remaining_ms)
        failed |= {each.message.id for device in unfinished for each in fired[device]}
        logger.info("timers fired", messages=len(messages), devices=len(fired), failed=len(failed))
        return frozenset(failed)

    def _work_off(self, fired: dict[str, list[_Fired]], remaining_ms: Callable[[], int]) -> set[str]:
        """The devices whose timers have to come again."""
        if not fired or remaining_ms() < RESERVE_MS:
            return set(fired)
        states, now_ms = self._parts.table.read(fired), self._parts.clock()
        unfinished = fired.keys() - states.keys()
        early: list[Timer] = []
        due: list[PresenceItem] = []
        for device, state in states.items():
            if state.due_ms is None or (state.unsent and not _is_redelivered(fired[device])):
                continue
            if state.due_ms <= now_ms:
                due.append(state)
                if any(each.is_late(now_ms) for each in fired[device]):
                    count(Count.TIMERS_LATE)
            elif _is_redelivered(fired[device]) or any(
                each.timer.due_ms == state.due_ms for each in fired[device]
            ):
                early.append(Timer(device, state.due_ms))
        unfinished |= self._parts.timers.arm(early, now_ms)
        return unfinished | self._judge.judge(due, remaining_ms).unfinished


def _is_redelivered(fired: Sequence[_Fired]) -> bool:
    return any(each.is_redelivered for each in fired)


def service() -> QueueReader:
    """Return the reader of the queue of timers. Raises `SettingsError`."""
    settings = PresenceJudgeSettings.read(os.environ)
    parts = wired(settings)
    return QueueReader(TimerReader(parts, PresenceJudge(parts, settings.outbox_queue)).process)


handle = queue_function(service)
