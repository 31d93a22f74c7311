"""MQTT for the device: QoS 0 and 1, one thread for each connection, acknowledgement by the receiver.

`codec` and `session` do no I/O; `transport` and `connection` do nothing else.
"""

from edge.mqtt.connection import Connection
from edge.mqtt.endpoint import Endpoint, Login, PinnedCertificate, TlsFiles, Will

__all__ = ["Connection", "Endpoint", "Login", "PinnedCertificate", "TlsFiles", "Will"]
