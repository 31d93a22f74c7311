"""One home on this machine: Mosquitto, forwarder and network link, each of which can fail."""

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
from edge.spool.recovery import read_backlog
from eventplane.contract import Contract
from lab.cloud import ROOT
from lab.machine import FakeClock, SmallDisk, ThisMachine
from lab.mosquitto import Broker, start_mosquitto
from lab.network import LOOPBACK, Network, NetworkLink
from lab.process import Child, Supervisor
from lab.things import Thing

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
    """One home: `disk` and `clock` are None where it uses those of this machine."""

    name: str
    broker: Broker
    forwarder: Child
    link: NetworkLink
    spool: Path
    contract: Path
    disk: SmallDisk | None = None
    clock: FakeClock | None = None

    @property
    def children(self) -> Sequence[Child]:
        """Its processes."""
        return self.forwarder, self.broker.child

    def stop_forwarder(self) -> None:
        """Stop the forwarder, and return when it has ended; it sends a last manifest first."""
        self.forwarder.stop(_STOP_S)

    @property
    def backlog(self) -> int:
        """The number of pending deliveries in the spool; 1 while it cannot be read."""
        return self._read_spool(lambda: sum(read_backlog(self.spool).values()))

    @property
    def unreported(self) -> int:
        """Ranges of deliveries that were discarded and not reported yet: it takes the forwarder a minute.

        1 while the spool cannot be read.
        """
        return self._read_spool(self._discarded)

    def _discarded(self) -> int:
        address = f"{self.spool.resolve().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as spool:
            return int(spool.execute("SELECT count(*) FROM discard").fetchone()[0])

    def _read_spool(self, count: Callable[[], int]) -> int:
        try:
            return count()
        except (SpoolError, sqlite3.Error) as error:
            if not self.spool.exists():
                return 0
            # An unreadable spool may hold deliveries, so it does not count as empty.
            _log.warning("%s: the spool cannot be read: %s", self.name, error)
            return 1

    def reload_contract(self, text: bytes) -> None:
        """Replace the contract's file as a whole, and have the forwarder read it (SIGHUP)."""
        unfinished = self.contract.with_suffix(".unfinished")
        unfinished.write_bytes(text)
        unfinished.replace(self.contract)
        pid = self.forwarder.pid
        # The signal would end a forwarder that has no handler yet; it reads the file once it has.
        if pid is not None and _handles(pid, signal.SIGHUP):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGHUP)


def start_home(
    supervisor: Supervisor,
    network: Network,
    thing: Thing,
    contract: Contract,
    rule: str,
    directory: Path,
    *,
    machine: ThisMachine | None = None,
    disk: SmallDisk | None = None,
    has_own_clock: bool = False,
    broker: Broker | None = None,
    variables: Mapping[str, str] | None = None,
    ready: str = CLOUD_CONNECTED,
) -> Home:
    """Start the home of `thing` in `directory`, its forwarder on `machine`, and wait until it logs `ready`.

    The spool is on `disk`, which is mounted beneath that directory, or beside the other files. With
    `has_own_clock` the wall clock of both programs can be set, where `machine` and libfaketime allow it.
    The home's broker is `broker`, or one without access rules. The environment of its programs has the
    `variables`.
    """
    machine = machine or ThisMachine()
    link = network.link(thing.host, thing.port)
    clock = FakeClock.found(directory / "clock") if has_own_clock and machine.has_clock else None
    environment = {**os.environ, **(clock.environment if clock else {}), **(variables or {})}
    if broker is None:
        mosquitto = f"mosquitto-{thing.name}", directory / "mosquitto"
        broker = start_mosquitto(supervisor, *mosquitto, env=environment)
    compiled = directory / CONTRACT
    compiled.write_bytes(contract.canonical)
    spool = (disk.path if disk else directory) / "spool.db"
    for file in (thing.ca, thing.certificate, thing.key):
        with contextlib.suppress(shutil.SameFileError):
            shutil.copy(file, directory)
    settings = directory / "forwarder.toml"
    settings.write_text(_settings(thing, str(spool.relative_to(directory)), broker.port, link.port, rule))
    forwarder = supervisor.start(
        f"forwarder-{thing.name}",
        # A SIGHUP before it has a handler must not end it: systemd's reload waits until the service is ready.
        # On an emulated processor it cannot be seen from outside whether it has one.
        ["env", "--ignore-signal=HUP", *machine.command(settings)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        # Before the first subscription the broker keeps no message.
        ready=ready,
        ready_seconds=_START_S,
    )
    return Home(thing.name, broker, forwarder, link, spool, compiled, disk, clock)


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


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process catches or ignores signal `number`."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigIgn:", "SigCgt:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)
