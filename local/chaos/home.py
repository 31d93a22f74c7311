"""A home whose every part can be struck: broker, forwarder, line, disk, clock and contract."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
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
_CONNECTED: Final = "local broker connected"
_START_S: Final = 300.0
"""An emulated processor takes its time."""


@dataclass(frozen=True)
class Home:
    """One home. `disk` is None where no small disk can be mounted, `clock` where libfaketime is missing."""

    name: str
    broker: Broker
    forwarder: Child
    link: Link
    spool: Path
    contract: Path
    disk: SmallDisk | None
    clock: FakeClock | None

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


def start_home(
    supervisor: Supervisor,
    network: Network,
    thing: Thing,
    contract: Contract,
    rule: str,
    machine: Machine,
    directory: Path,
    disk: SmallDisk | None,
) -> Home:
    """Start the home of `thing` in `directory`, its forwarder on `machine`.

    The spool is on `disk`, which is mounted beneath that directory, or beside the other files.
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
    clock = FakeClock.found(directory / "clock") if machine.has_clock else None
    forwarder = supervisor.start(
        f"forwarder-{thing.name}",
        # A SIGHUP before it listens shall not end it (systemd's reload waits until the service is ready).
        # Beneath an emulated processor nobody can see from outside whether it listens.
        ["env", "--ignore-signal=HUP", *machine.command(settings)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **_clock_variables(clock)},
        ready=_CONNECTED,
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
