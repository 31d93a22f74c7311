"""Each backend with a sender and a reader, and nothing between them that is not the client's."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.edge.parts import Site, start_forwarder
from eventplane_client.client import Client
from eventplane_client.dynamodb import DynamoDbFilter
from eventplane_client.dynamodb_log import DynamoDbLogFilter
from eventplane_client.dynamodb_table import PARTITION, SORT
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_filter import MemoryFilter
from eventplane_client.mqtt import MqttTransport
from eventplane_client.ports import MessageFilter, Mode, Transport
from eventplane_client.sqlite_filter import SqliteFilter
from eventplane_client.sqs import SqsTransport
from eventplane_client.subscription import NoSubscriptions
from local.emulator import start_emulator
from local.ports import LOOPBACK
from local.process import Supervisor

READER, SENDER = "call-service", "voice-service"
_VISIBILITY_S = 600
_numbers = itertools.count()


@dataclass
class Backend:
    """`transport` makes that of a participant, `filters` those that it can have, by name."""

    name: str
    events: int
    transport: Callable[[str], Transport]
    filters: dict[str, Callable[[], MessageFilter]]
    note: str
    writes: Counter[str] = field(default_factory=Counter)

    def client(self, participant: str, mode: Mode, filter: str | None = None) -> Client:
        """A client of its own."""
        made = self.filters[filter] if filter else MemoryFilter
        transport = self.transport(participant)
        return Client(participant, transport, made, NoSubscriptions("a benchmark has none"), mode=mode)


def memory(directory: Path) -> Backend:
    """The plane in this process; what is measured is the client and its filter."""
    plane = MemoryPlane()
    plane.subscribe(READER, "all", None)
    return Backend(
        "memory",
        2_000,
        lambda participant: MemoryTransport(plane, participant),
        {"memory": MemoryFilter, "sqlite": lambda: _on_disk(directory)},
        "one process",
    )


@contextmanager
def mqtt(supervisor: Supervisor, directory: Path) -> Iterator[Backend]:
    """A home's Mosquitto and forwarder; no cloud is reached."""
    home = start_forwarder(Site.create(supervisor, directory / "home"), "home")
    yield Backend(
        "mqtt",
        500,
        lambda participant: MqttTransport(participant, LOOPBACK, home.port, max_receives=5),
        {"sqlite": lambda: _on_disk(directory)},
        "Mosquitto and forwarder with its spool between them",
    )


@contextmanager
def sqs(supervisor: Supervisor) -> Iterator[Backend]:
    """Queue and table of the emulator; the sender's outbox is the reader's inbox."""
    cloud = start_emulator(supervisor)
    queues, table = cloud.client("sqs"), cloud.client("dynamodb")
    attributes = {"VisibilityTimeout": str(_VISIBILITY_S)}
    url = queues.create_queue(QueueName="client", Attributes=attributes)["QueueUrl"]
    table.create_table(
        TableName="filter",
        KeySchema=[
            {"AttributeName": PARTITION, "KeyType": "HASH"},
            {"AttributeName": SORT, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in (PARTITION, SORT)],
        BillingMode="PAY_PER_REQUEST",
    )
    writes: Counter[str] = Counter()
    counted = _Counted(table, writes)

    def reader() -> str:
        return f"{READER}-{next(_numbers)}"

    yield Backend(
        "sqs",
        300,
        lambda participant: SqsTransport(
            participant, queues, inbox=url, outbox=url, visibility_s=_VISIBILITY_S, max_receives=5
        ),
        {
            "items": lambda: DynamoDbFilter(counted, "filter", reader(), lease=lambda: _VISIBILITY_S),
            "log": lambda: DynamoDbLogFilter(counted, "filter", reader(), lease=lambda: _VISIBILITY_S),
        },
        "emulated queue and table on the same machine, which answer in their own time",
        writes,
    )


class _Counted:
    """Counts the writes to DynamoDB: each is one unit, as no item here is larger than 1 KB."""

    def __init__(self, client: Any, writes: Counter[str]) -> None:
        self._client = client
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_item") and name != "get_item":
            self._writes["dynamodb_write"] += 1
        return getattr(self._client, name)


def _on_disk(directory: Path) -> SqliteFilter:
    return SqliteFilter(directory / f"state-{next(_numbers)}.db", on_notice=lambda _: None)
