"""A line to a broker that somebody in the home announces by DNS-SD, and to another one when that is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from edge.discovery.errors import LibraryMissingError
from edge.link import Backoff, Link
from edge.mailbox import LinkName
from edge.mqtt.endpoint import BrokerAddress, PinnedCertificate

if TYPE_CHECKING:  # it takes memory, and a package
    from edge.discovery.dns_sd import Announced
    from edge.link import DialAddress

_log = logging.getLogger(__name__)


class Browser(Protocol):
    """Knows what is announced; see `edge.discovery.dns_sd.BrokerBrowser`."""

    @property
    def found(self) -> Sequence[Announced]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of the announced brokers to connect to: that of `thing`, or ('') of any.

    An announcement is not authenticated. With a `certificate` only the broker that shows it is connected to;
    with a password to show, and no certificate, none.
    """

    thing: str
    certificate: PinnedCertificate | None
    has_login: bool

    def refusal(self, announced: Announced) -> str | None:
        """Return why an announced broker is not the wanted one, None if it is."""
        if self.thing not in ("", announced.thing):
            return f"it is of thing {announced.thing or 'unknown'}"
        if announced.with_tls and self.certificate is None:
            return "it speaks TLS, and no certificate to know it by was given"
        if not announced.with_tls and self.certificate is not None:
            return "it speaks without TLS, and has no certificate to be known by"
        if not announced.with_tls and self.has_login:
            return "it would get the password over the network without TLS"
        return None


class AnnouncedLink(Link):
    """To the `wanted` one of the brokers that a browser finds; dials nobody while there is none.

    `browse` starts a browser that calls what it is given whenever it finds something else; that wakes the
    owner, so that it calls `tick`. Several addresses are dialled in turn, and the last that worked first.
    """

    def __init__(
        self,
        wanted: Wanted,
        browse: Callable[[Callable[[], None]], Browser],
        dial: DialAddress,
        backoff: Backoff,
        connect_timeout_s: float,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(
            LinkName.LOCAL, lambda number: dial(self._next(), number), backoff, connect_timeout_s
        )
        self._wanted = wanted
        self._turn = 0
        self._seen: Sequence[Announced] = ()
        self._browser = browse(wake)

    @property
    def complaint(self) -> str | None:
        """Why nobody is dialled."""
        if any(self._addresses()):
            return None
        refused = [f"{each.name}: {self._wanted.refusal(each)}" for each in self._seen]
        return "; ".join(refused) or "nobody announces a broker in the home"

    def deadline(self) -> float | None:
        return None if self._has_to_wait() else super().deadline()

    def tick(self, now: float) -> None:
        """Dial, unless nobody is announced."""
        found = self._browser.found
        if found != self._seen:
            self._seen = found
            _log.info("brokers in the home: %s", self.complaint or ", ".join(map(str, self._addresses())))
        if not self._has_to_wait():
            super().tick(now)

    def connected(self, generation: int, now: float) -> bool:
        stands = super().connected(generation, now)
        if stands:
            self._turn -= 1
        return stands

    def close(self, timeout_s: float) -> None:
        super().close(timeout_s)
        self._browser.close()

    def _has_to_wait(self) -> bool:
        return not self.is_dialling and not any(self._addresses())

    def _next(self) -> BrokerAddress:
        addresses = list(self._addresses())
        self._turn += 1
        return addresses[(self._turn - 1) % len(addresses)]

    def _addresses(self) -> Iterator[BrokerAddress]:
        for each in self._seen:
            if self._wanted.refusal(each) is None:
                for host in each.hosts:
                    yield BrokerAddress(host, each.port, self._wanted.certificate)


def browse_home(names: Sequence[str]) -> Callable[[Callable[[], None]], Browser]:
    """Return what starts a browser on the interfaces called `names`, or on all that a home's network is on.

    Raises `LibraryMissingError`.
    """
    try:
        from edge.discovery.dns_sd import BrokerBrowser
    except ImportError as error:
        raise LibraryMissingError from error
    return lambda on_change: BrokerBrowser(names, on_change)
