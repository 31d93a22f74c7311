"""The interest of the readers of this device's channels: services announce it, the cloud sends it as a state.

Without such knowledge everything is forwarded. The home's broker retains announcements and sends them again
over each connection; those of an earlier connection are forgotten, because a withdrawal would be missed.
"""

from __future__ import annotations

import logging

from edge.durable import can_load
from eventplane.contract import Channel, Priority
from eventplane.envelope import Envelope
from eventplane.filters import Filter
from eventplane.values import RandomBytes
from eventplane_mqtt.mailbox import Received

_log = logging.getLogger(__name__)

_NAME_BYTES = 8


class Interest:
    """The interest of each reader, by the address of its channel.

    `last` has the name of the last live announcement of each.
    """

    def __init__(self, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._gone: set[str] = set()
        self._announced: dict[str, Filter] = {}
        self._uplink: tuple[str, Filter] | None = None
        self._generation = 0
        self.last: dict[str, str] = {}

    def take(self, message: Received, channel: Channel) -> None:
        """Take what the service with the inbox `channel` announces; log and ignore what is invalid.

        A retained one does not prove that the service is alive.
        """
        service, inbox = channel.participant, channel.address
        if message.generation != self._generation:
            self.forget()
            self._generation = message.generation
        # Valid or not, it replaces what was announced before.
        before = self._announced.pop(inbox, None)
        self._gone.discard(inbox)
        if not can_load("eventplane.interest.announcement"):
            return  # everything is forwarded
        from eventplane.interest.announcement import AnnouncementError, read_announcement

        try:
            announcement = read_announcement(message.payload, service)
        except AnnouncementError as error:
            _log.warning("%s; everything is forwarded to %s", error, inbox)
            return
        if announcement is not None:
            self._announced[inbox] = announcement.interest
            if not message.retained:
                self.last[inbox] = self._random_bytes(_NAME_BYTES).hex()
            _log.info("%s announced what it handles", service)
        elif before is not None:
            _log.info("%s announces nothing any more", service)
            self._gone.add(inbox)

    def forget(self) -> None:
        """Forget what services announced over a connection that has ended."""
        self._announced.clear()
        self._gone.clear()

    def wanted_up(self, uplink: str, interest: Filter | None) -> None:
        """Set what the cloud wants of what leaves over `uplink` (None: unknown)."""
        self._uplink = None if interest is None else (uplink, interest)

    def answers(self, address: str, event: Envelope, priority: Priority) -> bool:
        """Return whether the channel's reader is expected to answer `event`, if that asks for an answer.

        A reader that withdrew its announcement may be gone: events are still forwarded to it, but no answer
        is awaited.
        """
        return address not in self._gone and self.wants(address, event, priority)

    def wants(self, address: str, event: Envelope, priority: Priority) -> bool:
        """Return whether to forward `event` to the channel at `address`."""
        interest = self._announced.get(address)
        if self._uplink is not None and self._uplink[0] == address:
            interest = self._uplink[1]
        if interest is None:
            return True
        from eventplane.interest import is_wanted  # in memory since an interest was read

        return is_wanted(interest, event, priority)
