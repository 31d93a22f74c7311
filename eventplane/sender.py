"""The sender of an event: what the transport authenticated, stamped by the first hop of the plane.

`source` is a claim of the event. The sender is not: the forwarder stamps the service whose outbox a message
lay in, and the cloud's router the device whose connection brought a frame. No participant can set either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

SENDER_DEVICE: Final = "senderdevice"
"""The thing name of the sending device: the MQTT client id, which the IoT policy binds to the certificate."""

SENDER_SERVICE: Final = "senderservice"
"""The sending participant: the one whose outbox the event lay in."""

SENDER_ATTRIBUTES: Final = frozenset({SENDER_DEVICE, SENDER_SERVICE})
"""The reserved attributes. An event that arrives with one that is not due there is refused."""

PLANE: Final = "eventplane"
"""The `senderservice` of what the cloud's routers write themselves. No participant can have this name."""

PLANE_CLIENT: Final = "/eventplane/cloud/ingest-errors"
"""The client id of frames that the plane puts into the devices' queue itself. No device can connect by it:
a thing's name has no slash."""


class Sender(NamedTuple):
    """`device` and `service` as far as the transport knows them; '' where it does not."""

    device: str = ""
    service: str = ""

    def __str__(self) -> str:
        """Return `home-1/voice-service`, `home-1/` (the device as a whole), `carers`, or '' (unknown)."""
        return f"{self.device}/{self.service}" if self.device else self.service

    @property
    def attributes(self) -> dict[str, str]:
        """The reserved attributes that name this sender."""
        named = {SENDER_DEVICE: self.device, SENDER_SERVICE: self.service}
        return {name: value for name, value in named.items() if value}


THE_PLANE: Final = Sender(service=PLANE)
"""The sender of what the cloud's routers write themselves."""


def sender_of(attributes: Mapping[str, object]) -> Sender:
    """Return the sender that an event's stamped `attributes` name."""
    # Raw members may have null for an attribute that is not set.
    return Sender(str(attributes.get(SENDER_DEVICE) or ""), str(attributes.get(SENDER_SERVICE) or ""))


def parse_sender(text: str) -> Sender:
    """Return the sender whose text this is: the inverse of `str`."""
    device, slash, service = text.partition("/")
    return Sender(device, service) if slash else Sender(service=text)


def sender_in_frame(client_id: str, attributes: Mapping[str, object]) -> Sender:
    """Return the sender of an event in a frame of `client_id`: the device, and the service it vouches for."""
    if client_id == PLANE_CLIENT:
        return THE_PLANE
    return Sender(client_id, sender_of(attributes).service)
