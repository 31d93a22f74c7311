"""The deployed plane from above, and real homes below it, each behind a line that can be cut."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from contract import load_contract
from contract.acl import FORWARDER
from eventplane.envelope import Envelope
from eventplane_client import Client, connect
from lab.home import start_home
from lab.mosquitto import Broker
from lab.network import LOOPBACK, Network, NetworkLink
from lab.plane import Plane
from lab.process import Child, Supervisor
from lab.things import Thing
from tests.eventually import eventually
from tests.integration.access import Guarded

SECONDS = 180.0
"""How long anything may take on a busy machine; nothing here is about speed."""

MESSAGE = "org.eventplane.home.message.v1"
CONTRACT = "org.eventplane.device.contract.v1"


@dataclass
class Home:
    """A home; `came` is what its services got, in order, `got` the same by service."""

    thing: Thing
    link: NetworkLink
    forwarder: Child
    directory: Path
    broker: Broker
    came: list[Envelope] = field(default_factory=list)
    services: dict[str, Client] = field(default_factory=dict)
    got: dict[str, list[Envelope]] = field(default_factory=lambda: defaultdict(list))

    def take(self, service: str, event: Envelope) -> None:
        """Note what a service got."""
        self.got[service].append(event)
        self.came.append(event)

    @property
    def name(self) -> str:
        return self.thing.name

    def current(self, key: str) -> int | None:
        """The version of a state that the health-service is told."""
        found = self.services["health-service"].state(key, SECONDS)
        return None if found is None else int(str(found.attributes["stateversion"]))

    def versions(self, key: str) -> list[int]:
        """The versions of a state that came, in order."""
        mine = (each for each in self.came if each.attributes.get("statekey") == key)
        return [int(str(each.attributes["stateversion"])) for each in mine]

    def forget(self) -> None:
        """The device loses all it had, while it is off."""
        for file in self.directory.glob("spool.db*"):
            file.unlink()


@contextmanager
def running_home(
    plane: Plane,
    supervisor: Supervisor,
    directory: Path,
    name: str,
    *,
    guarded: Guarded | None = None,
    services: Sequence[str] = ("health-service", "voice-service"),
) -> Iterator[Home]:
    """A home whose forwarder is connected to the plane, and whose services listen.

    Its broker lets everybody do everything, unless it is a `guarded` one.
    """
    with Network() as network:
        thing = plane.provision(name, directory)
        variables = {"EVENTPLANE_CLOUD_RECONNECT_MIN_S": "0.1", "EVENTPLANE_CLOUD_RECONNECT_MAX_S": "1"}
        if guarded:
            login = guarded.login(FORWARDER)
            variables["EVENTPLANE_LOCAL_USERNAME"] = login.username
            variables["EVENTPLANE_LOCAL_PASSWORD_FILE"] = str(login.password_file)
        broker, rule = guarded.broker if guarded else None, plane.outputs["IngestRule"]
        parts = start_home(
            supervisor, network, thing, load_contract(), rule, directory, broker=broker, variables=variables
        )
        home = Home(thing, parts.link, parts.forwarder, directory, parts.broker)
        for service in services:
            client = home.services[service] = connect(
                f"mqtt://{LOOPBACK}:{home.broker.port}",
                service,
                mode="at_least_once",
                password_file=str(guarded.login(service).password_file) if guarded else None,
            )
            handle = client.subscribe().handle
            threading.Thread(target=handle, args=(partial(home.take, service),), daemon=True).start()
        try:
            yield home
        finally:
            for client in home.services.values():
                client.close()
            home.forwarder.stop()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until `condition()` holds; the test fails when it does not come to that."""
    assert eventually(condition, SECONDS)
