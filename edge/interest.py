"""What readers of this device's channels handle: services by what they announce, the cloud by a state.

What is not known is forwarded. Announcements are retained by the home's broker and come again over each
connection; those of an earlier one count for nothing, because what was withdrawn meanwhile does not come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from eventplane.announcement import AnnouncementError, read_announcement
from eventplane.contract import Priority
from eventplane.envelope import Envelope
from eventplane.filters import Filter
from eventplane.interest import is_wanted

_log = logging.getLogger(__name__)


class Interest:
    """Of the services by the address of their inbox, and of the cloud by the uplink's.

    `ended` is called with a service's name when it withdraws, or its clean session ends: nobody answers for
    it any more.
    """

    def __init__(self, ended: Callable[[str], None] = lambda service: None) -> None:  # noqa: ARG005
        self._ended = ended
        self._announced: dict[str, Filter] = {}
        self._uplink: tuple[str, Filter] | None = None
        self._generation = 0

    def take(self, service: str, inbox: str, payload: bytes, generation: int) -> None:
        """What `service` announces over the connection `generation`; what is wrong is refused and logged."""
        if generation != self._generation:
            self.forget()
            self._generation = generation
        # Whatever it is, it stands in the place of what was announced before.
        before = self._announced.pop(inbox, None)
        try:
            announcement = read_announcement(payload, service)
        except AnnouncementError as error:
            _log.warning("%s; everything is forwarded to %s", error, inbox)
            return
        if announcement is not None:
            self._announced[inbox] = announcement.interest
            _log.info("%s announced what it handles", service)
        elif before is not None:
            _log.info("%s announces nothing any more", service)
            self._ended(service)

    def forget(self) -> None:
        """The connection to the home's broker is gone."""
        self._announced.clear()

    def wanted_up(self, uplink: str, interest: Filter | None) -> None:
        """What the cloud wants of what leaves over `uplink` (None: unknown)."""
        self._uplink = None if interest is None else (uplink, interest)

    def wants(self, address: str, event: Envelope, priority: Priority) -> bool:
        """Whether to forward `event` to the channel at `address`."""
        if self._uplink is not None and self._uplink[0] == address:
            return is_wanted(self._uplink[1], event, priority)
        return is_wanted(self._announced.get(address), event, priority)
