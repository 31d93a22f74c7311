"""Put and get of one backend in one mode: how many a second, and how long from one to the other."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from statistics import median, quantiles
from time import perf_counter

from benchmarks.client.backends import READER, SENDER, Backend
from benchmarks.cloud.events import ALARM, SIZE, event
from benchmarks.cost.prices import dollars
from benchmarks.results import Figure
from eventplane_client.errors import NothingThereError
from eventplane_client.inbox import Inbox
from eventplane_client.ports import Mode

RUNS = 3
PROBES = 100
_PATIENCE_S = 30.0
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Way:
    """A mode, the filter that it needs, and how many events are got at a time."""

    mode: Mode
    filter: str | None = None
    batch: int = 1

    @property
    def name(self) -> str:
        """As it stands in a figure's name."""
        parts = [self.mode.value, *([self.filter] if self.filter else [])]
        return "_".join([*parts, *([f"batch{self.batch}"] if self.batch > 1 else [])])


def ways(backend: Backend) -> Iterator[Way]:
    """All that a backend can do."""
    yield Way(Mode.AT_MOST_ONCE)
    yield Way(Mode.AT_LEAST_ONCE)
    for name in backend.filters:
        yield Way(Mode.EXACTLY_ONCE, name)
        yield Way(Mode.EXACTLY_ONCE, name, 10)


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
            yield Figure(
                f"{backend.name}_filter_{way.name}",
                cost,
                "USD/M",
                higher_is_better=False,
                note="list price of the write units counted, by a million events",
            )
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


def _get(backend: Backend, way: Way) -> float:
    """Of what lies there."""
    with backend.client(READER, way.mode, way.filter) as client, client.subscribe() as inbox:
        left = backend.events
        began = perf_counter()
        while left > 0:
            left -= len(inbox.get_batch(min(way.batch, left), _PATIENCE_S))
        return backend.events / (perf_counter() - began)


def _latency(backend: Backend, way: Way, note: str) -> Iterator[Figure]:
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
    cuts = quantiles(times, n=100, method="inclusive")
    for cut, at in (("p50", 49), ("p99", 98)):
        yield Figure(
            f"{backend.name}_{way.name}_{cut}",
            cuts[at],
            "ms",
            higher_is_better=False,
            note=f"from put to get, {PROBES} one by one; {note}",
        )


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
