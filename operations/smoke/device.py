"""The throw-away device: it is provisioned by the device's own program, and connects by paho."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import ssl
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import botocore
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from eventplane.topics import basic_ingest_topic, device_topic, urgent_rule
from operations import system
from operations.cloud import Cloud
from operations.smoke.errors import DeviceConnectionError, NotSeenError, ProvisioningFailedError
from operations.smoke.plane import DeployedPlane

MQTT_PORT: Final = 8_883
"""AWS IoT Core's for MQTT with mutual TLS."""

_CHECKOUT: Final = Path(__file__).parents[2]
_TRUSTED: Final = Path(botocore.__file__).with_name("cacert.pem")
"""Whom the AWS SDK trusts, Amazon's own authorities among them."""

_LOG_LINES: Final = 3
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_LOOK_S: Final = 0.2
"""Between two looks, seconds: a staged pair is tried for longer before another is asked for."""


@dataclass(frozen=True, slots=True)
class DeviceEndpoint:
    """Where devices connect: IoT Core's endpoint, or the domain that the account gives to its devices."""

    host: str
    port: int
    ca: Path


def device_endpoint(cloud: Cloud, named: str | None, ca: Path | None) -> DeviceEndpoint:
    """Return the endpoint `named` HOST or HOST:PORT, by default the account's. Raises botocore's errors."""
    address = named or cloud.client("iot").describe_endpoint(endpointType="iot:Data-ATS")["endpointAddress"]
    host, _, port = str(address).partition(":")
    return DeviceEndpoint(host, int(port or MQTT_PORT), ca or _TRUSTED)


def provision(
    plane: DeployedPlane,
    endpoint: DeviceEndpoint,
    thing: str,
    folder: Path,
    timeout_s: float,
    created: set[str],
) -> Path:
    """Run the command `provision` with the claim in `folder`, and return the device's certificate file.

    `created` gets the ids of the certificates that came on the way: it asks for another one where a
    registration was not answered, and nobody else knows the first.
    Raises `ProvisioningFailedError`, `OutputMissingError`.
    """
    pair = folder / "device.pem"
    settings: dict[str, dict[str, Any]] = {
        "": {"thing": thing, "contract": "contract.json", "spool": "spool.db"},
        "cloud": {
            "host": endpoint.host,
            "port": endpoint.port,
            "rule": plane.output("IngestRule"),
            "ca": str(endpoint.ca.resolve()),
            "certificate": str(pair),
            "key": str(pair),
        },
        "provisioning": {
            "template": plane.output("ProvisioningTemplate"),
            "claim_certificate": "claim.crt",
            "claim_key": "claim.key",
            # Needs no program besides Python; the device's image decides for itself.
            "keys": "cloud",
            "retry_min_s": 1,
            "retry_max_s": 5,
        },
    }
    staged = pair.with_name(pair.name + ".next")
    file, log = folder / "device.toml", folder / "provisioning.log"
    file.write_text("".join(_table(name, values) for name, values in settings.items()), encoding="utf-8")
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "edge.__main__", "provision", "--settings", str(file)],
            cwd=_CHECKOUT, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            status = _watch(child, staged, timeout_s, created)
        finally:
            child.kill()
            child.wait()
            created |= _certificates(staged)
    if status != os.EX_OK:
        raise ProvisioningFailedError(status, " | ".join(log.read_text().splitlines()[-_LOG_LINES:]))
    return pair


def _watch(child: subprocess.Popen[bytes], staged: Path, timeout_s: float, created: set[str]) -> int | None:
    """Wait for the end of `child`, and note what it has `staged` meanwhile."""
    deadline = system.monotonic() + timeout_s
    while system.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(_LOOK_S)
        created |= _certificates(staged)
    return None


def _certificates(staged: Path) -> set[str]:
    """The id of the certificate that waits for its registration, if one does."""
    try:
        text = staged.read_text("ascii")
        der = ssl.PEM_cert_to_DER_cert(text[text.index(_CERTIFICATE) :])
    except (FileNotFoundError, ValueError):
        return set()
    # AWS IoT calls a certificate by its fingerprint.
    return {hashlib.sha256(der).hexdigest()}


def _table(name: str, values: dict[str, Any]) -> str:
    """A table of TOML, whose texts and numbers are written as those of JSON."""
    head = f"[{name}]\n" if name else ""
    return head + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


class Device:
    """The connection of `thing` to IoT Core, with the key and certificate in `pair`."""

    def __init__(self, endpoint: DeviceEndpoint, thing: str, pair: Path, rule: str, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._thing = thing
        self._rule = rule
        self._timeout_s = timeout_s
        self._connected: queue.Queue[ReasonCode] = queue.Queue()
        self._granted: queue.Queue[list[ReasonCode]] = queue.Queue()
        self._received: queue.Queue[bytes] = queue.Queue()
        self._changed = threading.Condition()
        self._published: set[int] = set()
        self._is_disconnected = False
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id=thing, clean_session=True, reconnect_on_failure=False
        )
        context = ssl.create_default_context(cafile=str(endpoint.ca))
        context.load_cert_chain(pair, pair)
        self._client.tls_set_context(context)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_publish = self._on_publish
        self._client.on_message = self._on_message

    def connect(self) -> None:
        """Connect, and subscribe to the device's inbox. Raises `DeviceConnectionError`."""
        try:
            self._client.connect(self._endpoint.host, self._endpoint.port)
            self._client.loop_start()
            code = self._connected.get(timeout=self._timeout_s)
            if code.is_failure:
                raise DeviceConnectionError(self._thing, f"the connection was refused: {code}")
            self._client.subscribe(device_topic(self._thing, "inbox"), qos=1)
            granted = self._granted.get(timeout=self._timeout_s)
        except OSError as error:
            raise DeviceConnectionError(self._thing, f"no connection: {error}") from error
        except queue.Empty:
            raise DeviceConnectionError(self._thing, "no answer to CONNECT or SUBSCRIBE") from None
        if any(each.is_failure for each in granted):
            raise DeviceConnectionError(self._thing, "the subscription to its inbox was refused")

    def send(self, payload: bytes, *, is_urgent: bool = False) -> None:
        """Publish to the device's outbox, and return once IoT Core has it. Raises `DeviceConnectionError`."""
        rule = urgent_rule(self._rule) if is_urgent else self._rule
        if not self._publish(basic_ingest_topic(rule, self._thing), payload):
            raise DeviceConnectionError(self._thing, "a publish to its own outbox was not acknowledged")

    def is_refused_as(self, other: str) -> bool:
        """Publish to the outbox of another device; return whether the connection ended without a PUBACK."""
        return not self._publish(basic_ingest_topic(self._rule, other), b"{}") and self._is_disconnected

    def receive(self, timeout_s: float) -> bytes:
        """Return what comes next to the device's inbox. Raises `NotSeenError`."""
        try:
            return self._received.get(timeout=timeout_s)
        except queue.Empty:
            raise NotSeenError(
                "a message in the device's inbox",
                timeout_s,
                "see the logs of the function downlink and of the router of the sender's outbox",
            ) from None

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, topic: str, payload: bytes) -> bool:
        sent = self._client.publish(topic, payload, qos=1)
        if sent.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return False
        with self._changed:
            self._changed.wait_for(
                lambda: sent.mid in self._published or self._is_disconnected, self._timeout_s
            )
            return sent.mid in self._published

    def _on_connect(self, _client: Client, _data: Any, _flags: Any, code: ReasonCode, _more: Any) -> None:
        self._connected.put(code)

    def _on_subscribe(
        self, _client: Client, _data: Any, _mid: int, codes: list[ReasonCode], _more: Any
    ) -> None:
        self._granted.put(codes)

    def _on_publish(self, _client: Client, _data: Any, mid: int, _code: Any, _more: Any) -> None:
        with self._changed:
            self._published.add(mid)
            self._changed.notify_all()

    def _on_disconnect(self, *_: Any) -> None:
        with self._changed:
            self._is_disconnected = True
            self._changed.notify_all()

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._received.put(bytes(message.payload))
