"""A line that goes where Mosquitto's profile leads, and after the broker when it moves."""

from __future__ import annotations

from pathlib import Path

from edge.discovery.finder import BrokerFinder
from edge.link import Backoff, DialAddress, Link
from edge.mailbox import LinkName
from edge.mqtt.endpoint import BrokerAddress


class ProfileLink(Link):
    """To the broker of `profile`; to `fallback` as long as no profile could be read."""

    def __init__(
        self,
        profile: Path,
        fallback: BrokerAddress,
        dial: DialAddress,
        backoff: Backoff,
        connect_timeout_s: float,
        *,
        has_login: bool,
    ) -> None:
        self._finder = finder = BrokerFinder(profile, fallback, has_login=has_login)
        super().__init__(
            LinkName.LOCAL, lambda number: dial(finder.next(), number), backoff, connect_timeout_s
        )

    @property
    def complaint(self) -> str | None:
        return self._finder.complaint

    def tick(self, now: float) -> None:
        """Also leave a broker that has moved."""
        if self.up and self._finder.has_moved(now):
            self.leave()
        super().tick(now)

    def connected(self, generation: int, now: float) -> bool:
        stands = super().connected(generation, now)
        if stands:
            self._finder.arrived()
        return stands
