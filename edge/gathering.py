"""How long an event may wait in the spool for company in one frame, as the outbox that it came over says."""

from __future__ import annotations

import re
from collections.abc import Iterable

from edge.memory_lane import BEST_EFFORT_RANK
from edge.spool import Waiting
from eventplane.contract import Contract, ParticipantKind
from eventplane.conversation.attributes import CORRELATION_ID
from eventplane.sender import SENDER_SERVICE

# The plane's attributes stand in front of what a service wrote, so that the first one is the plane's.
_SERVICE = re.compile(rf'"{SENDER_SERVICE}":"([^"]*)"')

MOST_GATHERED = 0.5
"""How full the spool may be while its events wait for company. Ours: from 70 % on it refuses or drops some
(`edge.pressure`), which nothing may come to while the cloud can be reached."""

_SHARE_OF_LIFE = 2
"""An event that expires waits for at most one part in so many of its life. Ours: the rest is for the way."""


class Gathering:
    """The delays of the outboxes on a device under `contract`, of which none is longer than `longest_ms`.

    Requests and replies do not wait, nor does what the spool does not hold.
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

    def due_ms(self, waiting: Iterable[Waiting]) -> int:
        """When the first of `waiting` has to go, in milliseconds of the device's life; 0 for at once."""
        return min(map(self._due_ms, waiting), default=0) if self._delays else 0

    def _due_ms(self, waiting: Waiting) -> int:
        found = _SERVICE.search(waiting.json)
        delay = self._delays.get(found[1], 0) if found else 0
        if not delay or waiting.delivery.rank == BEST_EFFORT_RANK or f'"{CORRELATION_ID}"' in waiting.json:
            return 0
        if waiting.expires_ms is not None:
            delay = min(delay, (waiting.expires_ms - waiting.stored_ms) // _SHARE_OF_LIFE)
        return waiting.stored_ms + delay
