"""A home on this machine: broker, forwarder and network link, each of which can fail."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge.errors import SpoolError
from edge.spool import read_backlog
from eventplane.contract import Contract
from local.chaos.clock import FakeClock
from local.chaos.disk import SmallDisk
from local.chaos.machine import Machine
from local.deploy import ROOT
from local.mosquitto import Broker, start_mosquitto
from local.network import Link, Network
from local.ports import LOOPBACK
from local.process import Child, Supervisor
from local.things import Thing

_log = logging.getLogger(__name__)

CONTRACT: Final = "contract.json"
BROKER_CONNECTED: Final = "local broker connected"
CLOUD_CONNECTED: Final = "cloud broker connected"
"""Log lines of a forwarder; it connects to the home's broker first."""

_START_S: Final = 300.0
"""An emulated processor takes its time."""

_STOP_S: Final = 20.0
"""How long a forwarder may take to end: its own grace period is 2 s, the rest is for a busy machine."""


@dataclass(frozen=True)
class Home:
    """One home. `disk` is None where its spool is on this machine's, `clock` where its wall clock is."""

    name: str
    broker: Broker
    forwarder: Child
    link: Link
    spool: Path
    contract: Path
    disk: SmallDisk | None = None
    clock: FakeClock | None = None

    def kill_forwarder(self) -> None:
        """Kill the forwarder (SIGKILL)."""
        self.forwarder.kill()

    def start_forwarder(self) -> None:
        """Start the forwarder, and return when it is connected."""
        self.forwarder.start()

    def terminate_forwarder(self) -> None:
        """Ask the forwarder to end, without waiting; it sends a last manifest first."""
        self.forwarder.terminate()

    def stop_forwarder(self) -> None:
        """Stop the forwarder, and return when it has ended."""
        self.forwarder.stop(_STOP_S)

    def kill_broker(self) -> None:
        """Kill Mosquitto (SIGKILL)."""
        self.broker.child.kill()

    def start_broker(self) -> None:
        """Start Mosquitto, and return when it listens."""
        self.broker.child.start()

    def cut_network(self) -> None:
        """Cut the connection to the cloud."""
        self.link.cut()

    def heal_network(self) -> None:
        """Let the home connect to the cloud again."""
        self.link.heal()

    @property
    def backlog(self) -> int:
        """Deliveries that wait in the spool; 1 while it cannot be read."""
        return self._waiting(lambda: sum(read_backlog(self.spool).values()))

    @property
    def untold(self) -> int:
        """Ranges of deliveries that were discarded and not reported yet: it takes the forwarder a minute.

        1 while the spool cannot be read.
        """
        return self._waiting(self._discarded)

    @property
    def children(self) -> Sequence[Child]:
        """Its processes."""
        return self.forwarder, self.broker.child

    def _discarded(self) -> int:
        address = f"{self.spool.resolve().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as spool:
            return int(spool.execute("SELECT count(*) FROM discard").fetchone()[0])

    def _waiting(self, count: Callable[[], int]) -> int:
        try:
            return count()
        except (SpoolError, sqlite3.Error) as error:
            if not self.spool.exists():
                return 0
            # A spool that nobody can read may hold anything: not to be taken for an empty one.
            _log.warning("%s: the spool cannot be read: %s", self.name, error)
            return 1

    def put_contract(self, text: bytes) -> None:
        """Put a contract's text in the place of the present one, whole."""
        unfinished = self.contract.with_suffix(".unfinished")
        unfinished.write_bytes(text)
        unfinished.replace(self.contract)

    def reload_contract(self, text: bytes) -> None:
        """Put a contract's text in the place of the present one, and have the forwarder read it (SIGHUP)."""
        self.put_contract(text)
        pid = self.forwarder.pid
        # A forwarder that does not listen yet would die of the signal, and reads the file when it does.
        if pid is not None and _heeds(pid, signal.SIGHUP):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGHUP)


def start_home(
    supervisor: Supervisor,
    network: Network,
    thing: Thing,
    contract: Contract,
    rule: str,
    machine: Machine,
    directory: Path,
    *,
    disk: SmallDisk | None = None,
    has_own_clock: bool = False,
    ready: str = CLOUD_CONNECTED,
) -> Home:
    """Start the home of `thing` in `directory`, its forwarder on `machine`, and wait until it logs `ready`.

    The spool is on `disk`, which is mounted beneath that directory, or beside the other files. With
    `has_own_clock` the forwarder's wall clock can be set, where `machine` and libfaketime allow it.
    """
    link = network.link(thing.host, thing.port)
    broker = start_mosquitto(supervisor, f"mosquitto-{thing.name}", directory / "mosquitto")
    compiled = directory / CONTRACT
    compiled.write_bytes(contract.canonical)
    spool = (disk.path if disk else directory) / "spool.db"
    for file in (thing.ca, thing.certificate, thing.key):
        with contextlib.suppress(shutil.SameFileError):
            shutil.copy(file, directory)
    settings = directory / "forwarder.toml"
    settings.write_text(_settings(thing, str(spool.relative_to(directory)), broker.port, link.port, rule))
    clock = FakeClock.found(directory / "clock") if has_own_clock and machine.has_clock else None
    forwarder = supervisor.start(
        f"forwarder-{thing.name}",
        # A SIGHUP before it listens shall not end it (systemd's reload waits until the service is ready).
        # Beneath an emulated processor nobody can see from outside whether it listens.
        ["env", "--ignore-signal=HUP", *machine.command(settings)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **_clock_variables(clock)},
        # Before its first subscription the broker has nobody to keep a message for.
        ready=ready,
        ready_seconds=_START_S,
    )
    return Home(thing.name, broker, forwarder, link, spool, compiled, disk, clock)


def _clock_variables(clock: FakeClock | None) -> Mapping[str, str]:
    return clock.environment if clock else {}


def _settings(thing: Thing, spool: str, broker: int, link: int, rule: str) -> str:
    return f"""\
thing = "{thing.name}"
contract = "{CONTRACT}"
spool = "{spool}"
spool_capacity_bytes = 1073741824

[local]
port = {broker}

[cloud]
host = "{LOOPBACK}"
port = {link}
ca = "{thing.ca.name}"
certificate = "{thing.certificate.name}"
key = "{thing.key.name}"
rule = "{rule}"
longest_delay_ms = 250

[health]
port = 0
"""


def _heeds(pid: int, number: signal.Signals) -> bool:
    """Whether the process catches or ignores signal `number`."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigIgn:", "SigCgt:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)
