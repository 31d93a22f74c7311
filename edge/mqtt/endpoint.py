"""Whom to connect to and as whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.mqtt.login import Login
from edge.mqtt.pinned_certificate import PinnedCertificate
from edge.mqtt.tls_files import TlsFiles

MAX_PACKET_BYTES = 1024 * 1024
"""Largest packet that we take, bytes. Four times what our Mosquitto profile lets through. No setting: it only
bounds what a broker's packet can cost in memory, and no device gains by another value."""


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker shall publish when the connection ends without a farewell."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`host` is a name, an address or the path of a Unix socket, which has no `port`.

    `keepalive_s` (0: none, at most 65535), `connect_timeout_s` and `session_expiry_s` in seconds.

    Without `needs_subscriptions` a connection stands also when the broker refuses what it subscribes to.

    In MQTT 3.1.1 a session that is not clean lasts as long as the broker likes, in MQTT 5 for
    `session_expiry_s` after the connection. No setting: the home's broker is spoken to in MQTT 3.1.1, where
    its own `persistent_client_expiration` counts, and the cloud gets clean sessions.
    """

    host: str
    port: int
    client_id: str
    clean_session: bool
    keepalive_s: int
    connect_timeout_s: float
    subscriptions: tuple[str, ...] = ()
    needs_subscriptions: bool = True
    tls: TlsFiles | PinnedCertificate | None = None
    login: Login | None = None
    protocol: Literal["3.1.1", "5"] = "3.1.1"
    session_expiry_s: int = 7 * 24 * 3600
    will: Will | None = None
    max_packet_bytes: int = MAX_PACKET_BYTES

    @property
    def version(self) -> int:
        """The protocol level of CONNECT."""
        return 5 if self.protocol == "5" else 4
