"""`python -m lab.benchmarks.client [PART ...]`: the client over each backend; build/bench/client.json.

Between a sender and a reader is nothing that is not the client's. Each backend is measured in each mode: how
many events a second, and how long from put to get.
"""

import itertools
import sys
import threading
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from time import perf_counter
from typing import Any

from eventplane_aws.prices import dollars
from eventplane_client.client import Client
from eventplane_client.dynamodb_duplicates import DynamoDbFilter
from eventplane_client.errors import NothingThereError
from eventplane_client.inbox import Inbox
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_duplicates import MemoryFilter
from eventplane_client.mqtt import MqttTransport
from eventplane_client.ports import MessageFilter, Mode, Transport
from eventplane_client.sqlite_duplicates import SqliteFilter
from eventplane_client.sqs import FIRST_VISIBILITY_S, SqsTransport
from eventplane_client.subscription import NoSubscriptions
from lab.benchmarks.cloud.plane import ALARM, SIZE, event
from lab.benchmarks.edge.parts import EdgeSite, site, start_forwarder
from lab.benchmarks.results import Benchmark, Figure, percentiles
from lab.emulator import start_emulator
from lab.network import LOOPBACK
from tests.unit.client.worlds import create_filter_table

READER, SENDER = "call-service", "voice-service"
RUNS = 3
PROBES = 100
_VISIBILITY_S = 600
_PATIENCE_S = 30.0
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


@contextmanager
def memory(home: EdgeSite) -> Iterator[Backend]:
    """The plane in this process; what is measured is the client and its filter."""
    plane = MemoryPlane()
    plane.subscribe(READER, "all", None)
    yield Backend(
        "memory",
        2_000,
        lambda participant: MemoryTransport(plane, participant),
        {"memory": MemoryFilter, "sqlite": lambda: _on_disk(home.directory)},
        "one process",
    )


@contextmanager
def mqtt(home: EdgeSite) -> Iterator[Backend]:
    """A home's Mosquitto and forwarder; no cloud is reached."""
    forwarder = start_forwarder(home, "home")
    yield Backend(
        "mqtt",
        500,
        lambda participant: MqttTransport(participant, LOOPBACK, forwarder.port, max_receives=5),
        {"sqlite": lambda: _on_disk(home.directory)},
        "Mosquitto and forwarder with its spool between them",
    )


@contextmanager
def sqs(home: EdgeSite) -> Iterator[Backend]:
    """Queue and table of the emulator; the sender's outbox is the reader's inbox."""
    cloud = start_emulator(home.supervisor)
    queues, table = cloud.client("sqs"), cloud.client("dynamodb")
    attributes = {"VisibilityTimeout": str(_VISIBILITY_S)}
    url = queues.create_queue(QueueName="client", Attributes=attributes)["QueueUrl"]
    create_filter_table(table, "filter")
    writes: Counter[str] = Counter()

    def count(model: Any, **_: Any) -> None:
        # Each is one unit, as no item here is larger than 1 KB.
        writes["dynamodb_write"] += model.name.endswith("Item") and model.name != "GetItem"

    table.meta.events.register("before-call.dynamodb", count)

    def reader() -> str:
        return f"{READER}-{next(_numbers)}"

    yield Backend(
        "sqs",
        300,
        lambda participant: SqsTransport(
            participant,
            queues,
            inbox=url,
            outbox=url,
            visibility_s=_VISIBILITY_S,
            max_receives=5,
            first_visibility_s=FIRST_VISIBILITY_S,
        ),
        {"items": lambda: DynamoDbFilter(table, "filter", reader(), lease=lambda: _VISIBILITY_S)},
        "emulated queue and table on the same machine, which answer in their own time",
        writes,
    )


def _on_disk(directory: Path) -> SqliteFilter:
    return SqliteFilter(directory / f"state-{next(_numbers)}.db", on_notice=lambda _: None)


@dataclass(frozen=True, slots=True)
class ClientWay:
    """A mode, the filter that it needs, and how many events are got at a time."""

    mode: Mode
    filter: str | None = None
    batch: int = 1

    @property
    def name(self) -> str:
        """Return the word for it in a figure's name."""
        parts = [self.mode.value, *([self.filter] if self.filter else [])]
        return "_".join([*parts, *([f"batch{self.batch}"] if self.batch > 1 else [])])


def ways(backend: Backend) -> Iterator[ClientWay]:
    """All that a backend can do."""
    yield ClientWay(Mode.AT_MOST_ONCE)
    yield ClientWay(Mode.AT_LEAST_ONCE)
    for name in backend.filters:
        yield ClientWay(Mode.EXACTLY_ONCE, name)
        yield ClientWay(Mode.EXACTLY_ONCE, name, 10)


def figures(backend: Backend) -> Iterator[Figure]:
    """Everything about one backend."""
    note = f"{SIZE} B, one thread; {backend.note}"
    for mode in (Mode.AT_MOST_ONCE, Mode.AT_LEAST_ONCE):
        rate = median(_put(backend, mode) for _ in range(RUNS))
        name = "at_most_once" if mode is Mode.AT_MOST_ONCE else "durable"
        yield Figure(f"{backend.name}_put_{name}", rate, "events/s", note=note)
    for way in ways(backend):
        _fill(backend)
        backend.writes.clear()
        rate = median(_get(backend, way) for _ in range(RUNS))
        yield Figure(f"{backend.name}_get_{way.name}", rate, "events/s", note=note)
        if backend.writes:
            # What is left over from other runs is got as well, so a few more events than counted here.
            cost = dollars(backend.writes) / (RUNS * backend.events) * 1e6
            priced = "list price of the write units counted, by a million events"
            yield Figure(f"{backend.name}_filter_{way.name}", cost, "USD/M", note=priced)
        if way.batch == 1:
            yield from _latency(backend, way, note)


def _put(backend: Backend, mode: Mode) -> float:
    events = _events(backend.events)
    with backend.client(SENDER, mode) as sender:
        began = perf_counter()
        for each in events:
            sender.put(each, _PATIENCE_S)
        rate = len(events) / (perf_counter() - began)
    _drain(backend)
    return rate


def _fill(backend: Backend) -> None:
    with backend.client(SENDER, Mode.AT_LEAST_ONCE) as sender:
        for each in _events(RUNS * backend.events):
            sender.put(each, _PATIENCE_S)


def _get(backend: Backend, way: ClientWay) -> float:
    """Of what lies there."""
    with backend.client(READER, way.mode, way.filter) as client, client.subscribe() as inbox:
        left = backend.events
        began = perf_counter()
        while left > 0:
            left -= len(inbox.get_batch(min(way.batch, left), _PATIENCE_S))
        return backend.events / (perf_counter() - began)


def _latency(backend: Backend, way: ClientWay, note: str) -> Iterator[Figure]:
    _drain(backend)
    got: SimpleQueue[float] = SimpleQueue()
    with (
        backend.client(SENDER, way.mode if way.mode is Mode.AT_MOST_ONCE else Mode.AT_LEAST_ONCE) as sender,
        backend.client(READER, way.mode, way.filter) as client,
        client.subscribe() as inbox,
    ):
        thread = threading.Thread(target=_receive, args=(inbox, got, PROBES), daemon=True)
        thread.start()
        times = []
        for each in _events(PROBES):
            began = perf_counter()
            sender.put(each, _PATIENCE_S)
            times.append(1_000 * (got.get(timeout=_PATIENCE_S) - began))
        thread.join()
    note = f"from put to get, {PROBES} one by one; {note}"
    yield from percentiles(f"{backend.name}_{way.name}_{{}}", times, "ms", note)


def _receive(inbox: Inbox, got: SimpleQueue[float], number: int) -> None:
    for _ in range(number):
        inbox.get(_PATIENCE_S)
        got.put(perf_counter())


def _drain(backend: Backend) -> None:
    with backend.client(READER, Mode.AT_MOST_ONCE) as client, client.subscribe() as inbox:
        try:
            while True:
                inbox.get_batch(10, 0.5)
        except NothingThereError:
            return


def _events(number: int) -> list[str]:
    return [event(f"c{next(_numbers)}", ALARM) for _ in range(number)]


def _part(make: Callable[[EdgeSite], AbstractContextManager[Backend]], _: Namespace) -> Iterator[Figure]:
    with site() as here, make(here) as backend:
        yield from figures(backend)


BENCHMARK = Benchmark(
    "client",
    {name: partial(_part, make) for name, make in (("memory", memory), ("mqtt", mqtt), ("sqs", sqs))},
    "wall clock; throughput is the median of three runs",
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
