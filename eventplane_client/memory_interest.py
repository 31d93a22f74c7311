"""Interest in a plane in memory: in force at once."""

from __future__ import annotations

from eventplane.interest.announcement import Announcement
from eventplane_client.memory import MemoryPlane


class MemoryInterest:
    """What one program of a participant announces to `plane`."""

    def __init__(self, plane: MemoryPlane, participant: str) -> None:
        self._plane = plane
        self._participant = participant

    def announce(self, announcement: Announcement) -> None:
        self._plane.announce(self._participant, self, announcement.interest)

    def withdraw(self) -> None:
        self._plane.announce(self._participant, self, None)

    def close(self) -> None:
        self.withdraw()
