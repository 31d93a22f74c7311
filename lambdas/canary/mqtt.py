"""One MQTT publish over a WebSocket, signed by the function's role: a way into IoT Core that has a client id.

The ingest rule stamps each publish with the client id of its connection. One over HTTPS has none
(`clientid()` is "n/a"), so routers refuse it. Over a WebSocket a role connects under the client ids that its
policy allows.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, Final
from urllib.parse import quote, urlsplit

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from eventplane.randomness import RandomBytes
from eventplane_mqtt.codec import (
    encode_connect,
    encode_disconnect,
    encode_puback,
    encode_publish,
    topic_name,
)

SIGNED_SERVICE: Final = "iotdevicegateway"
"""The service in the signature of an MQTT connection (AWS IoT Core guide, "MQTT over WSS")."""

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""What the server hashes with the client's key (RFC 6455, section 1.3)."""

_VALID_S: Final = 60
_LONGEST_LINE: Final = 200
_BINARY, _CLOSE = 0x2, 0x8
_PACKET_ID: Final = 1
_MQTT: Final = 4
"""The version of MQTT 3.1.1 in a CONNECT."""

_KEEPALIVE_S: Final = 60


class CanaryPublishError(EventPlaneError):
    """IoT Core did not take the alarm; `step` failed: endpoint, connect, upgrade, mqtt_connect or publish."""

    step: str
    detail: str
    message = "the canary's alarm was not taken at the step {step}: {detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataEndpoint:
    """Where IoT Core takes MQTT: its `host` as it is signed, the `address` that the connection is made to.

    Only an emulator has no TLS; its address need not be that of its host's name.
    """

    host: str
    address: tuple[str, int]
    is_tls: bool = True


def data_endpoint(iot: Any, override: str) -> DataEndpoint:
    """Return the account's endpoint. `override` is the endpoint URL that botocore uses for IoT data.

    Raises `CanaryPublishError`.
    """
    try:
        host = str(iot.describe_endpoint(endpointType="iot:Data-ATS")["endpointAddress"])
    except (BotoCoreError, ClientError) as error:
        raise CanaryPublishError("endpoint", str(error)) from error
    url = urlsplit(override)
    if url.scheme == "http":
        return DataEndpoint(host=host, address=(str(url.hostname), url.port or 80), is_tls=False)
    return DataEndpoint(host=host, address=(host, 443))


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttPublisher:
    """Publishes over a connection of its own each time, so that every publish exercises the whole way in."""

    endpoint: Callable[[], DataEndpoint]
    credentials: Any
    region: str
    client_id: str
    timeout_s: float
    random_bytes: RandomBytes

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 1, and return once IoT Core has acknowledged. Raises `CanaryPublishError`."""
        endpoint = self.endpoint()
        step = "connect"
        try:
            with self._connect(endpoint) as connection, connection.makefile("rb") as received:
                web_socket = _WebSocket(connection, received, self.random_bytes)
                step = "upgrade"
                web_socket.upgrade(endpoint.host, self._signed_path(endpoint.host))
                step = "mqtt_connect"
                web_socket.send(encode_connect(_MQTT, self.client_id, clean=True, keepalive_s=_KEEPALIVE_S))
                _expect(web_socket.read(4), b"\x20\x02\x00\x00")
                step = "publish"
                web_socket.send(encode_publish(_MQTT, topic_name(topic), payload, _PACKET_ID))
                _expect(web_socket.read(4), encode_puback(_PACKET_ID))
                web_socket.send(encode_disconnect(_MQTT))  # the end is no lost connection
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CanaryPublishError(step, repr(error)) from error

    def _connect(self, endpoint: DataEndpoint) -> socket.socket:
        connection = socket.create_connection(endpoint.address, timeout=self.timeout_s)
        if not endpoint.is_tls:
            return connection
        return ssl.create_default_context().wrap_socket(connection, server_hostname=endpoint.host)

    def _signed_path(self, host: str) -> str:
        """The path with its signature, good for a minute."""
        found = self.credentials.get_frozen_credentials()
        # The session's token is added behind the signature, and is no part of it (AWS IoT Core guide).
        request = AWSRequest("GET", f"https://{host}/mqtt")
        signer = SigV4QueryAuth(
            Credentials(found.access_key, found.secret_key), SIGNED_SERVICE, self.region, expires=_VALID_S
        )
        signer.add_auth(request)
        path = f"/mqtt?{urlsplit(str(request.url)).query}"
        return f"{path}&X-Amz-Security-Token={quote(found.token, safe='')}" if found.token else path


class _WebSocket:
    """The client's side of RFC 6455, as far as one publish needs it."""

    def __init__(
        self, connection: socket.socket, received: BufferedReader, random_bytes: RandomBytes
    ) -> None:
        self._connection = connection
        self._received = received
        self._random_bytes = random_bytes
        self._bytes = b""

    def upgrade(self, host: str, path: str) -> None:
        """Make a WebSocket of the connection. Raises ValueError with the answer, OSError, HTTPException."""
        key = base64.b64encode(self._random_bytes(16))
        headers: Mapping[str, str] = {
            "Host": host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": key.decode("ascii"),
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "mqtt",
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self._connection.sendall("\r\n".join(lines).encode("ascii"))
        status = self._received.readline(_LONGEST_LINE).decode("latin-1").rstrip()
        accepted = http.client.parse_headers(self._received)["Sec-WebSocket-Accept"]
        due = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
        if " 101 " not in f"{status} " or accepted != due:
            raise ValueError(status or "the connection was closed")

    def send(self, data: bytes) -> None:
        """Send one binary message, masked as a client's has to be."""
        size = len(data)
        length = struct.pack("!B", 0x80 | size) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
        mask = self._random_bytes(4)
        masked = bytes(each ^ mask[at % 4] for at, each in enumerate(data))
        self._connection.sendall(bytes([0x80 | _BINARY]) + length + mask + masked)

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes of binary messages. Raises ValueError where the server closes."""
        while len(self._bytes) < size:
            kind, data = self._frame()
            if kind == _CLOSE:
                raise ValueError(f"the connection was closed: {data[2:].decode('utf-8', 'replace')!r:.200}")
            self._bytes += data if kind in (0, _BINARY) else b""
        found, self._bytes = self._bytes[:size], self._bytes[size:]
        return found

    def _frame(self) -> tuple[int, bytes]:
        first, second = self._take(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._take(2))
        elif size > 126:
            raise ValueError("a frame of more than 64 KiB")
        return first & 0x0F, self._take(size)

    def _take(self, size: int) -> bytes:
        found = self._received.read(size)
        if len(found) < size:
            raise ValueError("the connection was closed")
        return found


def _expect(found: bytes, due: bytes) -> None:
    if found != due:
        raise ValueError(f"answered {found.hex()}, not {due.hex()}")
