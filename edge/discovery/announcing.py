"""Keeps what is announced true: as profile and interfaces are now, on the named interfaces and no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from edge.discovery.announcement import Service, services
from edge.discovery.errors import DiscoveryError
from edge.discovery.interfaces import Interface
from edge.discovery.profile_files import load_profile

_log = logging.getLogger(__name__)


class Voice(Protocol):
    """Speaks on one interface; see `edge.discovery.dns_sd.Announcer`."""

    def tell(self, services: Sequence[Service]) -> None: ...

    def close(self) -> None: ...


class Announcing:
    """Of the broker of `profile`, on each of the interfaces called `names`.

    `read` gives an interface by its name, or raises `InterfaceError`; `speak` gets a voice on it.
    """

    def __init__(
        self,
        profile: Path,
        names: Iterable[str],
        read: Callable[[str], Interface],
        speak: Callable[[Interface], Voice],
    ) -> None:
        self._profile = profile
        self._read = read
        self._speak = speak
        self._places = {name: _Place() for name in names}

    def look(self) -> None:
        """Announce what has changed, withdraw what is no longer true; what stands in the way is logged."""
        for name, place in self._places.items():
            try:
                interface = self._read(name)
                told = services(load_profile(self._profile), interface, str(self._profile))
                if (interface, told) != (place.interface, place.told):
                    place.silence()
                    place.voice = self._speak(interface)
                    place.interface, place.told = interface, told
                    place.voice.tell(told)
                    _log_told(name, told)
                place.complaint = ""
            except (DiscoveryError, OSError) as error:
                place.silence()
                place.complain(f"nothing is announced on {name}: {error}")

    def close(self) -> None:
        """Withdraw everything."""
        for place in self._places.values():
            place.silence()


class _Place:
    """One interface, and what is announced there."""

    def __init__(self) -> None:
        self.interface: Interface | None = None
        self.told: list[Service] = []
        self.voice: Voice | None = None
        self.complaint = ""

    def silence(self) -> None:
        if self.voice is not None:
            self.voice.close()
        self.voice, self.interface, self.told = None, None, []

    def complain(self, complaint: str) -> None:
        """Once of each."""
        if complaint != self.complaint:
            _log.error("%s", complaint)
        self.complaint = complaint


def _log_told(name: str, told: Sequence[Service]) -> None:
    for each in told:
        _log.info("%s: announced %s at port %d of %s", name, each.kind, each.port, ", ".join(each.addresses))
        if each.anonymous:
            _log.warning("port %d takes everybody in the home without a password", each.port)
