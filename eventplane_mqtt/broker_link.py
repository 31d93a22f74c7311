"""Makes the link to a broker at an address, or to one that is found by a profile or an announcement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from eventplane_mqtt.endpoint import BrokerAddress
from eventplane_mqtt.link import Backoff, DialAddress, Link
from eventplane_mqtt.mailbox import LinkName


class DnsSd(NamedTuple):
    """The broker that `thing` ('': any) announces, over one of `interfaces` (none: all of the home)."""

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
    name: LinkName = LinkName.LOCAL,
    wake: Callable[[], None] = lambda: None,
) -> Link:
    """Return a link to `address`, or to the broker that a profile of Mosquitto or an announcement names.

    An announced broker is verified by the certificate of `address`. `wake` is called by another thread when
    another broker is announced. Raises `LibraryMissingError`.
    """
    if found_by is None:
        return Link(name, partial(dial, address), backoff, connect_timeout_s)
    from parts import load  # only where used: it takes memory

    if isinstance(found_by, DnsSd):
        dns_sd = load("discovery", "dns_sd")
        wanted = dns_sd.AnnouncedBroker(found_by.thing, address.tls, has_login)
        browse = partial(dns_sd.BrokerBrowser, found_by.interfaces)
        link: Link = dns_sd.AnnouncedLink(wanted, browse, dial, backoff, connect_timeout_s, wake)
        return link
    follow: Callable[..., Link] = load("discovery", "broker").ProfileLink
    return follow(found_by, address, dial, backoff, connect_timeout_s, has_login=has_login, name=name)
