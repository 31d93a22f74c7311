"""The homes of a run, each with its services."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final

from local.errors import LocalError
from local.home import Home
from local.input import HomeInput
from local.network import Network
from local.oracle import SentLog
from local.plane import Plane
from local.process import Supervisor
from local.services import HomeServices

_PARALLEL: Final = 8
"""Homes that are started at a time: their start is mostly waiting."""

MAX_HOMES: Final = 70
"""Homes of one run. Their services live in one process, at about 13 file descriptors a home, and the MQTT
library's select() takes descriptors below 1,024 only."""


class TooManyHomesError(LocalError):
    """One process cannot hold the connections of so many homes."""

    def __init__(self, homes: int) -> None:
        self.homes = homes
        super().__init__(f"{homes} homes are more than one run can hold; give HOMES up to {MAX_HOMES}")


@contextmanager
def running_homes(
    supervisor: Supervisor, network: Network, plane: Plane, sent: SentLog, homes: tuple[HomeInput, ...]
) -> Iterator[tuple[dict[str, Home], dict[str, HomeServices]]]:
    """Provision and start all `homes`, and connect their services, while the `with` block runs.

    Raises `TooManyHomesError`, and what keeps a part from starting.
    """
    if len(homes) > MAX_HOMES:
        raise TooManyHomesError(len(homes))

    def start(home: HomeInput) -> tuple[Home, HomeServices]:
        started = plane.start_home(supervisor, network, home.name)
        return started, HomeServices(home.name, home.services, started.broker.port, plane.contract, sent)

    with ExitStack() as stack, ThreadPoolExecutor(_PARALLEL) as workers:
        running, connected = {}, {}
        for home, services in workers.map(start, homes):
            running[home.name] = home
            connected[home.name] = stack.enter_context(services)
        yield running, connected
