"""The endpoints that events may be posted to: their URLs, and the IP addresses that connections lead to."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

from eventplane.attributes import is_uri
from eventplane.settings import Settings, SettingsError, variable_of
from eventplane.values import whole_number

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

HTTPS_PORT: Final = 443
MAX_PORT: Final = 65_535

GONE_S: Final = 3_600
"""How often an endpoint that answered 410 is asked again, seconds: it may have been a wrong deployment."""


class SinkScope(StrEnum):
    """The places of endpoints: nowhere if the contract has none, anywhere if the cloud is emulated."""

    NOWHERE = "nowhere"
    INTERNET = "internet"
    ANYWHERE = "anywhere"


@dataclass(frozen=True)
class SinkReach(Settings):
    """Settings of where endpoints may be."""

    sinks: SinkScope
    """Where endpoints may be."""
    sink_ports: tuple[int, ...] = (HTTPS_PORT,)
    """The ports that they may have on the internet."""

    def __post_init__(self) -> None:
        if not all(0 < each <= MAX_PORT for each in self.sink_ports):
            raise SettingsError(variable_of("sink_ports"), f"is malformed (ports are 1 to {MAX_PORT})")

    def url_problem(self, url: str) -> str | None:
        """Why events may not be posted to `url`, or None."""
        return url_problem(url, is_emulated=self.sinks is SinkScope.ANYWHERE, ports=self.sink_ports)

    def peer_problem(self, address: str, port: int) -> str | None:
        """Why nothing may be sent to `port` of the IP `address`, or None."""
        if self.sinks is SinkScope.ANYWHERE:
            return None
        return port_problem(port, self.sink_ports) or address_problem(address)


ANYWHERE: Final = SinkReach(SinkScope.ANYWHERE)

_URL = re.compile(
    r"(?P<scheme>[a-z]+)://(?P<user>[^/?#@]*@)?(?P<host>\[[^\]]*\]|[^/?#:@]+)(?::(?P<port>[0-9]*))?"
    r"(?:[/?][^#]*)?(?P<fragment>#.*)?",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
)

# The special-purpose registries of IANA, https://www.iana.org/assignments/iana-ipv4-special-registry and
# iana-ipv6-special-registry. Python's own list differs from release to release, and calls multicast and NAT64
# global.
_SPECIAL: Final = {
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "carrier-grade NAT",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4 relay",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarking",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::ffff:0:0/96": "IPv4-mapped",
    "64:ff9b::/96": "NAT64",
    "64:ff9b:1::/48": "NAT64",
    "2001::/32": "Teredo",
    "2001::/23": "reserved",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "3fff::/20": "documentation",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "ff00::/8": "multicast",
}
_PUBLIC_V6: Final = "2000::/3"


def url_problem(url: str, *, is_emulated: bool, ports: Collection[int] = (HTTPS_PORT,)) -> str | None:
    """Why events may not be posted to `url`, or None; it is not repeated, since it may hold a password.

    An emulated environment may use plain HTTP, any host and any port: its endpoints run beside it.
    """
    parts = _URL.fullmatch(url)
    port = _port(parts["port"]) if parts else None
    if not is_uri(url.partition("#")[0]) or parts is None or port is None:
        return "is not a URL with a host"
    if parts["user"] is not None:
        return "carries credentials, which would stand in templates; requests are signed instead"
    if parts["fragment"]:
        return "has a fragment, which is never sent"
    scheme = parts["scheme"].lower()
    if is_emulated:
        return None if scheme in ("http", "https") else "is neither https:// nor http://"
    if scheme != "https":
        return "is not https://"
    return port_problem(port, ports) or _host_problem(parts["host"].lower().strip("[]"))


def port_problem(port: int, ports: Collection[int]) -> str | None:
    """Why events may not be posted to `port`, or None where it is one of `ports`."""
    if port in ports:
        return None
    return (
        f"has port {port}, not one of: {', '.join(map(str, sorted(ports)))} (`sink_ports` of the environment)"
    )


def address_problem(address: str) -> str | None:
    """Why the IP `address` is not one of the public internet, or None.

    Raises ValueError for what is none. An address that stands for another one (mapped, NAT64, 6to4, Teredo)
    is refused whatever that one is: no endpoint needs it.
    """
    # Late: most functions read settings and post nowhere, and the tables of networks take 30 ms.
    import ipaddress

    host = ipaddress.ip_address(address.partition("%")[0])
    kind = next((kind for network, kind in _special_networks().items() if host in network), None)
    if kind is None and host.version == 6 and host not in ipaddress.ip_network(_PUBLIC_V6):
        kind = "reserved"
    if kind is None:
        return None
    return f"is not a public address ({kind}); only an emulated environment may use one"


@cache
def _special_networks() -> Mapping[IPv4Network | IPv6Network, str]:
    import ipaddress

    return {ipaddress.ip_network(network): kind for network, kind in _SPECIAL.items()}


def _port(digits: str | None) -> int | None:
    try:
        return whole_number(digits, MAX_PORT, 1) if digits else HTTPS_PORT
    except ValueError:
        return None


def _host_problem(host: str) -> str | None:
    try:
        return address_problem(host)
    except ValueError:
        is_public = _HOST.fullmatch(host) is not None and not host.endswith(
            (".localhost", ".local", ".internal")
        )
        return None if is_public else "names a host that is not on the internet"
