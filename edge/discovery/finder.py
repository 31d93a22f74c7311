"""Follows a profile: where to dial next, and whether the broker has moved since."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from edge.discovery.choice import choose
from edge.discovery.errors import DiscoveryError
from edge.discovery.profile_files import load_profile
from edge.mqtt.endpoint import BrokerAddress

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
"""Between two looks at the profile while the line stands. Its owner looks when it is awake anyhow."""


class BrokerFinder:
    """Where the broker of `profile` is; `fallback` until a profile could be read.

    The profile is read anew for each dial. One that cannot be used changes nothing: `complaint` says what is
    wrong with it. Mosquitto follows its profile only when it starts again; so where the profile leads and
    nobody answers yet, every second dial goes to the address that last worked.
    """

    def __init__(self, profile: Path, fallback: BrokerAddress, *, has_login: bool) -> None:
        self.complaint: str | None = None
        self._profile = profile
        self._has_login = has_login
        self._found = self._sighted = fallback
        self._dialled: BrokerAddress | None = None
        self._worked: BrokerAddress | None = None
        self._look_at = 0.0

    def next(self) -> BrokerAddress:
        """Where to dial now."""
        self._sighted = self._read()
        self._decide()
        again = self._dialled == self._found
        self._dialled = self._worked if again and self._worked else self._found
        return self._dialled

    def arrived(self) -> None:
        """The last dial led to a connection."""
        self._worked = self._dialled

    def has_moved(self, now: float) -> bool:
        """Whether to leave the connection that stands, because the profile leads elsewhere by now.

        Said once of each change, and only when two looks in a row agree: while a file is written, it may be
        read in the middle of it. `now` is in monotonic seconds.
        """
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY_S
        sighted, self._sighted = self._sighted, self._read()
        return sighted == self._sighted and self._decide() and self._found != self._dialled

    def _decide(self) -> bool:
        """Take what was sighted; whether that is news."""
        is_news = self._sighted != self._found
        self._found = self._sighted
        if is_news:
            _log.info("%s: the broker is at %s", self._profile, self._found)
        return is_news

    def _read(self) -> BrokerAddress:
        """Where the profile leads; where it led before when it cannot be used."""
        complaint, found = None, self._found
        try:
            found = choose(load_profile(self._profile), has_login=self._has_login, name=str(self._profile))
        except DiscoveryError as error:
            complaint = str(error)
        if complaint and complaint != self.complaint:
            _log.warning("the broker's profile cannot be used, %s stays: %s", found, complaint)
        self.complaint = complaint
        return found
