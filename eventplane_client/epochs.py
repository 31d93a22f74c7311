"""Notices that a device has lost its store: its events then carry another epoch."""

from __future__ import annotations

from collections import OrderedDict

from eventplane.envelope import Envelope
from eventplane.names import EPOCH
from eventplane_client.notices import EpochChanged, Listener
from eventplane_client.ports import MessageFilter

_MOST_SOURCES = 10_000


class EpochWatch:
    """Tells `on_notice` of each change; what was known before a restart is in the `filter`'s state."""

    def __init__(self, filter: MessageFilter | None, on_notice: Listener) -> None:
        self._filter = filter
        self._on_notice = on_notice
        self._known: OrderedDict[str, str] = OrderedDict()

    def see(self, event: Envelope) -> None:
        """Look at an event that is handed out."""
        epoch = event.attributes.get(EPOCH)
        sender, source, _ = event.key
        # Another sender's word says nothing of this one's device. No sender and no source has a line end.
        stream = f"{sender}\n{source}"
        if epoch is None or self._known.get(stream) == epoch:
            return
        before = self._known.get(stream)
        if self._filter:
            before = self._filter.epoch(stream, str(epoch)) or before
        self._known[stream] = str(epoch)
        self._known.move_to_end(stream)
        if len(self._known) > _MOST_SOURCES:
            self._known.popitem(last=False)
        if before is not None:
            self._on_notice(EpochChanged(sender, source, before, str(epoch)))
