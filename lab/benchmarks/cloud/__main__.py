"""`python -m lab.benchmarks.cloud [PART ...]`: the plane in the local cloud; build/bench/cloud.json."""

import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from statistics import median
from time import monotonic_ns
from typing import Final

from eventplane.envelope import pack_texts
from lab.benchmarks import router_process
from lab.benchmarks.cloud.plane import (
    ALARM,
    ALARM_INBOXES,
    DOOR,
    DOOR_INBOXES,
    SIZE,
    BenchDevice,
    Invocations,
    Readers,
    deployed_plane,
    event,
    invocations,
)
from lab.benchmarks.processes import ControlGroup
from lab.benchmarks.results import Benchmark, Figure, paced, percentiles
from lab.plane import Plane

BATCH: Final = 250
"""Events of one publish: what the forwarder packs at most by default."""

AHEAD: Final = 4_000
"""Events that the device may be ahead of the readers: the emulator's queues get slower the more they hold."""

PROBES_PER_S: Final = 10
NOTE: Final = (
    f"events of {SIZE} B from one device over TLS; emulator, functions and readers share the machine"
)

ROUTER: Final = "router-device"

VCPU_MIB: Final = 1_769
"""MiB at which a function has one vCPU (AWS Lambda guide, "Configure Lambda function memory")."""

MESSAGES: Final = 10
AIMS: Final = {512: 500.0, VCPU_MIB: 2_000.0}
"""Events a second, by MiB."""

COLD_START_MS: Final = 700.0
CPU_MS: Final = 120
"""Of a router's start: how long it may compute."""
ANSWER_S: Final = 0.010
"""How long a call of AWS takes: Amazon SQS answers in some 10 ms within a region."""

_STARTS: Final = 5
_REPEATS: Final = 15
_ROUTED_S: Final = 15.0

_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Throughput:
    """`rates` in events/s by run; what the router ran for all `events` of them."""

    events: int
    rates: tuple[float, ...]
    router: Invocations

    def figure(self, name: str, note: str) -> Figure:
        """The median."""
        runs = f"{self.events // len(self.rates)} {NOTE}; {note}; median of {len(self.rates)} runs"
        return Figure(name, median(self.rates), "events/s", note=runs)


def plane(options: Namespace) -> Iterator[Figure]:
    """Throughput first, as the load of the others follows from it."""
    with deployed_plane() as run:
        deployed = run.plane
        with (
            BenchDevice(deployed, "bench-home", run.directory) as device,
            BenchDevice(deployed, "bench-other", run.directory) as other,
        ):
            # Once before it counts, for the cold starts.
            throughput(deployed, device, BATCH, BATCH, 1)
            latency(deployed, device, other, BATCH, 1)
            batched = throughput(deployed, device, options.events, BATCH, options.runs)
            single = throughput(deployed, device, options.events // 10, 1, options.runs)
            delays = latency(deployed, device, other, median(batched.rates) / 2, options.seconds)
        yield batched.figure("events_batched", f"{BATCH} a publish, zlib")
        yield single.figure("events_single", "each a publish of its own")
        yield from router_time(batched, single)
        yield from delays


def throughput(plane: Plane, device: BenchDevice, events: int, batch: int, runs: int) -> Throughput:
    """Events a second from the first publish until the last was read from the second inbox."""
    rates = []
    before = invocations(plane.cloud)[ROUTER]
    for _ in range(runs):
        with Readers(plane, DOOR_INBOXES) as readers:
            began = monotonic_ns()
            for sent, texts in _batches(events, batch):
                readers.wait_for(max(0, sent - AHEAD))
                device.publish(_payload(texts))
            rates.append(events / ((readers.wait_for(events) - began) / 1e9))
    return Throughput(events * runs, tuple(rates), invocations(plane.cloud)[ROUTER].since(before))


def router_time(batched: Throughput, single: Throughput) -> list[Figure]:
    """Measure the router's time: so much an invocation, and so much more an event; two runs, two unknowns."""
    (n, t), (m, u) = ((each.router.number, each.router.total_ms) for each in (batched, single))
    event = (t * m - u * n) / (batched.events * m - single.events * n)
    invocation = (u - event * single.events) / m
    note = "of wall clock in the emulator, whose queues answer more slowly than AWS"
    return [
        Figure("router_time_invocation", invocation, "ms", note=note),
        Figure("router_time_event", event, "ms", note=note),
    ]


def latency(
    plane: Plane, device: BenchDevice, other: BenchDevice, load: float, seconds: float
) -> list[Figure]:
    """From publish to reception, of alarms and of telemetry, while `other` sends `load` events/s."""
    probes = round(seconds * PROBES_PER_S)
    sent: dict[str, dict[str, int]] = {ALARM: {}, DOOR: {}}
    with Readers(plane, {*DOOR_INBOXES, *ALARM_INBOXES}) as readers:
        ending = threading.Event()
        thread = threading.Thread(target=_load, args=(other, load, ending), daemon=True)
        thread.start()
        for _ in paced(PROBES_PER_S, probes):
            for type, times in sent.items():
                id = f"probe{next(_NUMBERS)}"
                times[id] = monotonic_ns()
                device.publish(event(id, type).encode(), urgent=type == ALARM)
        ending.set()
        thread.join()
        inboxes = {ALARM: ALARM_INBOXES[0], DOOR: DOOR_INBOXES[0]}
        delays = {type: readers.delays(inboxes[type], times) for type, times in sent.items()}
    note = f"{probes} probes, {PROBES_PER_S}/s, beside {load:,.0f} events/s of another device; warm functions"
    return [
        Figure("latency_load", load, "events/s", note="half of what was measured batched"),
        *percentiles("latency_urgent_{}", [each / 1e6 for each in delays[ALARM]], "ms", note),
        *percentiles("latency_normal_{}", [each / 1e6 for each in delays[DOOR]], "ms", note),
    ]


def _load(device: BenchDevice, rate: float, ending: threading.Event) -> None:
    """Batches at an even pace."""
    while not ending.is_set():
        began = monotonic_ns()
        _, texts = next(_batches(BATCH, BATCH))
        device.publish(_payload(texts))
        ending.wait(max(0.0, BATCH / rate - (monotonic_ns() - began) / 1e9))


def _batches(events: int, batch: int) -> Iterator[tuple[int, list[str]]]:
    """Batches of new events, each with how many there are with it."""
    for sent in range(0, events, batch):
        ids = islice(_NUMBERS, min(batch, events - sent))
        texts = [event(f"e{each}") for each in ids]
        yield sent + len(texts), texts


def _payload(texts: Sequence[str]) -> bytes:
    return pack_texts(texts) if len(texts) > 1 else texts[0].encode()


def share_of(memory_mib: int) -> float:
    """vCPUs of a function with `memory_mib`."""
    return memory_mib / VCPU_MIB


def router(_: Namespace) -> Iterator[Figure]:
    """The start, then cold starts and rates of one router at its share of a core, by its memory.

    It runs as a deployment bundles it, against an AWS of this machine that answers after `ANSWER_S`. Lambda
    gives the init phase a whole vCPU whatever the memory, so the share begins with the first event. On Lambda
    one has to add the start of the runtime and the network.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        router_process.deployed(Path(folder), ANSWER_S) as variables,
    ):
        fresh = [router_process.run(variables) for _ in range(_REPEATS + 1)][1:]
        note = "CPU time of a fresh process to the answer to its first event, median"
        yield Figure("router_all", median(each.cpu_ms for each in fresh), "ms", CPU_MS, note=note)
        yield Figure("router_memory", median(each.peak_mib for each in fresh), "MiB")
        for memory, aim in AIMS.items():
            share = share_of(memory)
            starts = [_throttled(variables, share) for _ in range(_STARTS)]
            found = _throttled(variables, share, _ROUTED_S)
            start_ms = 1e3 * median(each.init_s + each.first_s for each in starts)
            name, cores = f"router_{memory}", f"{share:.2f} vCPU"
            note = f"{cores} from the first event on, one before; without the start of Lambda's sandbox"
            yield Figure(f"{name}_cold_start", start_ms, "ms", COLD_START_MS, note=note)
            events = found.batches * MESSAGES * BATCH
            note = f"{cores}, {MESSAGES} messages of {BATCH} events, two deliveries an event"
            yield Figure(f"{name}_events", events / found.took_s, "events/s", aim, note=note)
            note = "an invocation of one event, warm"
            yield Figure(f"{name}_invocation", 1e3 * found.warm_s, "ms", note=note)
            cpu_ms = 1e3 * found.took_cpu_s / events
            yield Figure(f"{name}_cpu_event", cpu_ms, "ms", note="CPU time of an event")


def _throttled(variables: dict[str, str], share: float, seconds: float = 0.0) -> router_process.RouterRun:
    """A process at its share of a core from the first event on, which goes on with full batches if asked."""
    with ControlGroup.cpu(share) as group:
        bound = {"BENCH_GROUP": str(group.members)} if group.applies else {}
        found = router_process.run(variables | bound, rest=_full() if seconds else None, seconds=seconds)
    if group.applies:
        return found
    # It ran unthrottled: its CPU time is divided by the share.
    first_s = found.first_s + found.first_cpu_s / share - found.first_cpu_s
    took_s = max(found.took_s, found.took_cpu_s / share)
    return replace(found, first_s=first_s, took_s=took_s)


def _full() -> dict[str, object]:
    packs = (
        pack_texts(event(f"{message}-{number}") for number in range(BATCH)) for message in range(MESSAGES)
    )
    return router_process.messages(list(packs))


BENCHMARK = Benchmark(
    "cloud",
    {"plane": plane, "router": router},
    clock="wall clock unless a note says CPU time",
    options={
        "--events": {"type": int, "default": 20_000, "help": "of a batched run; a tenth of it single"},
        "--runs": {"type": int, "default": 3},
        "--seconds": {"type": float, "default": 30, "help": "of the latency run"},
    },
    notes_load=True,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
