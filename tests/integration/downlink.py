"""The deployed plane from above, and real homes below it, each behind a line that can be cut."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from os import urandom
from pathlib import Path
from typing import Any

from contract import load_contract
from contract.acl import FORWARDER
from eventplane.attributes import AttributeValue
from eventplane.contract import Downlink
from eventplane.downlink.desired import Desired
from eventplane.downlink.table import DESIRED, sort_key
from eventplane.envelope import Envelope, write_event
from eventplane.records import Records
from eventplane_aws.tables import DynamoDbTables
from eventplane_client import Client, connect
from local.cloud import CloudEndpoint
from local.home import start_home
from local.mosquitto import Broker
from local.network import Link, Network
from local.ports import LOOPBACK
from local.process import Child, Supervisor
from local.things import Thing, provision
from tests.eventually import eventually
from tests.integration.access import Guarded

SECONDS = 180.0
"""How long anything may take on a busy machine; nothing here is about speed."""

THRESHOLD = "org.eventplane.home.threshold.v1"
MESSAGE = "org.eventplane.home.message.v1"
CONTRACT = "org.eventplane.device.contract.v1"


@dataclass
class Plane:
    """The deployed plane, as its services see it."""

    cloud: CloudEndpoint
    outputs: Mapping[str, str]

    def send(self, sender: str, type: str, id: str, data: Any, **attributes: AttributeValue) -> Envelope:
        """An event of a cloud service (`Carers`, `Operations`), through its outbox."""
        event = write_event({"id": id, "source": f"/{sender}", "type": type, **attributes}, data)
        sqs = self.cloud.client("sqs")
        sqs.send_message(QueueUrl=self.outputs[f"{sender}OutboxUrl"], MessageBody=event.json)
        return event

    def threshold(self, device: str, version: int, key: str, **attributes: AttributeValue) -> None:
        """A carer's threshold for a home."""
        names: dict[str, AttributeValue] = {"todevice": device, "statekey": key, "stateversion": str(version)}
        data = {"reading": "pulse", "high": version}
        self.send("Carers", THRESHOLD, f"{key}-{version}", data, **names, **attributes)

    def item(self, thing: str, key: str, kind: Downlink = Downlink.STATE) -> Desired | None:
        """What the table has of a state, or of the commands of a key."""
        table = Records(
            DynamoDbTables(self.cloud.client("dynamodb"), urandom), self.outputs["DesiredTable"], DESIRED
        )
        return table.read(thing, sort_key(kind, key))

    def waits(self, thing: str, key: str, version: int) -> bool:
        """Whether this version is known, and not that the device has it."""
        item = self.item(thing, key)
        return item is not None and item.message is not None and item.message.version == version

    def commands(self, thing: str, key: str) -> int:
        """How many commands wait for the device."""
        item = self.item(thing, key, Downlink.COMMAND)
        return 0 if item is None else len(item.waiting) + (item.message is not None)

    def is_stored(self, thing: str, key: str, version: int) -> bool:
        """Whether the device is known to have this version."""
        item = self.item(thing, key)
        return item is not None and item.acknowledged_version == version and item.state == "idle"

    def state(self, thing: str, key: str) -> str:
        item = self.item(thing, key)
        return item.state if item else ""


@dataclass
class Home:
    """A home; `came` is what its services got, in order, `got` the same by service."""

    thing: Thing
    link: Link
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
        thing = provision(plane.cloud, name, policy=plane.outputs["DevicePolicy"], directory=directory)
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
