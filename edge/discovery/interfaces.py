"""The network interfaces that the home's network is on."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge.discovery.errors import InterfaceError

_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFADDR: Final = 0x8915
_LOOPBACK: Final = 0x8
_POINT_TO_POINT: Final = 0x10
_MULTICAST: Final = 0x1000
"""Of Linux: netdevice(7)."""

_IPV6_ADDRESSES: Final = Path("/proc/net/if_inet6")
_LINK_LOCAL: Final = "20"
"""Its addresses mean something else on each network, so nobody is told of them."""


@dataclass(frozen=True, slots=True)
class Interface:
    """`ipv4` is what announcements go out from; `addresses` has it first, then the IPv6 ones."""

    name: str
    ipv4: str
    addresses: tuple[str, ...]


def read_interface(name: str) -> Interface:
    """The interface `name` as it is now. Raises `InterfaceError` for one that no home's network is on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            flags = struct.unpack_from("H", _ask(asking, _SIOCGIFFLAGS, name), 16)[0]
        except OSError as error:
            raise InterfaceError(
                name, error.strerror or str(error), "name one that `ip link` shows"
            ) from error
        if flags & _LOOPBACK:
            raise InterfaceError(name, "it leads nowhere but here", "name the one to the home's network")
        if flags & _POINT_TO_POINT or not flags & _MULTICAST:
            problem = "it is a line to one peer, as an uplink or a tunnel is"
            raise InterfaceError(name, problem, "name the one to the home's network")
        try:
            ipv4 = socket.inet_ntoa(_ask(asking, _SIOCGIFADDR, name)[20:24])
        except OSError as error:
            raise InterfaceError(
                name, "it has no IPv4 address yet", "see that the network gives it one"
            ) from error
    return Interface(name, ipv4, (ipv4, *_ipv6_addresses(name)))


def home_interfaces(names: Iterable[str] = ()) -> list[Interface]:
    """Those called `names`, by default all, that a home's network is on by now."""
    found = []
    for name in names or (each for _, each in socket.if_nameindex()):
        with suppress(InterfaceError):
            found.append(read_interface(name))
    return found


def _ask(asking: socket.socket, request: int, name: str) -> bytes:
    return fcntl.ioctl(asking, request, struct.pack("256s", name.encode()[:15]))


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
