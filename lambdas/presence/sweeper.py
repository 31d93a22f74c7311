"""Finds what is due, decides, and sends.

What is decided is stored before it is sent, and forgotten afterwards: whatever ends in between, the next
sweep finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from eventplane.envelope import parse_event
from eventplane.sqs_binding import to_message
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.metrics import mark
from lambdas.common.sender import Answer, Fate
from lambdas.common.sqs import SqsSender, batches
from lambdas.presence.state import DeviceState
from lambdas.presence.table import PresenceTable
from lambdas.presence.watch import Watch

RESERVE_MS: Final = 3 * WORST_CALL_MS
"""No page and no device is begun with less time left, milliseconds, so that what is decided can be sent. What
is not begun stays due."""

SENDING_MS: Final = 2 * WORST_CALL_MS
"""No batch is sent with less time left, milliseconds: it covers that batch and one write that forgets it."""

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did: devices looked at, events sent; whether time ran out before the end."""

    devices: int
    sent: int
    is_complete: bool


class Sweeper:
    """Judges due devices by `watch` and sends what there is to say to the queue at `outbox_url`."""

    def __init__(
        self, *, table: PresenceTable, watch: Watch, sender: SqsSender, outbox_url: str, clock: Clock
    ) -> None:
        self._table = table
        self._watch = watch
        self._sender = sender
        self._outbox_url = outbox_url
        self._clock = clock

    def sweep(self, buckets: Sequence[int], remaining_ms: Callable[[], int]) -> Swept:
        """Look at what is due in `buckets`, the earliest first, for as long as there is time."""
        devices = sent = 0
        is_complete, now_ms = True, self._clock()
        for bucket in buckets:
            pages = self._table.due(bucket, now_ms)
            # Before each page: even an empty one is a request.
            while (is_complete := remaining_ms() >= RESERVE_MS) and (page := next(pages, None)):
                decided = self._decide(page, now_ms, remaining_ms)
                devices += len(decided)
                sent += self._send(decided, remaining_ms)
        swept = Swept(devices, sent, is_complete)
        log = logger.info if is_complete else logger.warning
        log("swept", buckets=list(buckets), devices=devices, sent=sent, complete=is_complete)
        return swept

    def _decide(self, page: Iterable[str], now_ms: int, remaining_ms: Callable[[], int]) -> list[DeviceState]:
        """The states of those devices of a page that were really due, as they are stored now."""
        decided: list[DeviceState] = []
        for known in self._table.read(page).values():
            if remaining_ms() < RESERVE_MS:
                break
            if known.due_ms is None or known.due_ms > now_ms:
                continue
            if known.unsent:
                decided.append(known)
                continue
            try:
                state = self._watch.judge(known, now_ms)
                # Who was faster has written what it knew, and left the device due.
                if stored := self._table.write(state, self._watch.due_ms(state)):
                    decided.append(stored)
                    _note_flood(known, stored)
            except Exception:  # noqa: BLE001 - one device must not keep all behind it from being looked at
                logger.exception("not judged", device=known.device)
        return decided

    def _send(self, decided: Iterable[DeviceState], remaining_ms: Callable[[], int]) -> int:
        """Send what waits, as far as there is time, and forget what was taken; the number of events taken."""
        waiting = [(state, text) for state in decided for text in state.unsent]
        taken: list[bool] = []
        for batch in batches(to_message(parse_event(text)) for _, text in waiting):
            in_time = remaining_ms() >= SENDING_MS
            answers = (
                self._sender.send(self._outbox_url, batch) if in_time else [Answer(Fate.AGAIN)] * len(batch)
            )
            taken += [answer.fate is Fate.TAKEN for answer in answers]
        left: dict[str, tuple[DeviceState, list[str]]] = {}
        for (state, text), was_taken in zip(waiting, taken, strict=True):
            _, texts = left.setdefault(state.device, (state, []))
            if not was_taken:
                texts.append(text)
        for state, texts in left.values():
            if len(texts) < len(state.unsent) and remaining_ms() >= WORST_CALL_MS:
                self._forget(state, tuple(texts))
        return sum(taken)

    def _forget(self, state: DeviceState, left: tuple[str, ...]) -> None:
        """Keep of the unsent events only what is `left`."""
        current: DeviceState | None = state
        for _ in range(_TRIES):
            if current is None or current.unsent != state.unsent:
                return
            emptied = replace(current, unsent=left)
            if self._table.write(emptied, self._watch.due_ms(emptied)):
                return
            current = self._table.read([state.device]).get(state.device)
        logger.warning("sent events could not be forgotten; they will be sent again", device=state.device)


def _note_flood(known: DeviceState, stored: DeviceState) -> None:
    """Log a device in each window in which it floods: the metric has an alarm, and the log its name."""
    if stored.flood is None or stored.flood == known.flood or stored.traffic is None:
        return
    logger.warning(
        "a device floods",
        device=stored.device,
        since_ms=stored.flood.since_ms,
        traffic=asdict(stored.traffic),
        remedy=f"python -m eventplane fleet quarantine {stored.device}",
    )
    mark("DeviceFlooding")
