"""The client library: put events, get each once, whatever crashes. docs/reference/client.md is its guide.

with connect("sqs:prod", "alarm-centre") as client, client.subscribe() as inbox:
    for event in inbox:
        ...
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eventplane.envelope import Sender
    from eventplane_client.client import Client
    from eventplane_client.cloud_event import cloud_event_of
    from eventplane_client.connection import connect, memory_plane
    from eventplane_client.errors import UnhandleableError
    from eventplane_client.inbox import Inbox, Received
    from eventplane_client.ports import Mode
    from eventplane_client.settings import ClientSettings

__all__ = [
    "Client",
    "ClientSettings",
    "Inbox",
    "Mode",
    "Received",
    "Sender",
    "UnhandleableError",
    "cloud_event_of",
    "connect",
    "memory_plane",
]

_MODULES = {
    "Client": "eventplane_client.client",
    "ClientSettings": "eventplane_client.settings",
    "Inbox": "eventplane_client.inbox",
    "Mode": "eventplane_client.ports",
    "Received": "eventplane_client.inbox",
    "Sender": "eventplane.envelope",
    "UnhandleableError": "eventplane_client.errors",
    "cloud_event_of": "eventplane_client.cloud_event",
    "connect": "eventplane_client.connection",
    "memory_plane": "eventplane_client.connection",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: a service on a device loads nothing for the cloud."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
