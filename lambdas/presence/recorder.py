"""Takes down what is said of devices. It decides and sends nothing: that is the sweeper's alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.log import logger
from lambdas.common.queue import QueueMessage
from lambdas.presence.observations import Observation, Reader, UnreadableObservationError
from lambdas.presence.state import DeviceState
from lambdas.presence.table import PAGE, PresenceTable
from lambdas.presence.watch import Watch

RESERVE_MS: Final = 2 * WORST_CALL_MS
"""No page of devices is begun with less time left, milliseconds: the reading and one write at their worst."""

_TRIES: Final = 5
"""How often a device is tried when another function is faster or AWS refuses; then messages come again."""

Noted = tuple[QueueMessage, Observation]


class Recorder:
    """Writes what `read` finds in the messages of one queue to `table`."""

    def __init__(self, *, read: Reader, table: PresenceTable, watch: Watch) -> None:
        self._read = read
        self._table = table
        self._watch = watch

    def process(self, messages: Sequence[QueueMessage], remaining_ms: Callable[[], int]) -> frozenset[str]:
        """Take down `messages`; the ids of those that have to come again, be it for want of time."""
        noted, failed = self._observations(messages)
        waiting = noted
        for _ in range(_TRIES):
            if not waiting:
                break
            waiting = {
                device: those
                for at in range(0, len(waiting), PAGE)
                for device, those in self._take(
                    dict(list(waiting.items())[at : at + PAGE]), remaining_ms
                ).items()
            }
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

    def _take(self, noted: dict[str, list[Noted]], remaining_ms: Callable[[], int]) -> dict[str, list[Noted]]:
        """Write the states of up to a page of devices; those that have to be tried again."""
        if remaining_ms() < RESERVE_MS:
            return noted
        states = self._table.read(noted)
        return {
            device: those
            for device, those in noted.items()
            if device not in states
            or remaining_ms() < WORST_CALL_MS
            or not self._write(states[device], those)
        }

    def _write(self, known: DeviceState, those: Iterable[Noted]) -> bool:
        """Whether what was said of one device is durable; others do not suffer for it."""
        state = known
        for _, observation in those:
            state = observation.apply(state)
        if state == known:
            return True
        # An entry of the index that is too early costs the sweeper a look; moving it would cost two writes at
        # every heartbeat of every device.
        due = [each for each in (known.due_ms, self._watch.due_ms(state)) if each is not None]
        try:
            return self._table.write(state, min(due, default=None)) is not None
        except (ClientError, BotoCoreError):
            logger.exception("not written", device=known.device)
            return False
