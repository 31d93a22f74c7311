"""Checks that somebody carries each protocol that a contract names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points

from eventplane.contract import Contract, Problem
from eventplane.names import SENDERS


def unknown_protocols(contract: Contract) -> Iterator[Problem]:
    """Report every channel whose protocol no installed package adds: a deployment could not write there."""
    known = entry_points(group=SENDERS).names
    for channel in contract.channels:
        if channel.is_added_protocol and channel.transport not in known:
            yield Problem(
                f"participants.{channel.address}.transport",
                f"no installed package adds the protocol {channel.transport!r}",
                "install it beside this checkout, or correct the name",
            )
