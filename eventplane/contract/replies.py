"""The third channel of a participant that asks, and the routes that bring replies there.

The compiler writes the routes, so that routers, ledger and audit have nothing new to learn. They stand in the
compiled form as well: what a contract does can be read there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from eventplane.contract.channel_reader import read_channel
from eventplane.contract.model import Channel, Participant, Route
from eventplane.contract.reader import Section
from eventplane.contract.vocabulary import ParticipantKind, Place
from eventplane.conversation.attributes import REPLY_TO, REPLY_TYPE
from eventplane.filters import All, Exact
from eventplane.names import leads_down

REPLIES: Final = "replies"
"""What the channel is called."""

RETENTION_S: Final = 600
"""How long a reply is kept for who asked, seconds: twice what a request waits by default."""


def replies_channel(participant: str, kind: ParticipantKind) -> Channel:
    """Where the replies to `participant` come; a contract has nothing to set there."""
    channel = read_channel(participant, kind, Section(REPLIES, {}, []))
    if kind is ParticipantKind.DEVICE_SERVICE:
        # Mosquitto's acknowledgement is memory: a reply that it lost is repeated, while somebody may wait.
        return replace(channel, receipts=True, expiry_s=RETENTION_S)
    return replace(channel, retention_s=RETENTION_S)


def with_reply_routes(
    routes: tuple[Route, ...], participants: Mapping[str, Participant], top: Section
) -> tuple[Route, ...]:
    """`routes` with those that bring replies; faults go to `top`."""
    written = {each.name: each for each in routes}
    added = reply_routes(participants)
    for name, route in added.items():
        if written.get(name, route) != route:
            top.fault(f"routes.{name}", "the compiler writes this route", "give yours another name")
    for name, route in written.items():
        if route.destination.endswith(f".{REPLIES}") and name not in added:
            top.fault(
                f"routes.{name}.to",
                f"only the compiler leads routes to {route.destination}",
                "lead to an inbox; what a participant asks stands under its `asks`",
            )
    return tuple(each for _, each in sorted({**written, **added}.items()))


def reply_routes(participants: Mapping[str, Participant]) -> dict[str, Route]:
    """What the compiler writes, by name."""
    return {each.name: each for each in _reply_routes(participants)}


def _reply_routes(participants: Mapping[str, Participant]) -> Iterator[Route]:
    device = next((each for each in participants.values() if each.kind is ParticipantKind.DEVICE), None)
    for asker in participants.values():
        if asker.replies is None or asker.retired:
            continue
        name = f"replies-to-{asker.name}"
        filter = All((Exact("type", REPLY_TYPE), Exact(REPLY_TO, asker.name)))
        in_cloud = asker.kind is ParticipantKind.CLOUD_SERVICE
        yield Route(name, filter, asker.replies.address, Place.CLOUD if in_cloud else Place.DEVICE)
        if device is None:
            continue
        if in_cloud:
            yield Route(f"{name}-up", filter, device.outbox.address, Place.DEVICE)
        elif leads_down(participants):
            yield Route(f"{name}-down", filter, device.inbox.address, Place.CLOUD)
