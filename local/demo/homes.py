"""One home on this machine: its broker, its forwarder, its line to the cloud, all of which can fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from edge.spool import read_backlog
from eventplane.contract import Contract
from local.cloud import CloudEndpoint
from local.deploy import ROOT
from local.errors import LocalError
from local.input import HomeInput
from local.mosquitto import Broker, start_mosquitto
from local.network import Link, Network
from local.ports import LOOPBACK
from local.process import Child, Supervisor
from local.sent import SentLog
from local.services import HomeServices
from local.things import Thing, provision

_CONNECTED: Final = "cloud broker connected"
"""What a forwarder logs when it stands on both sides: it dials the home's broker first."""

_STARTING: Final = 8
"""Homes that are started at a time: their start is mostly waiting."""


_STOPPING_SECONDS: Final = 20.0
"""How long a forwarder may take to end: its own grace is 2 s, the rest is for a busy machine."""

MAX_HOMES: Final = 70
"""Homes of one run. Their services live in one process, at about 13 file descriptors a home, and the MQTT
library's select() takes descriptors below 1,024 only."""


class TooManyHomesError(LocalError):
    """One process cannot hold the connections of so many homes."""

    def __init__(self, homes: int) -> None:
        self.homes = homes
        super().__init__(f"{homes} homes are more than one run can hold; give HOMES up to {MAX_HOMES}")


class RunningHome:
    """A home whose forwarder and broker run, and whose services are connected."""

    def __init__(
        self, broker: Broker, forwarder: Child, link: Link, spool: Path, services: HomeServices
    ) -> None:
        self.services = services
        self._broker = broker
        self._forwarder = forwarder
        self._link = link
        self._spool = spool

    def kill_forwarder(self) -> None:
        self._forwarder.kill()

    def start_forwarder(self) -> None:
        self._forwarder.start()  # returns once it stands on both sides again

    def terminate_forwarder(self) -> None:
        """Ask the forwarder to end, without waiting. It sends a last manifest first."""
        self._forwarder.terminate()

    def stop_forwarder(self) -> None:
        self._forwarder.stop(_STOPPING_SECONDS)

    def kill_broker(self) -> None:
        self._broker.child.kill()

    def start_broker(self) -> None:
        self._broker.child.start()

    def cut_network(self) -> None:
        self._link.cut()

    def heal_network(self) -> None:
        self._link.heal()

    @property
    def backlog(self) -> int:
        """Deliveries that wait in the spool."""
        return sum(read_backlog(self._spool).values())


class _NewLine:
    """Whether a log got a line with `text` since it was last asked and said yes."""

    def __init__(self, log: Path, text: str) -> None:
        self._log = log
        self._text = text
        self._seen = 0

    def __call__(self) -> bool:
        log = self._log.read_text()
        found = self._text in log[self._seen :]
        if found:
            self._seen = len(log)
        return found


@contextmanager
def running_homes(
    supervisor: Supervisor,
    cloud: CloudEndpoint,
    network: Network,
    contract: Contract,
    sent: SentLog,
    homes: tuple[HomeInput, ...],
    *,
    rule: str,
    policy: str,
) -> Iterator[dict[str, RunningHome]]:
    """Provision and start all `homes`; they run while the `with` block does.

    Raises `TooManyHomesError`, and what keeps a part from starting.
    """
    if len(homes) > MAX_HOMES:
        raise TooManyHomesError(len(homes))
    compiled = supervisor.run_dir / "contract.json"
    compiled.write_bytes(contract.canonical)

    def start(home: HomeInput) -> RunningHome:
        directory = supervisor.run_dir / "homes" / home.name
        thing = provision(cloud, home.name, policy=policy, directory=directory)
        link = network.link(thing.host, thing.port)
        broker = start_mosquitto(supervisor, f"mosquitto-{home.name}", directory / "mosquitto")
        settings = directory / "forwarder.toml"
        settings.write_text(_settings(thing, broker.port, link.port, rule, compiled))
        log = supervisor.run_dir / f"forwarder-{home.name}.log"
        forwarder = supervisor.start(
            log.stem,
            [sys.executable, "-m", "edge", "--settings", str(settings.resolve())],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            # Before its first subscription the broker has nobody to keep a message for.
            ready=_NewLine(log, _CONNECTED),
        )
        services = HomeServices(home.name, home.services, broker.port, contract, sent)
        return RunningHome(broker, forwarder, link, directory / "spool.db", services)

    with ExitStack() as stack, ThreadPoolExecutor(_STARTING) as workers:
        started = {}
        for home, running in zip(homes, workers.map(start, homes), strict=True):
            stack.enter_context(running.services)
            started[home.name] = running
        yield started


def _settings(thing: Thing, broker_port: int, link_port: int, rule: str, contract: Path) -> str:
    return f"""\
thing = "{thing.name}"
contract = "{contract.resolve()}"
spool = "spool.db"

[local]
port = {broker_port}

[cloud]
host = "{LOOPBACK}"
port = {link_port}
ca = "{thing.ca.name}"
certificate = "{thing.certificate.name}"
key = "{thing.key.name}"
rule = "{rule}"
longest_delay_ms = 250

[health]
port = 0
"""
