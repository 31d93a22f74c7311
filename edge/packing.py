"""Pack pending events into publishes, and decide how long an event may wait for others to be packed with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

from edge.delivery_queues import BEST_EFFORT_RANK
from edge.spool import PendingDelivery
from eventplane.batch_writer import pack_texts
from eventplane.contract import Contract, ParticipantKind
from eventplane.limits import MAX_BATCH_BYTES
from eventplane.names import CORRELATION_ID
from eventplane.sender import SENDER_SERVICE

PROBE = b"[]"
"""A batch of no events: readers take it like any other, and the broker has to acknowledge it."""

_MOST_CHARACTERS = (MAX_BATCH_BYTES - 1) // 4
"""Most text of one batch: it decompresses within the readers' bound at up to 4 bytes a character."""

_HEADROOM = 0.9
"""How much of the proportional share to try next when a batch is too large: texts compress unevenly."""

MOST_GATHERED = 0.5
"""How full the spool may be while its events wait for a batch. Ours: from 70 % on it refuses or drops some
(`edge.pressure`), which must not happen to any while the cloud can be reached."""

_LIFETIME_SHARE = 2
"""An event waits for at most one part in so many of its lifetime. Ours: the rest is for the delivery."""

# The plane's attributes precede what a service wrote, so the first match is the plane's.
_SERVICE = re.compile(rf'"{SENDER_SERVICE}":"([^"]*)"')


def pack_first(texts: Sequence[str], limit: int) -> tuple[bytes, int]:
    """Return a compressed batch of as many of the first events as fit `limit` bytes, and their number.

    At least one of a non-empty `texts`, however large: an event cannot be divided.
    """
    sizes = accumulate(len(text) + 1 for text in texts)
    count = max(1, sum(1 for _ in takewhile(lambda size: size <= _MOST_CHARACTERS, sizes)))
    payload = pack_texts(texts[:count])
    while len(payload) > limit and count > 1:
        count = max(1, min(count - 1, int(count * limit / len(payload) * _HEADROOM)))
        payload = pack_texts(texts[:count])
    return payload, count


def pack_one(texts: Sequence[str], _limit: int) -> tuple[bytes, int]:
    """Return the first event alone, uncompressed, as any reader of CloudEvents understands it."""
    return texts[0].encode("utf-8"), 1


class BatchingDelays:
    """The time that events of each outbox may wait for a batch under `contract`, at most `longest_ms`.

    Requests and replies do not wait, and neither do events that are not stored.
    """

    def __init__(self, contract: Contract, longest_ms: int) -> None:
        everybody = contract.participants.values()
        on_device = (each for each in everybody if each.kind is not ParticipantKind.CLOUD_SERVICE)
        delays = {each.name: min(each.outbox.batching_delay_ms, longest_ms) for each in on_device}
        self._delays = {name: delay for name, delay in delays.items() if delay}

    @property
    def longest_s(self) -> float:
        """The longest that any event waits, seconds."""
        return max(self._delays.values(), default=0) / 1_000

    def due_ms(self, pending: Iterable[PendingDelivery]) -> int:
        """Return when the first of `pending` has to go, milliseconds of uptime; 0 for at once."""
        return min(map(self._due_ms, pending), default=0) if self._delays else 0

    def _due_ms(self, pending: PendingDelivery) -> int:
        found = _SERVICE.search(pending.json)
        delay = self._delays.get(found[1], 0) if found else 0
        if not delay or pending.delivery.rank == BEST_EFFORT_RANK or f'"{CORRELATION_ID}"' in pending.json:
            return 0
        if pending.expires_ms is not None:
            delay = min(delay, (pending.expires_ms - pending.stored_ms) // _LIFETIME_SHARE)
        return pending.stored_ms + delay
