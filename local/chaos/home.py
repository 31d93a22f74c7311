"""A home whose every part can be struck: broker, forwarder, line, disk, clock and contract."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge.errors import SpoolError
from edge.spool import read_backlog
from eventplane.contract import Contract
from local.chaos.clock import FakeClock
from local.chaos.disk import SmallDisk
from local.deploy import ROOT
from local.mosquitto import Broker, start_mosquitto
from local.network import Link, Network
from local.ports import LOOPBACK
from local.process import Child, Supervisor
from local.things import Thing


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
        """Deliveries that wait in the spool."""
        try:
            return sum(read_backlog(self.spool).values())
        except SpoolError:
            return 0  # not made yet

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
    directory: Path,
    disk: SmallDisk | None,
) -> Home:
    """Start the home of `thing`; its spool is on `disk`, or beside its other files."""
    directory.mkdir(parents=True, exist_ok=True)
    link = network.link(thing.host, thing.port)
    broker = start_mosquitto(supervisor, f"mosquitto-{thing.name}", directory / "mosquitto")
    compiled = directory / "contract.json"
    compiled.write_bytes(contract.canonical)
    spool = (disk.path if disk else directory) / "spool.db"
    settings = directory / "forwarder.toml"
    settings.write_text(_settings(thing, compiled, spool, broker.port, link.port, rule))
    clock = FakeClock.found(directory / "clock")
    forwarder = supervisor.start(
        f"forwarder-{thing.name}",
        [sys.executable, "-m", "edge", "--settings", str(settings.resolve())],
        env={**os.environ, "PYTHONPATH": str(ROOT), **_clock_variables(clock)},
        ready=spool.exists,
    )
    return Home(thing.name, broker, forwarder, link, spool, compiled, disk, clock)


def _clock_variables(clock: FakeClock | None) -> Mapping[str, str]:
    return clock.environment if clock else {}


def _settings(thing: Thing, contract: Path, spool: Path, broker: int, link: int, rule: str) -> str:
    return f"""\
thing = "{thing.name}"
contract = "{contract.resolve()}"
spool = "{spool.resolve()}"
spool_capacity_bytes = 1073741824

[local]
port = {broker}

[cloud]
host = "{LOOPBACK}"
port = {link}
ca = "{thing.ca.resolve()}"
certificate = "{thing.certificate.resolve()}"
key = "{thing.key.resolve()}"
rule = "{rule}"

[health]
port = 0
"""
