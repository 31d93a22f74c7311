"""One MQTT connection over paho, from dialling to its end; a reconnect is a new one.

A fresh client for each connection is what makes the rest simple: paho's unbounded outbound memory ends
with the connection (the spool sends again), and an acknowledgement cannot reach a later connection.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.messages import Acknowledged, Connected, Disconnected, LinkName, Message, Received

_QOS = 1
_LOOP_S = 1.0
"""How long paho may wait in one turn, seconds; it also looks after its keepalive once a turn."""

_paho_log = logging.getLogger("edge.paho")
_paho_log.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: who may vouch for the server, and our own certificate and key."""

    ca: Path
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """A context that verifies the server; read for each connection, so that a new certificate counts."""
        with _naming(self.ca):
            context = ssl.create_default_context(cafile=str(self.ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with _naming(self.certificate, self.key):
            context.load_cert_chain(str(self.certificate), str(self.key))
        return context


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Whom to connect to and as whom; `keepalive_s` and `connect_timeout_s` in seconds."""

    host: str
    port: int
    client_id: str
    clean_session: bool
    keepalive_s: int
    connect_timeout_s: float
    subscriptions: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    protocol: Literal["3.1.1", "5"] = "3.1.1"


class Connection:
    """Dials `endpoint` at once, in a thread of its own; everything that happens goes to `emit`."""

    def __init__(
        self, endpoint: Endpoint, link: LinkName, generation: int, emit: Callable[[Message], None]
    ) -> None:
        self._endpoint = endpoint
        self._link = link
        self._generation = generation
        self._emit = emit
        self._reason = "connection lost"
        self._abandoned = False
        # Held by whoever uses paho from outside: its sockets must not be closed under their hands.
        self._alive = threading.Lock()
        self._ended = False
        self._client = self._new_client()
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{link}-{generation}", daemon=True)
        self._thread.start()

    def publish(self, topic: str, payload: bytes) -> int:
        """Send at QoS 1; the packet id comes back in `Acknowledged`, unless the connection ends before.

        The id is 0, which is none, when the connection has ended already and `Disconnected` is on its way.
        """
        with self._alive:
            # paho's return code is of no use: what is not acknowledged is sent again, whatever the cause.
            return 0 if self._ended else self._client.publish(topic, payload, qos=_QOS).mid

    def acknowledge(self, mid: int) -> None:
        """Send PUBACK for a received message of this connection."""
        with self._alive:
            if not self._ended:
                self._client.ack(mid, _QOS)

    def close(self, timeout_s: float) -> None:
        """Say goodbye and wait up to `timeout_s` seconds for the thread's end."""
        with self._alive:
            if not self._ended:
                self._client.disconnect()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.abandon()

    def abandon(self) -> None:
        """Cut the line without waiting for anybody; nothing may be sent over it any more."""
        self._abandoned = True
        with self._alive:
            open_socket = self._client.socket()
            if isinstance(open_socket, socket.socket):
                # Not the TLS layer's own shutdown: it must not be touched while the thread reads from it.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def _new_client(self) -> Client:
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._endpoint.client_id,
            # MQTT 5 asks for this when it connects, and paho's default there is a clean start.
            clean_session=None if self._endpoint.protocol == "5" else self._endpoint.clean_session,
            protocol=MQTTv5 if self._endpoint.protocol == "5" else MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.enable_logger(_paho_log)
        client.max_inflight_messages_set(0)  # the window is the forwarder's to keep
        client.connect_timeout = self._endpoint.connect_timeout_s
        client.on_socket_open = _send_at_once
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_disconnect = self._on_disconnect
        # With this set, paho never writes to the socket from the caller's thread, only from ours.
        client.on_socket_register_write = lambda *_: None
        return client

    def _run(self) -> None:
        try:
            if self._endpoint.tls:
                self._client.tls_set_context(self._endpoint.tls.context())
            self._client.connect(self._endpoint.host, self._endpoint.port, self._endpoint.keepalive_s)
        except (OSError, ValueError) as error:
            self._reason = f"cannot connect to {self._endpoint.host}:{self._endpoint.port}: {error}"
        else:
            self._loop()
        finally:
            with self._alive:
                self._ended = True
                self._client.reinitialise()  # closes its sockets now, not when it is collected
            self._emit(Disconnected(self._link, self._generation, self._reason))

    def _loop(self) -> None:
        while not self._abandoned and self._client.socket() is not None:
            if self._client.loop(_LOOP_S) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return

    def _on_connect(
        self,
        client: Client,
        _data: Any,
        _flags: ConnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if reason.is_failure:
            self._reason = (
                f"CONNECT refused: {reason}; see that the certificate is active and its policy allows "
                f"client id {self._endpoint.client_id!r}"
            )
        elif self._endpoint.subscriptions:
            client.subscribe([(topic, _QOS) for topic in self._endpoint.subscriptions])
        else:
            self._emit(Connected(self._link, self._generation))

    def _on_subscribe(
        self, client: Client, _data: Any, _mid: int, reasons: list[ReasonCode], _properties: Properties | None
    ) -> None:
        refused = [
            topic
            for topic, reason in zip(self._endpoint.subscriptions, reasons, strict=False)
            if reason.is_failure
        ]
        if refused:
            self._reason = f"SUBSCRIBE refused for {', '.join(refused)}; see the broker's access rules"
            client.disconnect()
        else:
            self._emit(Connected(self._link, self._generation))

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._emit(Received(self._link, self._generation, message.mid, message.topic, bytes(message.payload)))

    def _on_publish(
        self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        failure = str(reason) if reason.is_failure else None
        self._emit(Acknowledged(self._link, self._generation, mid, failure))

    def _on_disconnect(
        self,
        _client: Client,
        _data: Any,
        _flags: DisconnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if reason.is_failure and self._reason == "connection lost":
            self._reason = f"connection lost: {reason}"


def _send_at_once(_client: Client, _data: Any, opened: Any) -> None:
    """Without this a small packet waits up to 40 ms for the acknowledgement of the one before (Nagle)."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@contextlib.contextmanager
def _naming(*files: Path) -> Iterator[None]:
    """Python's own errors about a certificate or key do not say in which file."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{' or '.join(map(str, files))} cannot be used: {error}") from error
