"""What of a broker is announced on one network: the listeners that others reach there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from edge.discovery.choice import is_every_address
from edge.discovery.errors import UnreachableError
from edge.discovery.interfaces import Interface
from edge.discovery.profile import Listener

PLAIN: Final = "_mqtt._tcp.local."
SECURE: Final = "_secure-mqtt._tcp.local."
"""The service names that IANA has for MQTT, without and with TLS."""


@dataclass(frozen=True, slots=True)
class Service:
    """A broker at `port` of `addresses`; `kind` says whether with TLS. `anonymous`: it takes everybody."""

    kind: str
    port: int
    addresses: tuple[str, ...]
    anonymous: bool = False


def services(listeners: Sequence[Listener], interface: Interface, name: str = "profile") -> list[Service]:
    """What to announce over `interface`. Raises `UnreachableError` when nobody there reaches a listener."""
    found = list(_services(listeners, interface))
    if not found:
        told = ", ".join(map(str, listeners))
        problem = f"nobody reaches the broker over {interface.name}: {told}"
        remedy = f"add a listener at {interface.ipv4}, with passwords or TLS, or announce nothing"
        raise UnreachableError(name, problem, remedy)
    return found


def _services(listeners: Sequence[Listener], interface: Interface) -> Iterator[Service]:
    for each in listeners:
        if each.port == 0 or each.protocol != "mqtt" or each.interface not in (None, interface.name):
            continue
        if each.host is None or is_every_address(each.host):
            addresses = [one for one in interface.addresses if _is_of_family(one, each)]
        else:
            addresses = [one for one in interface.addresses if one == each.host]
        if addresses:
            secure = each.certificate is not None or each.shared_key
            yield Service(SECURE if secure else PLAIN, each.port, tuple(addresses), each.anonymous)


def _is_of_family(address: str, listener: Listener) -> bool:
    family = "ipv6" if ":" in address else "ipv4"
    wanted = listener.family
    if listener.host is not None:
        wanted = "ipv6" if ":" in listener.host else "ipv4"
    return wanted in (None, family)
