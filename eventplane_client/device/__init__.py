"""The client of a service on a device: a durable publisher, and a reader of its inbox.

with ServiceClient("call-service", on_event=place_call) as client:
    client.put(write_event({...}, {...}))  # the device's store has committed it when this returns

It needs Python and this checkout's `edge.mqtt`, `edge.link`, `edge.mailbox` and `edge.discovery`, no package.
"""

from eventplane_client.device.errors import UnhandleableError
from eventplane_client.device.service_client import MAX_MESSAGE_BYTES, Confirm, ServiceClient

__all__ = ["MAX_MESSAGE_BYTES", "Confirm", "ServiceClient", "UnhandleableError"]
