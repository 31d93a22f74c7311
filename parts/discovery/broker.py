"""Connects to the listener of Mosquitto's profile that accepts us, and follows a change of the profile."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from eventplane_mqtt.endpoint import (
    BrokerAddress,
    DiscoveryError,
    PinnedCertificate,
    is_on_this_device,
    is_socket,
)
from eventplane_mqtt.mailbox import LinkName
from eventplane_mqtt.profile import Listener, is_every_address, load_profile
from eventplane_mqtt.reconnection import Backoff, DialAddress, Link

_log = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 5.0
"""Between two checks of the profile while the connection is up, seconds. The owner calls when it is awake."""


class NoListenerError(DiscoveryError):
    """No listener of the profile accepts us; the `problem` has a reason for each."""


def choose(listeners: Sequence[Listener], *, has_login: bool, name: str = "profile") -> BrokerAddress:
    """Return the address to connect to, with or without a password. Raises `NoListenerError`."""
    found = list(evaluate(listeners, has_login=has_login))
    accepting = [(each, to) for each, to in found if isinstance(to, BrokerAddress)]
    if not accepting:
        reasons = "; ".join(f"{each} {reason}" for each, reason in found)
        raise NoListenerError(name, reasons, "add the line `listener 1883 127.0.0.1`")
    _, address = min(accepting, key=lambda found: (not (found[0].anonymous or has_login), _rank(found[1])))
    return address


def evaluate(
    listeners: Sequence[Listener], *, has_login: bool
) -> Iterator[tuple[Listener, BrokerAddress | str]]:
    """Yield each listener, in the order of the profile, with its address if it accepts us, or why not."""
    for each in listeners:
        tls = PinnedCertificate(Path(each.certificate)) if each.certificate else None
        yield each, _rejection(each, has_login) or BrokerAddress(_host(each), each.port, tls)


def _rejection(listener: Listener, has_login: bool) -> str | None:
    if listener.protocol != "mqtt":
        return f"uses {listener.protocol}, not plain MQTT"
    if listener.shared_key:
        return "requires a pre-shared key"
    if listener.wants_certificate:
        return "requires a certificate of its clients"
    if listener.interface not in (None, "lo"):
        return f"is bound to the interface {listener.interface}, whose address is not in the profile"
    files = [listener.certificate, None if listener.port else listener.host]
    if any(each and not each.startswith("/") for each in files):
        return "has a relative path, whose directory only Mosquitto knows"
    if has_login and not listener.certificate and not is_on_this_device(_host(listener)):
        return "would receive the password over the network without TLS"
    return None


def _host(listener: Listener) -> str:
    """Return the host to dial for a listener on all addresses, or on one."""
    if listener.host is None or listener.interface == "lo":
        return "::1" if listener.family == "ipv6" else "127.0.0.1"
    if is_every_address(listener.host):
        return "::1" if ":" in listener.host else "127.0.0.1"
    return listener.host


def _rank(address: BrokerAddress) -> int:
    """Prefer the loopback interface, which needs no permission for a file; an address elsewhere is last."""
    if not is_on_this_device(address.host):
        return 3 if address.tls else 4
    if address.tls:
        return 2
    return 1 if is_socket(address.host) else 0


class ProfileLink(Link):
    """A link to the broker of `profile`; to `fallback` as long as no profile could be read.

    The profile is read for each dial. One that cannot be used changes nothing; `complaint` is its problem.
    Mosquitto follows its profile only when it restarts: while the new address does not answer, every second
    dial goes to the address that last worked.
    """

    def __init__(
        self,
        profile: Path,
        fallback: BrokerAddress,
        dial: DialAddress,
        backoff: Backoff,
        connect_timeout_s: float,
        *,
        has_login: bool,
        name: LinkName = LinkName.LOCAL,
    ) -> None:
        super().__init__(name, lambda number: dial(self._next(), number), backoff, connect_timeout_s)
        self._profile = profile
        self._has_login = has_login
        self._current = self._last_read = fallback
        self._dialled: BrokerAddress | None = None
        self._worked: BrokerAddress | None = None
        self._check_at = 0.0

    def tick(self, now: float) -> None:
        """Also leave a broker that has moved."""
        if self.up and now >= self._check_at:
            self._check_at = now + CHECK_EVERY_S
            before, self._last_read = self._last_read, self._read()
            # Two checks in a row must agree: a file may be read while it is written.
            if before == self._last_read and self._adopt() and self._current != self._dialled:
                self.leave()
        super().tick(now)

    def connected(self, generation: int, now: float) -> bool:
        is_current = super().connected(generation, now)
        if is_current:
            self._worked = self._dialled
        return is_current

    def _next(self) -> BrokerAddress:
        """Return the address to dial now."""
        self._last_read = self._read()
        self._adopt()
        is_repeated = self._dialled == self._current
        self._dialled = self._worked if is_repeated and self._worked else self._current
        return self._dialled

    def _adopt(self) -> bool:
        """Make the address that was read the current one; return whether it changed."""
        has_changed = self._last_read != self._current
        self._current = self._last_read
        if has_changed:
            _log.info("%s: the broker is at %s", self._profile, self._current)
        return has_changed

    def _read(self) -> BrokerAddress:
        """Return the address in the profile; the current one if the profile cannot be used."""
        complaint, found = None, self._current
        try:
            found = choose(load_profile(self._profile), has_login=self._has_login, name=str(self._profile))
        except DiscoveryError as error:
            complaint = str(error)
        if complaint and complaint != self.complaint:
            _log.warning("the broker's profile cannot be used, %s remains: %s", found, complaint)
        self.complaint = complaint
        return found
