"""What a participant announces that it handles, so that the rest need not come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from eventplane.interest.announcement import Announcement, AnnouncementError, new_announcement
from eventplane_client.errors import InterestError


class Interest(Protocol):
    """Where one program's announcement is kept as long as the program lives."""

    def announce(self, announcement: Announcement) -> None:
        """In the place of the one before. Raises `UnavailableError`, `ClosedError`."""

    def withdraw(self) -> None:
        """Nobody knows any more; nothing where nothing was announced. Raises `UnavailableError`."""

    def close(self) -> None:
        """The program ends, and takes its announcement with it."""


def checked_announcement(participant: str, filters: Iterable[object]) -> Announcement:
    """The announcement of `filters`. Raises `InterestError` with all that is wrong."""
    try:
        return new_announcement(participant, filters)
    except AnnouncementError as error:
        raise InterestError(participant, error.problems) from error
