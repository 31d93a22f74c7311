"""Announces the broker on networks: the listeners that can be reached there, kept current."""

from __future__ import annotations

import fcntl
import logging
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from eventplane_mqtt.endpoint import DiscoveryError
from eventplane_mqtt.profile import Listener, load_profile

_log = logging.getLogger(__name__)

PLAIN: Final = "_mqtt._tcp.local."
SECURE: Final = "_secure-mqtt._tcp.local."
"""The service names that IANA has for MQTT, without and with TLS."""

_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFADDR: Final = 0x8915
_LOOPBACK: Final = 0x8
_POINT_TO_POINT: Final = 0x10
_MULTICAST: Final = 0x1000
"""Of Linux: netdevice(7)."""

_IPV6_ADDRESSES: Final = Path("/proc/net/if_inet6")
_LINK_LOCAL: Final = "20"
"""The scope of addresses that mean something else on each network: they are not announced."""


class InterfaceError(DiscoveryError):
    """The network interface `subject` does not lead to a home's network."""


class UnannouncedError(DiscoveryError):
    """No listener of the profile `subject` can be reached from the home."""


class Interface(NamedTuple):
    """A network interface. Announcements are sent from `ipv4`, the first of `addresses`."""

    name: str
    ipv4: str
    addresses: tuple[str, ...]


class BrokerOffer(NamedTuple):
    """A broker at `port` of `addresses`; `kind` is with or without TLS. `anonymous`: it needs no password."""

    kind: str
    port: int
    addresses: tuple[str, ...]
    anonymous: bool = False


class AnnouncementUpdater:
    """Announces the broker of `profile` on the interfaces called `names`, and on no other.

    `read` returns an interface by its name, or raises `InterfaceError`; `announce` announces services on it,
    as `parts.discovery.dns_sd.announce`, and returns the function that withdraws them.
    """

    def __init__(
        self,
        profile: Path,
        names: Iterable[str],
        read: Callable[[str], Interface],
        announce: Callable[[Interface, Sequence[BrokerOffer]], Callable[[], None]],
    ) -> None:
        self._profile = profile
        self._read = read
        self._announce = announce
        self._names = tuple(names)
        self._announced: dict[str, tuple[Interface, list[BrokerOffer], Callable[[], None]]] = {}
        self._problems: dict[str, str] = {}

    def update(self) -> None:
        """Announce what has changed, withdraw what is no longer true, log what fails until it changes."""
        for name in self._names:
            try:
                interface = self._read(name)
                found = services(load_profile(self._profile), interface, str(self._profile))
                if self._announced.get(name, ())[:2] != (interface, found):
                    self._withdraw(name)
                    self._announced[name] = interface, found, self._announce(interface, found)
                    _log_announced(name, found)
                self._problems.pop(name, None)
            except (DiscoveryError, OSError) as error:
                self._withdraw(name)
                problem = f"nothing is announced on {name}: {error}"
                if problem != self._problems.get(name):
                    _log.error("%s", problem)
                self._problems[name] = problem

    def close(self) -> None:
        """Withdraw everything."""
        for name in self._names:
            self._withdraw(name)

    def _withdraw(self, name: str) -> None:
        if name in self._announced:
            *_, close = self._announced.pop(name)
            close()


def services(listeners: Sequence[Listener], interface: Interface, name: str = "profile") -> list[BrokerOffer]:
    """Return what to announce over `interface`. Raises `UnannouncedError` if that is nothing."""
    found = []
    for each in listeners:
        if each.port == 0 or each.protocol != "mqtt" or each.interface not in (None, interface.name):
            continue
        bound = replace(each, interface=None)
        addresses = tuple(one for one in interface.addresses if bound.overlaps(Listener(each.port, one)))
        if addresses:
            secure = each.certificate is not None or each.shared_key
            found.append(BrokerOffer(SECURE if secure else PLAIN, each.port, addresses, each.anonymous))
    if not found:
        listed = ", ".join(map(str, listeners))
        problem = f"the broker cannot be reached over {interface.name}: {listed}"
        remedy = f"add a listener at {interface.ipv4}, with passwords or TLS, or announce nothing"
        raise UnannouncedError(name, problem, remedy)
    return found


def _log_announced(name: str, services: Sequence[BrokerOffer]) -> None:
    for each in services:
        _log.info("%s: announced %s at port %d of %s", name, each.kind, each.port, ", ".join(each.addresses))
        if each.anonymous:
            _log.warning("port %d accepts everybody in the home without a password", each.port)


def read_interface(name: str) -> Interface:
    """Return the interface `name` as it is now. Raises `InterfaceError` if it leads to no home's network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            flags = struct.unpack_from("H", _ioctl(control, _SIOCGIFFLAGS, name), 16)[0]
        except OSError as error:
            raise InterfaceError(
                name, error.strerror or str(error), "name one that `ip link` shows"
            ) from error
        if flags & _LOOPBACK:
            raise InterfaceError(name, "it is the loopback interface", "name the one to the home's network")
        if flags & _POINT_TO_POINT or not flags & _MULTICAST:
            problem = "it leads to one peer, as an uplink or a tunnel does"
            raise InterfaceError(name, problem, "name the one to the home's network")
        try:
            ipv4 = socket.inet_ntoa(_ioctl(control, _SIOCGIFADDR, name)[20:24])
        except OSError as error:
            raise InterfaceError(
                name, "it has no IPv4 address yet", "check that the network gives it one"
            ) from error
    return Interface(name, ipv4, (ipv4, *_ipv6_addresses(name)))


def home_interfaces(names: Iterable[str] = ()) -> list[Interface]:
    """Return the interfaces called `names`, by default all, that now lead to a home's network."""
    found = []
    for name in names or (each for _, each in socket.if_nameindex()):
        with suppress(InterfaceError):
            found.append(read_interface(name))
    return found


def _ioctl(control: socket.socket, request: int, name: str) -> bytes:
    return fcntl.ioctl(control, request, struct.pack("256s", name.encode()[:15]))


def _ipv6_addresses(name: str) -> list[str]:
    try:
        lines = [each.split() for each in _IPV6_ADDRESSES.read_text("ascii").splitlines()]
    except OSError:
        return []  # a device without IPv6
    return [
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
        for address, _, _, scope, _, owner in lines
        if owner == name and scope != _LINK_LOCAL
    ]
