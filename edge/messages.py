"""What the network threads tell the forwarder's loop: small values in one queue.

Every message about a connection carries its `generation`, which counts the connections of a link. MQTT
packet ids start again with each connection; without the generation a late acknowledgement would hit a
stranger.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eventplane.contract import Contract


class LinkName(StrEnum):
    """Who is at the other end: the home's broker or the cloud's."""

    LOCAL = "local"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection stands and its subscriptions are confirmed."""

    link: LinkName
    generation: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone, or never came to be. Exactly one for each generation."""

    link: LinkName
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message that waits for our acknowledgement; `mid` is 0 for QoS 0, which needs none.

    `retained`: the broker kept it from before we subscribed.
    """

    link: LinkName
    generation: int
    mid: int
    topic: str
    payload: bytes
    retained: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker's word on our publish `mid`: taken, or `failure` says why not."""

    link: LinkName
    generation: int
    mid: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End in good order."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Work under another contract from now on; `image` is the device's image's (None: as before)."""

    contract: Contract
    image: Contract | None = None


Message = Connected | Disconnected | Received | Acknowledged | Reload | Stop
