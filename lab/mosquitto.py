"""Real Mosquitto brokers: a home's own with the device's profile, and one in IoT Core's place."""

import getpass
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.client import CallbackOnMessage
from paho.mqtt.enums import CallbackAPIVersion

from lab.errors import BadProfileError, ToolMissingError
from lab.network import LOOPBACK, free_port, is_listening
from lab.process import Child, Supervisor
from lab.things import Authority
from parts.simulate.broker import PROFILE

ACCESS: Final = PROFILE.with_name("mosquitto-access.conf")


@dataclass(frozen=True)
class Broker:
    """A home's Mosquitto on 127.0.0.1:`port`. `child.kill()` and `child.start()` keep the port."""

    port: int
    child: Child


@dataclass(frozen=True)
class Access:
    """Rights of clients: who connects (mosquitto_passwd) and what each may do (`eventplane contract acl`)."""

    passwords: Path
    rules: Path


def start_mosquitto(
    supervisor: Supervisor,
    name: str,
    directory: Path,
    access: Access | None = None,
    env: Mapping[str, str] | None = None,
) -> Broker:
    """Start the broker `name` with the device's profile on a free port of the loopback interface.

    `directory` gets its configuration and database. Without `access` every client may do everything. Raises
    `ToolMissingError`, `BadProfileError`, or what `Supervisor.start` raises.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    profile = _local_profile(port, directory.resolve(), access)
    return Broker(port, start_configured(supervisor, name, directory, profile, port, env))


@dataclass(frozen=True)
class CloudBroker:
    """A Mosquitto in IoT Core's place: devices use `port` with mutual TLS, the cloud `plain_port` without."""

    port: int
    plain_port: int
    child: Child

    @contextmanager
    def recorded(self, take: CallbackOnMessage) -> Iterator[None]:
        """Hand each message for a rule of IoT Core to `take`, in another thread."""
        subscribed = threading.Event()
        with plain_client("recorder", self.plain_port) as client:
            client.on_message, client.on_subscribe = take, lambda *_: subscribed.set()
            client.subscribe("$aws/rules/#", qos=1)
            subscribed.wait()
            yield


def start_cloud_broker(
    supervisor: Supervisor, directory: Path, authority: Authority, settings: str = ""
) -> CloudBroker:
    """Start a broker that demands client certificates of `authority` and keeps every queued message.

    What it acknowledged it has saved when it is stopped. `settings` are more lines of its configuration.
    Raises what `start_mosquitto` raises.
    """
    directory.mkdir(parents=True, exist_ok=True)
    server = authority.issue("cloud")
    port, plain_port = free_port(), free_port()
    text = (
        f"user {getpass.getuser()}\nallow_anonymous true\nper_listener_settings false\n"
        f"max_queued_messages 0\npersistence true\npersistence_location {directory.resolve()}/\n"
        f"listener {plain_port} {LOOPBACK}\nlistener {port} {LOOPBACK}\n"
        f"cafile {authority.ca}\ncertfile {server.certificate}\nkeyfile {server.key}\n"
        f"require_certificate true\n{settings}"
    )
    return CloudBroker(port, plain_port, start_configured(supervisor, "cloud-broker", directory, text, port))


@contextmanager
def plain_client(client_id: str, port: int, **options: Any) -> Iterator[mqtt.Client]:
    """Connect to the broker on 127.0.0.1:`port` without TLS and password, until the end of the block."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, **options)
    client.connect(LOOPBACK, port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def start_configured(
    supervisor: Supervisor,
    name: str,
    directory: Path,
    configuration: str,
    port: int,
    env: Mapping[str, str] | None = None,
) -> Child:
    """Start a broker with this `configuration`, which listens on `port` of the loopback interface."""
    file = directory.resolve() / "mosquitto.conf"
    file.write_text(configuration)
    command = [find_mosquitto(), "-c", str(file)]
    return supervisor.start(name, command, env=env, ready=lambda: is_listening(port))


def find_mosquitto() -> str:
    """Return the path of Mosquitto's program, EVENTPLANE_MOSQUITTO if set. Raises ToolMissingError."""
    name = os.environ.get("EVENTPLANE_MOSQUITTO") or "mosquitto"
    # Debian installs it where only root's PATH looks.
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise ToolMissingError("mosquitto")
    return program


def _local_profile(port: int, directory: Path, access: Access | None) -> str:
    """Return the device's profile with its own address and file locations."""
    text, settings = PROFILE.read_text(), {"listener": f"{port} {LOOPBACK}"}
    if access is not None:
        text = text.replace("allow_anonymous true\n", ACCESS.read_text())
        settings |= {"password_file": str(access.passwords), "acl_file": str(access.rules)}
    replaced = _replace(text, settings | {"persistence_location": f"{directory}/"})
    # As root it would become another user, who may not write to our directory.
    return f"{replaced}\nuser {getpass.getuser()}\n"


def _replace(text: str, settings: Mapping[str, str]) -> str:
    for setting, value in settings.items():
        text, found = re.subn(rf"(?m)^{setting} .*$", f"{setting} {value}", text)
        if found != 1:
            raise BadProfileError(PROFILE, setting, found)
    return text
