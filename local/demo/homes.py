"""The homes of a run, each with its services."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from eventplane.contract import Contract
from local.chaos.machine import ThisMachine
from local.cloud import CloudEndpoint
from local.errors import LocalError
from local.home import Home, start_home
from local.input import HomeInput
from local.network import Network
from local.process import Supervisor
from local.sent import SentLog
from local.services import HomeServices
from local.things import provision

_STARTING: Final = 8
"""Homes that are started at a time: their start is mostly waiting."""

MAX_HOMES: Final = 70
"""Homes of one run. Their services live in one process, at about 13 file descriptors a home, and the MQTT
library's select() takes descriptors below 1,024 only."""


class TooManyHomesError(LocalError):
    """One process cannot hold the connections of so many homes."""

    def __init__(self, homes: int) -> None:
        self.homes = homes
        super().__init__(f"{homes} homes are more than one run can hold; give HOMES up to {MAX_HOMES}")


@dataclass(frozen=True)
class RunningHome(Home):
    """A home whose forwarder and broker run, and whose `services` are connected."""

    services: HomeServices = field(kw_only=True)


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

    def start(home: HomeInput) -> RunningHome:
        directory = ThisMachine().folder(supervisor.run_dir, home.name)
        thing = provision(cloud, home.name, policy=policy, directory=directory)
        started = start_home(supervisor, network, thing, contract, rule, ThisMachine(), directory)
        services = HomeServices(home.name, home.services, started.broker.port, contract, sent)
        return RunningHome(**vars(started), services=services)

    with ExitStack() as stack, ThreadPoolExecutor(_STARTING) as workers:
        started = {}
        for home, running in zip(homes, workers.map(start, homes), strict=True):
            stack.enter_context(running.services)
            started[home.name] = running
        yield started
