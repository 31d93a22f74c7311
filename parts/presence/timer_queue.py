"""Timers: a delayed message of a queue of their own for each moment at which a device has to be judged."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eventplane.errors import EventPlaneError
from eventplane.topics import is_device_name
from eventplane.values import MAX_TIME_MS, whole_number
from lambdas.common.log import logger
from lambdas.common.sqs import PlainMessage, SqsSender, send_all

MAX_DELAY_S: Final = 600
"""Longest that a timer is delayed, seconds; a later one is sent again on its way. Ours: SQS takes 900, but at
that age the queue's alarm would go off if its metric counts the delay (the SQS guide does not say)."""


class UnreadableTimerError(EventPlaneError):
    """A message of the timers' queue is no timer. It is retried, then ends in the dead-letter queue."""

    problem: str
    message = "not a timer: {problem}; only the presence functions may write to the queue"


@dataclass(frozen=True, slots=True)
class Timer:
    """`device` has to be judged at `due_ms`, Unix milliseconds."""

    device: str
    due_ms: int

    @property
    def body(self) -> str:
        """The text of its message."""
        return json.dumps({"device": self.device, "due_ms": self.due_ms}, separators=(",", ":"))

    def delay_s(self, now_ms: int) -> int:
        """The time for which SQS holds it back from `now_ms` on, whole seconds, up to its longest delay."""
        return min(max(math.ceil((self.due_ms - now_ms) / 1_000), 0), MAX_DELAY_S)


def read_timer(body: str) -> Timer:
    """The timer in the text of a message. Raises `UnreadableTimerError`."""
    try:
        members = json.loads(body)
        device, due_ms = members["device"], whole_number(members["due_ms"], MAX_TIME_MS)
        if not is_device_name(device):
            raise ValueError(f"{device!r} is not a device's name")  # noqa: TRY301 - one place says what is wrong
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableTimerError(repr(error)) from error
    return Timer(device, due_ms)


class TimerQueue:
    """The queue of timers at `url`."""

    def __init__(self, sender: SqsSender, url: str) -> None:
        self._sender = sender
        self._url = url

    def arm(self, timers: Iterable[Timer], now_ms: int) -> frozenset[str]:
        """Send `timers`; the devices whose timer SQS did not take. Never raises for what AWS refuses."""
        waiting = list(timers)
        messages = (PlainMessage(each.body, each.delay_s(now_ms)) for each in waiting)
        taken = send_all(self._sender, self._url, messages)
        failed = {timer.device for timer, is_taken in zip(waiting, taken, strict=True) if not is_taken}
        if failed:
            logger.warning("timers were not armed", devices=sorted(failed)[:10], number=len(failed))
        return frozenset(failed)
