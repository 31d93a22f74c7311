"""MQTT for exactly this job: QoS 0 and 1, a thread for each connection, acknowledgement by the receiver.

`encode`, `decode` and `session` do no I/O; `line`, `dial` and `connection` do nothing else.
"""

from edge.mqtt.connection import Connection
from edge.mqtt.endpoint import Endpoint, Will
from edge.mqtt.login import Login
from edge.mqtt.pinned_certificate import PinnedCertificate
from edge.mqtt.tls_files import TlsFiles

__all__ = ["Connection", "Endpoint", "Login", "PinnedCertificate", "TlsFiles", "Will"]
