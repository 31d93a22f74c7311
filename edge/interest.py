"""What readers of this device's channels handle: services by what they announce, the cloud by a state.

What is not known is forwarded. Announcements are retained by the home's broker and come again over each
connection; those of an earlier one count for nothing, because what was withdrawn meanwhile does not come.
"""

from __future__ import annotations

import logging
import os

from eventplane.announcement import AnnouncementError, read_announcement
from eventplane.contract import Priority
from eventplane.envelope import Envelope
from eventplane.filters import Filter
from eventplane.interest import is_wanted

_log = logging.getLogger(__name__)

_NAME_BYTES = 8


class Interest:
    """Of the services by the address of their inbox, and of the cloud by the uplink's."""

    def __init__(self) -> None:
        self._gone: set[str] = set()
        self._announced: dict[str, Filter] = {}
        self._uplink: tuple[str, Filter] | None = None
        self._generation = 0
        self._last: dict[str, str] = {}

    def take(
        self, service: str, inbox: str, payload: bytes, generation: int, *, retained: bool = False
    ) -> None:
        """What `service` announces over the connection `generation`; what is wrong is refused and logged.

        One that the broker had `retained` does not say that the service lives.
        """
        if generation != self._generation:
            self.forget()
            self._generation = generation
        # Whatever it is, it stands in the place of what was announced before.
        before = self._announced.pop(inbox, None)
        self._gone.discard(inbox)
        try:
            announcement = read_announcement(payload, service)
        except AnnouncementError as error:
            _log.warning("%s; everything is forwarded to %s", error, inbox)
            return
        if announcement is not None:
            self._announced[inbox] = announcement.interest
            if not retained:
                self._last[inbox] = os.urandom(_NAME_BYTES).hex()
            _log.info("%s announced what it handles", service)
        elif before is not None:
            _log.info("%s announces nothing any more", service)
            self._gone.add(inbox)

    def last(self, address: str) -> str | None:
        """Name the last announcement that the reader of a channel made while we listened; None: none."""
        return self._last.get(address)

    def forget(self) -> None:
        """The connection to the home's broker is gone."""
        self._announced.clear()
        self._gone.clear()

    def wanted_up(self, uplink: str, interest: Filter | None) -> None:
        """What the cloud wants of what leaves over `uplink` (None: unknown)."""
        self._uplink = None if interest is None else (uplink, interest)

    def answers(self, address: str, event: Envelope, priority: Priority) -> bool:
        """Whether the channel's reader is expected to answer `event` when it asks for that.

        Who withdrew what it had announced, or whose clean session ended, may be gone: what comes for it is
        forwarded, since nobody knows, and nobody waits for it.
        """
        return address not in self._gone and self.wants(address, event, priority)

    def wants(self, address: str, event: Envelope, priority: Priority) -> bool:
        """Whether to forward `event` to the channel at `address`."""
        if self._uplink is not None and self._uplink[0] == address:
            return is_wanted(self._uplink[1], event, priority)
        return is_wanted(self._announced.get(address), event, priority)
