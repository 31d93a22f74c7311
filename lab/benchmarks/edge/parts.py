"""The forwarder and the bridge, each with a home's Mosquitto before it and the same sink behind it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from contract.loader import load_contract
from edge.numbering import stamp
from edge.spool import StoredEvent
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.contract import Contract, Priority
from eventplane.device_reports import key_digest
from eventplane.envelope import Envelope
from eventplane_mqtt.endpoint import TlsFiles
from lab.benchmarks.edge import wire
from lab.benchmarks.edge.sink import REALISTIC, event, serve
from lab.benchmarks.processes import ControlGroup, Worker, scratch
from lab.benchmarks.results import paced
from lab.mosquitto import start_configured, start_mosquitto
from lab.network import LOOPBACK, free_port
from lab.process import Child, Supervisor
from lab.things import Authority
from lab.tools import device_image

TOPIC = "eventplane/health-service/outbox"
ALARM_TOPIC = "eventplane/voice-service/outbox"
CAPACITY = 2**32
"""Bytes that a spool may take: no run fills it."""

_SYSTEM_PYTHON = "/usr/bin/python3"
_DEVICE_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "LC_ALL": "C"}

_WINDOW = 1_000
_A_COMMIT = 1_000
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class EdgeSite:
    """One run: its directory, children, certificates, the cloud's port, and the device's program."""

    supervisor: Supervisor
    directory: Path
    authority: Authority
    port: int
    program: tuple[str, ...]

    @classmethod
    def create(cls, supervisor: Supervisor, directory: Path, without: Collection[str] = ()) -> EdgeSite:
        directory.mkdir(parents=True)
        authority = Authority(directory / "certificates")
        return cls(supervisor, directory, authority, free_port(), _device_program(directory, without))


@contextmanager
def site(without: Collection[str] = ()) -> Iterator[EdgeSite]:
    """Yield a site of its own, whose device lacks the parts `without`."""
    with scratch() as (directory, supervisor):
        yield EdgeSite.create(supervisor, directory / "site", without)


class SinkProcess(Worker):
    """The cloud's broker, in a process of its own, until `report`. Use it in a `with` block."""

    def __init__(self, site: EdgeSite, expect: int, *, quota: bool = False, sent_after: int = 0) -> None:
        server = site.authority.issue("cloud")
        tls = TlsFiles(site.authority.ca, server.certificate, server.key)
        super().__init__(serve, site.port, tls, (expect, quota, sent_after))
        self.receive(bytes)  # it listens

    def report(self, within_s: float | None = None) -> dict[str, Any]:
        """Return what arrived, once all of it did or after `within_s` seconds (None: no limit)."""
        return dict(self.receive(dict, within_s))

    def so_far(self) -> dict[str, Any]:
        """Stop it; return what has arrived."""
        return dict(self.stop(dict))

    def until_connected(self) -> None:
        """Wait for the next CONNECT."""
        self.receive(bytes)


class BenchPublisher:
    """A service on the device that publishes as fast as the broker takes it, `_WINDOW` in flight."""

    def __init__(self, port: int, client_id: str = "benchmark") -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._packets = wire.Packets()
        self._mid = 0
        self._unacknowledged = 0
        self._socket.sendall(wire.connect(client_id))
        self._receive()

    def __enter__(self) -> BenchPublisher:
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
    site: EdgeSite,
    name: str,
    *,
    spool: Path | None = None,
    settings: str = "",
    limit: ControlGroup | None = None,
    contract: Contract | None = None,
) -> Contender:
    """Start a home's Mosquitto with the device's profile, and our forwarder behind it, within `limit`.

    Its contract is the shipped one unless another is given.
    """
    directory = site.directory / name
    broker = start_mosquitto(site.supervisor, f"{name}-mosquitto", directory / "mosquitto")
    (directory / "contract.json").write_bytes((contract or load_contract()).canonical)
    identity = site.authority.issue(name)
    file = directory / "edge.toml"
    spool = spool or directory / "spool.db"
    file.write_text(
        f'thing = "{name}"\ncontract = "contract.json"\nspool = "{spool}"\n'
        f"spool_capacity_bytes = {CAPACITY}\n[health]\nport = 0\n[local]\nport = {broker.port}\n"
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


def _device_program(directory: Path, without: Collection[str]) -> tuple[str, ...]:
    """Build the artifact and return the command that starts it as its unit does.

    It runs under the system's Python if the bytecode is for that one, as on a device.
    """
    artifact = directory / "eventplane-forwarder.pyz"
    device_image.build(artifact, "benchmark", without)
    ask = "import importlib.util, sys; sys.stdout.write(importlib.util.MAGIC_NUMBER.hex())"
    found = subprocess.run([_SYSTEM_PYTHON, "-c", ask], capture_output=True, text=True, check=False)
    fits = found.returncode == 0 and found.stdout == MAGIC_NUMBER.hex()
    python = _SYSTEM_PYTHON if fits else str(getattr(sys, "_base_executable", sys.executable))
    return python, "-I", "-S", str(artifact)


def start_bridge(site: EdgeSite, name: str) -> Contender:
    """Start a home's Mosquitto that forwards its outboxes to the cloud by its own bridge."""
    directory = site.directory / name
    directory.mkdir(parents=True)
    identity = site.authority.issue(name)
    port = free_port()
    configuration = (
        f"user root\nlistener {port} {LOOPBACK}\nallow_anonymous true\npersistence false\n"
        "max_queued_messages 1000000\nmax_queued_bytes 4294967296\nmax_inflight_messages 100\n"
        "set_tcp_nodelay true\nlog_type error\nlog_type notice\nlog_dest stderr\n"
        f"connection cloud\naddress {LOOPBACK}:{site.port}\nbridge_protocol_version mqttv311\n"
        f"bridge_cafile {site.authority.ca}\nbridge_certfile {identity.certificate}\n"
        f"bridge_keyfile {identity.key}\nremote_clientid {name}\ncleansession false\n"
        "restart_timeout 1\ntry_private false\nnotifications false\ntopic eventplane/# out 1\n"
    )
    child = start_configured(site.supervisor, name, directory, configuration, port)
    return Contender(child, port, directory)


def fill(path: Path, count: int, size: int, first: int = 0) -> Path:
    """Store `count` events of `size` bytes in `path`, ids from `first` on, pending for the cloud."""
    uplink = load_contract().device.outbox.address
    with Spool(path, SYSTEM, capacity_bytes=CAPACITY) as spool:
        for begin in range(first, first + count, _A_COMMIT):
            arrivals = [
                _arrival(spool, spool.next_sequence + offset, number, size, uplink)
                for offset, number in enumerate(range(begin, min(begin + _A_COMMIT, first + count)))
            ]
            spool.commit(arrivals, uptime_ms=spool.clock())
    return path


def _arrival(spool: Spool, sequence: int, number: int, size: int, uplink: str) -> StoredEvent:
    text = event(number, size).decode()
    # The envelope is not checked: for a million events that would take longer than everything else.
    stamped = stamp(Envelope({}, text), spool.epoch, sequence)
    key = key_digest(("health-service", "/homes/1/health-service", str(number)))
    return StoredEvent(sequence, Priority.NORMAL.rank, stamped.json, {uplink: None}, key)


def send_paced(publisher: BenchPublisher, rate: float, count: int, type: str, topic: str) -> None:
    """Publish `count` events at `rate` a second; their id is the time of sending."""
    for _ in paced(rate, count):
        publisher.send(event(time.monotonic_ns(), REALISTIC, type), topic)
