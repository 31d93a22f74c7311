"""The line to the home's broker, of the forwarder and of each service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edge.link import Backoff, Link, Wire
from edge.messages import LinkName
from edge.mqtt.address import BrokerAddress

DialAddress = Callable[[BrokerAddress, int], Wire]
"""Opens the connection of a generation to an address, without waiting for it."""


@dataclass(frozen=True, slots=True)
class DnsSd:
    """The broker that `thing` ('': any) announces, over one of `interfaces` (none: all that lead home)."""

    thing: str = ""
    interfaces: tuple[str, ...] = ()


def link_to_broker(
    address: BrokerAddress,
    found_by: Path | DnsSd | None,
    dial: DialAddress,
    backoff: Backoff,
    connect_timeout_s: float,
    *,
    has_login: bool,
    wake: Callable[[], None] = lambda: None,
) -> Link:
    """To `address`; or to where a profile of Mosquitto leads, or who announces a broker, and after it.

    A broker that is announced is known by the certificate of `address`. `wake` is called by another thread
    when there is another one. Raises `LibraryMissingError`.
    """
    if found_by is None:
        return Link(LinkName.LOCAL, partial(dial, address), backoff, connect_timeout_s)
    # Only where there is one: it takes memory.
    if isinstance(found_by, DnsSd):
        from edge.discovery.dns_sd import AnnouncedBroker, AnnouncedLink, browse_home

        wanted = AnnouncedBroker(found_by.thing, address.tls, has_login)
        return AnnouncedLink(wanted, browse_home(found_by.interfaces), dial, backoff, connect_timeout_s, wake)
    from edge.discovery.broker import ProfileLink

    return ProfileLink(found_by, address, dial, backoff, connect_timeout_s, has_login=has_login)
