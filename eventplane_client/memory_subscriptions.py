"""Subscriptions in a plane in memory: in force at once."""

from __future__ import annotations

from datetime import datetime

from eventplane_client.errors import AlreadySubscribedError, NotSubscribedError
from eventplane_client.memory import MemoryPlane
from eventplane_client.subscription import checked_filter


class MemorySubscriptions:
    """Those of `participant` in `plane`."""

    def __init__(self, plane: MemoryPlane, participant: str) -> None:
        self._plane = plane
        self._participant = participant
        self._documents: dict[str, object] = {}

    def subscribe(self, name: str, filter: object) -> datetime:
        tree = checked_filter(name, filter)
        if self._documents.setdefault(name, filter) != filter:
            raise AlreadySubscribedError(self._participant, name)
        self._plane.subscribe(self._participant, name, tree)
        return self._plane.system.now()

    def unsubscribe(self, name: str) -> None:
        self._documents.pop(name, None)
        if not self._plane.unsubscribe(self._participant, name):
            raise NotSubscribedError(self._participant, name)
