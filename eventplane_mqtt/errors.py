"""The base of the errors of the way to a broker."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class MqttError(EventPlaneError):
    """Base of the errors of the protocol, of a broker's discovery, and of a connection's files."""
