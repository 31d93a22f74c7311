"""Numbers what a cloud service sends into ordered inboxes, for one life of its client."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import Final

from eventplane.contract import Contract
from eventplane.envelope import Envelope, EventKey, Sender
from eventplane.names import ORDER, ORDER_EPOCH
from eventplane.ordering import OrderedInboxes, next_positions, positions_text
from eventplane.sending import stamp_sender
from eventplane_client.system import SYSTEM, System

_EPOCH_BYTES: Final = 8
_REMEMBERED: Final = 1_000


class OutboxOrder:
    """Counts for `participant` what the cloud's routes of `contract` lead to ordered inboxes. Thread-safe.

    Each has an epoch of its own: order holds among the events of one life of one client.
    """

    def __init__(self, contract: Contract, participant: str, system: System = SYSTEM) -> None:
        self._contract = contract
        self._sender = Sender(service=participant)
        self._outbox = contract.participants[participant].outbox
        self._inboxes = OrderedInboxes(contract)
        self._random_bytes = system.random_bytes
        self._counted: dict[str, int] = {}
        self._numbered: OrderedDict[EventKey, str] = OrderedDict()
        self._lock = system.lock()

    @cached_property
    def _epoch(self) -> str:
        # With its first use: clones of a function's snapshot would share what is drawn before it.
        return self._random_bytes(_EPOCH_BYTES).hex()

    def numbered(self, event: Envelope) -> Envelope:
        """Return `event` with its positions: the same again for one that is sent again."""
        if not self._inboxes:
            return event
        priority = self._contract.priority(event, self._outbox)
        counters = self._inboxes.counters(stamp_sender(event, self._sender), priority, self._outbox)
        if not counters:
            return event
        with self._lock:
            epoch = self._epoch
            text = self._numbered.get(event.key)
            if text is None:
                positions = next_positions(counters, self._counted)
                self._counted.update(positions)
                text = self._numbered[event.key] = positions_text(positions)
                if len(self._numbered) > _REMEMBERED:
                    self._numbered.popitem(last=False)
        return event.stamped(**{ORDER_EPOCH: epoch, ORDER: text})
