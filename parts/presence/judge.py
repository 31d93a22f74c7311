"""Judges devices at their deadlines: decides what is to be said, sends it, and arms the next timers.

What is decided is stored before it is sent, and forgotten afterwards. Whatever ends in between, the message
that led here is redelivered and goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.envelope import parse_event
from eventplane.presence import PresenceItem
from eventplane.sqs_binding import to_message
from eventplane.traffic import KINDS
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.log import logger
from lambdas.common.metrics import Gauge, mark, measure
from lambdas.common.sqs import send_all
from parts.presence.timer_queue import Timer
from parts.presence.wiring import PresenceParts

RESERVE_MS: Final = 4 * WORST_CALL_MS
"""No page and no device is begun with less time left, milliseconds, so that what is decided can be sent. What
is not begun stays due."""

SENDING_MS: Final = 3 * WORST_CALL_MS
"""No batch is sent with less time left, milliseconds: it covers that batch, one write that forgets it, and
the next timer."""

_TRIES: Final = 5
"""How often a device is tried while other functions write it."""


@dataclass(slots=True)
class Round:
    """The result of one look at devices: how many were judged, how many events were sent, and which devices
    have to be judged again, be it for want of time.
    """

    devices: int = 0
    sent: int = 0
    unfinished: set[str] = field(default_factory=set)


class PresenceJudge:
    """Judges devices and sends what there is to say to the queue at `outbox_url`."""

    def __init__(self, parts: PresenceParts, outbox_url: str) -> None:
        self._parts = parts
        self._outbox_url = outbox_url

    def judge(self, states: Iterable[PresenceItem], remaining_ms: Callable[[], int]) -> Round:
        """Say what is to be said of the devices with these `states`, and arm their next timers.

        What an earlier look left unsent is sent. A device that is not due gets its timer again, nothing else.
        """
        judged = Round()
        decided: list[PresenceItem] = []
        is_outage = cache(lambda: self._is_outage(remaining_ms))
        for known in states:
            state = self._decide(known, remaining_ms, is_outage)
            if state is None:
                judged.unfinished.add(known.device)
            else:
                decided.append(state)
        judged.devices = len(decided)
        judged.sent, stored = self._send(decided, remaining_ms)
        judged.unfinished |= {each.device for each in stored if each.unsent}
        next_timers = [Timer(each.device, each.due_ms) for each in stored if each.due_ms and not each.unsent]
        judged.unfinished |= self._parts.timers.arm(next_timers, self._parts.clock())
        return judged

    def _is_outage(self, remaining_ms: Callable[[], int]) -> bool:
        """Whether so many devices went that notices are held back; not where that cannot be found out."""
        try:
            went = self._parts.population.outage(self._parts.clock(), lambda: remaining_ms() >= RESERVE_MS)
        except (TimeoutError, ClientError, BotoCoreError):
            logger.exception("the fleet was not counted; notices are sent one by one")
            return False
        if went:
            measure(Gauge.OUTAGE, went)
        return went > 0

    def _decide(
        self, known: PresenceItem, remaining_ms: Callable[[], int], is_outage: Callable[[], bool]
    ) -> PresenceItem | None:
        """The state as it is stored after it was judged; None when that did not succeed."""
        state: PresenceItem | None = known
        for _ in range(_TRIES):
            now_ms = self._parts.clock()
            if state is None or remaining_ms() < RESERVE_MS:
                return None
            if state.unsent or state.due_ms is None or state.due_ms > now_ms:
                return state
            try:
                judged = self._parts.watch.judge(state, now_ms, is_outage)
                if stored := self._parts.table.write(judged, self._parts.watch.due_ms(judged)):
                    _note_flood(state, stored)
                    return stored
                # Who was faster has left the device due.
                state = self._parts.table.read([known.device]).get(known.device)
            except Exception:  # noqa: BLE001 - one device must not keep all others from being judged
                logger.exception("not judged", device=known.device)
                return None
        return None

    def _send(
        self, decided: Sequence[PresenceItem], remaining_ms: Callable[[], int]
    ) -> tuple[int, list[PresenceItem]]:
        """Send what waits, as far as there is time, and forget what was taken.

        Returns how many events were taken, and the states as they are stored now.
        """
        waiting = [(state.device, text) for state in decided for text in state.unsent]
        messages = (to_message(parse_event(text)) for _, text in waiting)
        has_time = lambda: remaining_ms() >= SENDING_MS  # noqa: E731
        left: defaultdict[str, list[str]] = defaultdict(list)
        for (device, text), is_taken in zip(
            waiting, send_all(self._parts.sender, self._outbox_url, messages, has_time), strict=True
        ):
            if not is_taken:
                left[device].append(text)
        sent = len(waiting) - sum(map(len, left.values()))
        return sent, [self._forget(each, tuple(left[each.device]), remaining_ms) for each in decided]

    def _forget(
        self, state: PresenceItem, left: tuple[str, ...], remaining_ms: Callable[[], int]
    ) -> PresenceItem:
        """Keep of the unsent events only what is `left`; the state as it is stored now."""
        current = state
        for _ in range(_TRIES):
            if current.unsent != state.unsent or current.unsent == left or remaining_ms() < WORST_CALL_MS:
                return current
            emptied = replace(current, unsent=left)
            if stored := self._parts.table.write(emptied, self._parts.watch.due_ms(emptied)):
                return stored
            current = self._parts.table.read([state.device]).get(state.device, current)
        logger.warning("sent events could not be forgotten; they will be sent again", device=state.device)
        return current


def _note_flood(known: PresenceItem, stored: PresenceItem) -> None:
    """Log a device in each window in which it floods: the metric has an alarm, and the log its name."""
    if stored.flood is None or stored.flood == known.flood or stored.traffic is None:
        return
    logger.warning(
        "a device floods",
        device=stored.device,
        since_ms=stored.flood.since_ms,
        traffic={each: getattr(stored.traffic, each) for each in KINDS},
        remedy=f"eventplane fleet quarantine {stored.device}",
    )
    mark("DeviceFlooding")
