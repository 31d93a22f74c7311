"""The forwarder and the bridge, each with a home's Mosquitto before it and the same sink behind it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from benchmarks.edge import wire
from benchmarks.edge.memory_limit import MemoryLimit
from contract.loader import load_contract
from local.certificates import Authority
from local.mosquitto import start_mosquitto
from local.ports import LOOPBACK, free_port, is_listening
from local.process import Child, Supervisor
from tools import device_image

ROOT = Path(__file__).parents[2]
TOPIC = "eventplane/health-service/outbox"
CAPACITY = 2**32
"""Bytes that a spool may take: no run fills it."""

_SYSTEM_PYTHON = "/usr/bin/python3"
_DEVICE_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "LC_ALL": "C"}

_WINDOW = 1_000
_REPORT_S = 120.0


@dataclass(frozen=True)
class Site:
    """One run: its directory, children, certificates, the cloud's port, and the device's program."""

    supervisor: Supervisor
    directory: Path
    authority: Authority
    port: int
    program: tuple[str, ...]

    @classmethod
    def create(cls, supervisor: Supervisor, directory: Path) -> Site:
        directory.mkdir(parents=True)
        authority = Authority(directory / "certificates")
        return cls(supervisor, directory, authority, free_port(), _device_program(directory))

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}


class SinkProcess:
    """The cloud's broker, until `report`. Use it in a `with` block."""

    def __init__(self, site: Site, expect: int, *, quota: bool = False, sent_after: int = 0) -> None:
        server = site.authority.issue("cloud")
        files = {"ca": site.authority.ca, "certificate": server.certificate, "key": server.key}
        options = [part for name, file in files.items() for part in (f"--{name}", str(file))]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.edge.sink", *options),
                *("--port", str(site.port), "--expect", str(expect), "--sent-after", str(sent_after)),
                *(["--quota"] if quota else []),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=site.environment(),
        )
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._output = self._process.stdout
        self._read_until("listening")

    def __enter__(self) -> SinkProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()

    def report(self, within_s: float | None = None) -> dict[str, Any]:
        """Return what arrived, once all of it did or after `within_s` seconds (None: no limit)."""
        timer = threading.Timer(within_s or threading.TIMEOUT_MAX, self._process.terminate)
        timer.daemon = True
        timer.start()
        try:
            return dict(json.loads(self._read_until("{")))
        finally:
            timer.cancel()

    def is_complete(self) -> bool:
        """Whether everything expected has arrived."""
        return self._process.poll() is not None

    def until_connected(self) -> None:
        """Wait for the next CONNECT."""
        self._read_until("connected")

    def _read_until(self, start: str) -> str:
        for line in self._output:
            if line.startswith(start):
                return line
        raise SystemExit(f"the sink ended before it said {start!r}")

    def stop(self) -> dict[str, Any]:
        """Return what has arrived so far."""
        self._process.send_signal(signal.SIGTERM)
        return self.report()


class Publisher:
    """A service on the device that publishes as fast as the broker takes it, `_WINDOW` in flight."""

    def __init__(self, port: int, client_id: str = "benchmark") -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=_REPORT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._packets = wire.Packets()
        self._mid = 0
        self._unacknowledged = 0
        self._socket.sendall(wire.connect(client_id))
        self._receive()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, payload: bytes, topic: str = TOPIC) -> None:
        """Publish one message at QoS 1 and wait for its PUBACK."""
        self.send_all([payload], topic)

    def send_all(self, payloads: Iterable[bytes], topic: str = TOPIC) -> None:
        """Publish all of them at QoS 1 and wait for their PUBACKs."""
        waiting: deque[bytes] = deque()
        for payload in payloads:
            self._mid = self._mid % 65_535 + 1
            waiting.append(wire.publish(topic, payload, self._mid))
            if len(waiting) == _WINDOW:
                self._flush(waiting)
        self._flush(waiting)

    def flood(self, payloads: Iterable[bytes], topic: str) -> None:
        """Publish all of them at QoS 0, as fast as the broker reads."""
        self._socket.sendall(b"".join(wire.publish(topic, each) for each in payloads))

    def _flush(self, waiting: deque[bytes]) -> None:
        self._unacknowledged = len(waiting)
        self._socket.sendall(b"".join(waiting))
        waiting.clear()
        while self._unacknowledged:
            self._receive()

    def _receive(self) -> None:
        data = self._socket.recv(65_536)
        if not data:
            raise SystemExit("the broker hung up on the publisher")
        self._unacknowledged -= sum(wire.kind(first) == wire.PUBACK for first, _ in self._packets.feed(data))


@dataclass(frozen=True)
class Contender:
    """The process that is measured (`child`), the `broker` before it, and the `port` for services."""

    child: Child
    port: int
    spool: Path
    broker: Child | None = None

    @property
    def pid(self) -> int:
        if self.child.pid is None:
            raise SystemExit(f"{self.child.name} has ended; see {self.child.log}")
        return self.child.pid


def start_forwarder(
    site: Site,
    name: str,
    *,
    spool: Path | None = None,
    settings: str = "",
    by_profile: bool = False,
    limit: MemoryLimit | None = None,
) -> Contender:
    """Start a home's Mosquitto with the device's profile, and our forwarder behind it, within `limit`.

    `by_profile`: it finds the broker by that profile.
    """
    directory = site.directory / name
    broker = start_mosquitto(site.supervisor, f"{name}-mosquitto", directory / "mosquitto")
    (directory / "contract.json").write_bytes(load_contract().canonical)
    identity = site.authority.issue(name)
    file = directory / "edge.toml"
    spool = spool or directory / "spool.db"
    profile = f'profile = "{directory / "mosquitto" / "mosquitto.conf"}"\n' if by_profile else ""
    file.write_text(
        f'thing = "{name}"\ncontract = "contract.json"\nspool = "{spool}"\n'
        f"spool_capacity_bytes = {CAPACITY}\n[health]\nport = 0\n[local]\nport = {broker.port}\n{profile}"
        f'[cloud]\nhost = "{LOOPBACK}"\nport = {site.port}\n'
        f'rule = "ingest"\nca = "{site.authority.ca}"\ncertificate = "{identity.certificate}"\n'
        f'key = "{identity.key}"\nreconnect_max_s = 1.0\nlongest_delay_ms = 250\n{settings}'
    )
    child = site.supervisor.start(
        name,
        [*(limit.command if limit else ()), *site.program, "--settings", str(file)],
        env=_DEVICE_ENVIRONMENT,
        ready="local broker connected",
    )
    return Contender(child, broker.port, spool, broker.child)


def _device_program(directory: Path) -> tuple[str, ...]:
    """Build the artifact and return the command that starts it as its unit does.

    It runs under the system's Python if the bytecode is for that one, as on a device.
    """
    artifact = directory / "eventplane-forwarder.pyz"
    device_image.build(artifact, "benchmark")
    ask = "import importlib.util, sys; sys.stdout.write(importlib.util.MAGIC_NUMBER.hex())"
    found = subprocess.run([_SYSTEM_PYTHON, "-c", ask], capture_output=True, text=True, check=False)
    fits = found.returncode == 0 and found.stdout == MAGIC_NUMBER.hex()
    python = _SYSTEM_PYTHON if fits else str(getattr(sys, "_base_executable", sys.executable))
    return python, "-I", "-S", str(artifact)


def start_bridge(site: Site, name: str) -> Contender:
    """Start a home's Mosquitto that forwards its outboxes to the cloud by its own bridge."""
    directory = site.directory / name
    directory.mkdir(parents=True)
    identity = site.authority.issue(name)
    port = free_port()
    file = directory / "mosquitto.conf"
    file.write_text(
        f"user root\nlistener {port} {LOOPBACK}\nallow_anonymous true\npersistence false\n"
        "max_queued_messages 1000000\nmax_queued_bytes 4294967296\nmax_inflight_messages 100\n"
        "set_tcp_nodelay true\nlog_type error\nlog_type notice\nlog_dest stderr\n"
        f"connection cloud\naddress {LOOPBACK}:{site.port}\nbridge_protocol_version mqttv311\n"
        f"bridge_cafile {site.authority.ca}\nbridge_certfile {identity.certificate}\n"
        f"bridge_keyfile {identity.key}\nremote_clientid {name}\ncleansession false\n"
        "restart_timeout 1\ntry_private false\nnotifications false\ntopic eventplane/# out 1\n"
    )
    child = site.supervisor.start(name, [mosquitto(), "-c", str(file)], ready=lambda: is_listening(port))
    return Contender(child, port, directory)


def mosquitto() -> str:
    """Return the broker's program; Debian installs it where only root's PATH looks."""
    return shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "mosquitto"
