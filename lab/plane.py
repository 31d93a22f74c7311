"""The plane that is deployed in the emulated cloud: its outputs, devices, queues and functions."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import urandom
from pathlib import Path
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from contract import load_contract
from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, Downlink, ParticipantKind
from eventplane.device_record import REGISTRY, LifecycleState
from eventplane.downlink.desired import Desired
from eventplane.downlink.table import DESIRED, sort_key
from eventplane.envelope import Envelope, write_event
from eventplane.names import OWN_SERVICES
from eventplane.presence import BUCKETS, PRESENCE
from eventplane.records import Record, RecordKind, Records
from eventplane.resource_names import resource_name
from eventplane_aws.tables import DynamoDbTables
from lab.audits import fetch
from lab.background import Background
from lab.cloud import ENVIRONMENT, CloudEndpoint, deploy
from lab.errors import LocalError
from lab.home import Home, start_home
from lab.machine import ThisMachine
from lab.network import Network
from lab.oracle import CARERS
from lab.process import Child, Supervisor
from lab.things import Thing, provision
from lambdas.downlink.devices import Presence
from parts.fleet.lifecycle import made
from stacks.names import url_output

ROUTERS: Final = ("router-device", "router-device-urgent")
"""The functions, without their prefix, that route what devices send."""

R = TypeVar("R", bound=Record)

THRESHOLD: Final = "org.eventplane.home.threshold.v1"

_log = logging.getLogger(__name__)

VISIBILITY_S: Final = 35
"""Visibility timeout of the source queues in a run that kills functions; deployed it is six times the timeout
of the function, 180 s. Below one timeout, the messages of a slow function would be redelivered."""

HIDING_QUEUES: Final = ("IngestUrl", "TapUrl", "LedgerUrl")
"""The source queues that hide messages for minutes as deployed."""

SOURCE_QUEUES: Final = (*HIDING_QUEUES, "UrgentIngestUrl")

_LEADS_NOWHERE: Final = ("-dlq", "presence", "connections", "downlink-work", "replies", "ledger", "receipts")
"""In the names of queues of dead letters, timers, observations and records."""

_RECONCILE_S: Final = 10.0
"""How often the downlink is reconciled; deployed it is once a minute."""

_STARTING: Final = 4
"""Functions that are started at a time."""


class FunctionFailedError(LocalError):
    """The function `name` raised an error; the emulated cloud's log tells which."""

    def __init__(self, name: str, answer: str) -> None:
        self.name = name
        super().__init__(f"the function {name} failed: {answer}; see the log of the emulated cloud")


@dataclass(frozen=True, slots=True)
class Plane:
    """The plane in `cloud`, with the `outputs` of its stacks by name."""

    cloud: CloudEndpoint
    outputs: Mapping[str, str]
    contract: Contract

    @property
    def inbox_outputs(self) -> dict[str, str]:
        """The output with the inbox queue's URL, by cloud service that the plane itself does not read for."""
        names = (each.name for each in self.contract.of_kind(ParticipantKind.CLOUD_SERVICE))
        return {each: url_output(each, "Inbox") for each in names if each not in OWN_SERVICES}

    @property
    def queue_outputs(self) -> list[str]:
        """The outputs with the URLs of all queues that events, and readers' receipts of them, pass."""
        asked = [
            each for each in self.inbox_outputs if self.contract.participants[each].inbox.asks_for_receipts
        ]
        receipts = [url_output(each, "Receipts") for each in asked]
        return [*SOURCE_QUEUES, *self.inbox_outputs.values(), *receipts]

    @property
    def inboxes(self) -> dict[str, str]:
        """The inbox queue's URL, by cloud service."""
        return {service: self.outputs[output] for service, output in self.inbox_outputs.items()}

    def provision(self, name: str, directory: Path) -> Thing:
        """Provision the device `name` with a certificate, whose files go to `directory`."""
        return provision(self.cloud, name, policy=self.outputs["DevicePolicy"], directory=directory)

    def start_home(self, supervisor: Supervisor, network: Network, name: str) -> Home:
        """Provision the device `name`, and start its home on this machine."""
        directory = ThisMachine().folder(supervisor.run_dir, name)
        thing, rule = self.provision(name, directory), self.outputs["IngestRule"]
        return start_home(supervisor, network, thing, self.contract, rule, directory)

    @property
    def tables(self) -> DynamoDbTables:
        """The plane's tables, as its functions use them."""
        return DynamoDbTables(self.cloud.client("dynamodb"), urandom)

    def records(self, output: str, kind: RecordKind[R]) -> Records[R]:
        """Return the records in the table whose name is in `output`."""
        return Records(self.tables, self.outputs[output], kind)

    def register(self, name: str) -> None:
        """Register the device `name` as in service, so that events may be sent to it (idempotent)."""
        device = replace(made(name, int(time.time() * 1_000)), state=LifecycleState.PROVISIONED)
        self.records("FleetTable", REGISTRY).change(lambda found: found or device, name)

    def present(self, things: Sequence[str]) -> set[str]:
        """Return those of `things` that the plane knows to be connected."""
        return set(Presence(self.records("PresenceTable", PRESENCE)).present(things))

    def send(self, sender: str, type: str, id: str, data: Any, **attributes: AttributeValue) -> Envelope:
        """Put an event of a cloud service (`Carers`, `Operations`) into its outbox, and return it."""
        event = write_event({"id": id, "source": f"/{sender}", "type": type, **attributes}, data)
        url = self.outputs[f"{sender}OutboxUrl"]
        self.cloud.client("sqs").send_message(QueueUrl=url, MessageBody=event.json)
        return event

    def threshold(self, device: str, version: int, key: str) -> None:
        """Send a carer's threshold for a home."""
        names: dict[str, AttributeValue] = {"todevice": device, "statekey": key, "stateversion": str(version)}
        self.send("Carers", THRESHOLD, f"{key}-{version}", {"reading": "pulse", "high": version}, **names)

    def item(self, thing: str, key: str, kind: Downlink = Downlink.STATE) -> Desired | None:
        """Return what the table has of a state, or of the commands of a key."""
        return self.records("DesiredTable", DESIRED).read(thing, sort_key(kind, key))

    def waits(self, thing: str, key: str, version: int) -> bool:
        """Return whether this version is known, and not that the device has it."""
        item = self.item(thing, key)
        return item is not None and item.message is not None and item.message.version == version

    def commands(self, thing: str, key: str) -> int:
        """Return how many commands wait for the device."""
        item = self.item(thing, key, Downlink.COMMAND)
        return 0 if item is None else len(item.waiting) + (item.message is not None)

    def is_stored(self, thing: str, key: str, version: int) -> bool:
        """Return whether the device is known to have this version."""
        item = self.item(thing, key)
        return item is not None and item.acknowledged_version == version and item.state == "idle"

    def state(self, thing: str, key: str) -> str:
        """Return what becomes of a state, "" where there is none."""
        item = self.item(thing, key)
        return item.state if item else ""

    def send_from_carers(self, text: str) -> None:
        """Put the event `text` into the outbox of the carers, which is a queue."""
        url = self.outputs[url_output(CARERS, "Outbox")]
        self.cloud.client("sqs").send_message(QueueUrl=url, MessageBody=text)

    def count_messages(self, outputs: Iterable[str], *, in_flight_only: bool = False) -> int:
        """Return how many messages are in the queues whose URLs are in `outputs`, or in flight."""
        sqs = self.cloud.client("sqs")
        names = ["ApproximateNumberOfMessagesNotVisible"]
        names += [] if in_flight_only else ["ApproximateNumberOfMessages"]
        answers = (
            sqs.get_queue_attributes(QueueUrl=self.outputs[output], AttributeNames=names)["Attributes"]
            for output in outputs
        )
        return sum(int(attributes[name]) for attributes in answers for name in names)

    def shorten_visibility(self) -> None:
        """Let the source queues redeliver after `VISIBILITY_S` what a killed function had in flight."""
        for output in HIDING_QUEUES:
            self.set_visibility(self.outputs[output], VISIBILITY_S)

    def set_visibility(self, queue_url: str, seconds: int) -> None:
        """Set the visibility timeout of a queue."""
        attributes = {"VisibilityTimeout": str(seconds)}
        self.cloud.client("sqs").set_queue_attributes(QueueUrl=queue_url, Attributes=attributes)

    def fetch_archive(
        self, directory: Path, progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> None:
        """Copy the archive to `directory`; `progress` gets the number of copied objects and of all."""
        fetch(self.cloud.client("s3"), self.outputs["ArchiveBucket"], directory, progress)


def deploy_plane(
    supervisor: Supervisor,
    cloud: CloudEndpoint,
    synthesis: Child | None = None,
    contract: Contract | None = None,
) -> Plane:
    """Deploy this checkout's plane to `cloud`, or what `synthesis` makes with `contract`.

    Raises what `lab.cloud.deploy` raises.
    """
    stacks = deploy(supervisor, cloud, synthesis)
    outputs = {name: value for stack in stacks.values() for name, value in stack.items()}
    return Plane(cloud, outputs, contract or load_contract())


def leads_to_inbox(queue: str) -> bool:
    """Return whether a message in the queue of that name may become an event of a service."""
    return not any(part in queue for part in _LEADS_NOWHERE)


def warm_up(cloud: CloudEndpoint) -> None:
    """Start every function that reads a queue with an empty batch; of each router both processes.

    The start of a function in the emulated cloud is no latency of the plane. A batch that comes while another
    one is handled waits for the start of a second process. Raises `FunctionFailedError`.
    """
    pages = cloud.client("lambda").get_paginator("list_event_source_mappings").paginate()
    mappings = [each for page in pages for each in page["EventSourceMappings"]]
    names = {each["FunctionArn"] for each in mappings if ":sqs:" in each["EventSourceArn"]}
    routers = [name for name in sorted(names) if any(f"-{router}:" in f"{name}:" for router in ROUTERS)]
    # Two calls at the same time need two processes.
    calls = sorted(routers * 2) + sorted(names.difference(routers))
    with ThreadPoolExecutor(_STARTING) as workers:
        list(workers.map(lambda name: invoke(cloud, name, {"Records": []}), calls))


class DownlinkSchedule(Background):
    """Reconciles the downlink while its `with` block runs: the local cloud runs no schedules.

    As when deployed, an event for a device that is just connecting waits for the next run.
    """

    def __init__(self, cloud: CloudEndpoint) -> None:
        super().__init__("downlink schedule")
        self._cloud = cloud

    def _run(self) -> None:
        name = resource_name(ENVIRONMENT, "downlink-reconciler")
        while not self._ending.wait(_RECONCILE_S):
            try:
                invoke(self._cloud, name, {"buckets": list(range(BUCKETS))})
            except (BotoCoreError, ClientError, FunctionFailedError):
                _log.exception("the downlink was not reconciled")


def snapshot_fleet(plane: Plane) -> None:
    """Write the devices in service to the archive, as the plane does every six hours.

    Raises `FunctionFailedError`.
    """
    invoke(plane.cloud, plane.outputs["FleetSnapshotFunction"], {})


def invoke(cloud: CloudEndpoint, name: str, event: Mapping[str, Any]) -> Any:
    """Call the function `name` and return its answer. Raises `FunctionFailedError`."""
    answer = cloud.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
    text = answer["Payload"].read().decode(errors="replace")
    if "FunctionError" in answer:
        raise FunctionFailedError(name, text)
    return json.loads(text)


@contextmanager
def with_variables(cloud: CloudEndpoint, functions: Iterable[str], more: Mapping[str, str]) -> Iterator[None]:
    """Give `functions` more environment variables, or others, in the `with` block."""
    client = cloud.client("lambda")
    before = {
        name: client.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        for name in functions
    }

    def give(more: Mapping[str, str]) -> None:
        for name, had in before.items():
            client.update_function_configuration(
                FunctionName=name, Environment={"Variables": {**had, **more}}
            )

    give(more)
    try:
        yield
    finally:
        give({})
