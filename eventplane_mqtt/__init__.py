"""MQTT for services and forwarder on a device: QoS 0 and 1, acknowledgement by the receiver.

`codec` and `session` do no I/O; `dial`, `transport` and `connection` do nothing else. `link` keeps a
connection up, `mailbox` queues its messages for a loop. Needs the standard library and core.
"""

from eventplane_mqtt.connection import Connection
from eventplane_mqtt.endpoint import Endpoint, Login, PinnedCertificate, TlsFiles

__all__ = ["Connection", "Endpoint", "Login", "PinnedCertificate", "TlsFiles"]
