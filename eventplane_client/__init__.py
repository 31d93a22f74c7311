"""The client library: put events, get each once, whatever crashes. docs/client.md is its guide.

with connect(ClientSettings("alarm-centre", "sqs:prod")) as client, client.subscribe() as inbox:
    for event in inbox:
        ...
"""

from eventplane.sender import Sender
from eventplane_client.client import Client
from eventplane_client.cloud_event import cloud_event_of
from eventplane_client.connection import connect
from eventplane_client.inbox import Inbox, Received
from eventplane_client.ports import Mode
from eventplane_client.settings import ClientSettings

__all__ = ["Client", "ClientSettings", "Inbox", "Mode", "Received", "Sender", "cloud_event_of", "connect"]
