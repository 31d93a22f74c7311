"""The line to the home's broker, of the forwarder and of each service."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from edge.link import Backoff, Link, Wire
from edge.messages import LinkName
from edge.mqtt.address import BrokerAddress

DialAddress = Callable[[BrokerAddress, int], Wire]
"""Opens the connection of a generation to an address, without waiting for it."""


def link_to_broker(
    address: BrokerAddress,
    profile: Path | None,
    dial: DialAddress,
    backoff: Backoff,
    connect_timeout_s: float,
    *,
    has_login: bool,
) -> Link:
    """To `address` or, with a `profile` of Mosquitto, to where that leads, and after it when it moves."""
    if profile is None:
        return Link(LinkName.LOCAL, partial(dial, address), backoff, connect_timeout_s)
    from edge.discovery.profile_link import ProfileLink  # only where there is one: it takes memory

    return ProfileLink(profile, address, dial, backoff, connect_timeout_s, has_login=has_login)
