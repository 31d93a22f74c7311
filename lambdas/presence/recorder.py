"""Takes down what is said of devices and arms their timers. It decides and says nothing: a `Judge` does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.queue import QueueMessage
from lambdas.presence.observations import Observation, Reader, UnreadableObservationError
from lambdas.presence.state import DeviceState
from lambdas.presence.table import PAGE, PresenceTable
from lambdas.presence.timers import Timer, TimerQueue
from lambdas.presence.watch import Watch

RESERVE_MS: Final = 3 * WORST_CALL_MS
"""No page of devices is begun with less time left, milliseconds: the reading, one write and one batch of
timers at their worst."""

_TRIES: Final = 5
"""How often a device is tried when another function is faster or AWS refuses; then messages come again."""

Noted = tuple[QueueMessage, Observation]


class Recorder:
    """Writes what `read` finds in the messages of one queue to `table`, and arms `timers`."""

    def __init__(
        self, *, read: Reader, table: PresenceTable, watch: Watch, timers: TimerQueue, clock: Clock
    ) -> None:
        self._read = read
        self._table = table
        self._watch = watch
        self._timers = timers
        self._clock = clock

    def process(self, messages: Sequence[QueueMessage], remaining_ms: Callable[[], int]) -> frozenset[str]:
        """Take down `messages`; the ids of those that have to come again, be it for want of time."""
        noted, failed = self._observations(messages)
        waiting = noted
        for _ in range(_TRIES):
            if not waiting:
                break
            left: dict[str, list[Noted]] = {}
            for at in range(0, len(waiting), PAGE):
                page = dict(list(waiting.items())[at : at + PAGE])
                again, unarmed = self._take(page, remaining_ms)
                left |= again
                # Only a redelivered message arms again what is written already.
                failed |= {message.id for device in unarmed for message, _ in noted[device]}
            waiting = left
        if waiting:
            logger.warning("devices have to come again", devices=sorted(waiting)[:PAGE])
        failed |= {message.id for those in waiting.values() for message, _ in those}
        logger.info("recorded", messages=len(messages), devices=len(noted), failed=len(failed))
        return frozenset(failed)

    def _observations(self, messages: Iterable[QueueMessage]) -> tuple[dict[str, list[Noted]], set[str]]:
        noted: defaultdict[str, list[Noted]] = defaultdict(list)
        failed: set[str] = set()
        for message in messages:
            try:
                observation = self._read(message.body, message.sent_at_ms)
            except UnreadableObservationError as error:
                logger.error("unreadable", message_id=message.id, error=str(error))
                failed.add(message.id)
                continue
            if observation is not None:
                noted[observation.device].append((message, observation))
        return dict(noted), failed

    def _take(
        self, noted: dict[str, list[Noted]], remaining_ms: Callable[[], int]
    ) -> tuple[dict[str, list[Noted]], frozenset[str]]:
        """Write the states of up to a page of devices, and arm their timers.

        Returns those that have to be tried again, and the devices that are written and not armed.
        """
        if remaining_ms() < RESERVE_MS:
            return noted, frozenset()
        states = self._table.read(noted)
        again: dict[str, list[Noted]] = {}
        timers: list[Timer] = []
        for device, those in noted.items():
            in_time = remaining_ms() >= 2 * WORST_CALL_MS
            known = states.get(device)
            stored = self._write(known, those) if known and in_time else None
            if known is None or stored is None:
                again[device] = those
            elif stored.due_ms is not None and (stored.due_ms != known.due_ms or _is_redelivered(those)):
                timers.append(Timer(device, stored.due_ms))
        return again, self._timers.arm(timers, self._clock())

    def _write(self, known: DeviceState, those: Iterable[Noted]) -> DeviceState | None:
        """The state as it is stored now; None when it has to be tried again."""
        state = known
        for _, observation in those:
            state = observation.apply(state)
        if state == known:
            return known
        # A deadline that is too early costs the judge a look; moving it would cost two writes and a timer at
        # every heartbeat of every device.
        due = [each for each in (known.due_ms, self._watch.due_ms(state)) if each is not None]
        try:
            return self._table.write(state, min(due, default=None))
        except (ClientError, BotoCoreError):
            logger.exception("not written", device=known.device)
            return None


def _is_redelivered(noted: Iterable[Noted]) -> bool:
    """Whether a run before this one may have ended between the write and the timer."""
    return any(message.attempt > 1 for message, _ in noted)
