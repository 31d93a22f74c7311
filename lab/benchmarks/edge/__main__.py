"""`python -m lab.benchmarks.edge [PART ...]`: the forwarder beside Mosquitto's bridge; build/bench/edge.json.

Each part has a site of its own; the forwarder and the bridge take turns.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from lab.benchmarks.edge import attacks
from lab.benchmarks.edge.parts import (
    ALARM_TOPIC,
    BenchPublisher,
    Contender,
    EdgeSite,
    SinkProcess,
    fill,
    send_paced,
    site,
    start_bridge,
    start_forwarder,
)
from lab.benchmarks.edge.sink import ALARM, REALISTIC, event, events
from lab.benchmarks.processes import cpu_s, peak_rss_mib, rss_mib, written_bytes
from lab.benchmarks.results import Figure, paced, percentiles
from lab.benchmarks.runner import Benchmark

EVENTS = 100_000
SIZE = 512
"""Bytes of an event in a drain."""

HOME_PER_S = 500
HOME_EVENTS = 10 * HOME_PER_S

REPEATS = 3
BRIDGE_LIMIT_S = 20.0
"""Seconds of the bridge under the quota; its time for all of them follows from its rate."""

UNTHROTTLED = "publishes_per_s = 1000\nbytes_per_s = 1073741824\n"
BRIDGE = "Mosquitto's bridge"


def drain(site: EdgeSite) -> list[Figure]:
    """Drain a backlog as fast as possible."""
    runs = [
        (*_drain_forwarder(site, f"forwarder-{repeat}"), *_drain_bridge(site, f"bridge-{repeat}"))
        for repeat in range(REPEATS)
    ]
    ours, cpu, theirs, bridge_cpu = zip(*runs, strict=True)
    note = f"{EVENTS} x {SIZE} B over TLS; the aim is the bridge's rate in this run"
    of_cpu = "CPU milliseconds per 1,000 events while a backlog drains"
    return [
        _beside("drain_unthrottled", ours, "events/s", theirs, note, median(theirs)),
        _beside("drain_cpu", cpu, "ms/1000", bridge_cpu, of_cpu),
    ]


def _beside(
    name: str, ours: Sequence[float], unit: str, theirs: Sequence[float], note: str, aim: float | None = None
) -> Figure:
    """The median of the forwarder's runs beside that of the bridge's."""
    return Figure(name, median(ours), unit, aim, None, BRIDGE, median(theirs), note)


def quota(site: EdgeSite) -> list[Figure]:
    """Drain a backlog within IoT Core's quotas: 100 publishes/s and 512 KiB/s."""
    spool = fill(site.directory / "quota" / "spool.db", EVENTS, REALISTIC)
    with SinkProcess(site, EVENTS, quota=True) as sink:
        contender = start_forwarder(site, "quota", spool=spool)
        found = sink.report()
    contender.child.stop()
    bridge = start_bridge(site, "quota-bridge")
    with BenchPublisher(bridge.port) as publisher:
        publisher.send_all(events(range(EVENTS), REALISTIC))
    with SinkProcess(site, EVENTS, quota=True) as sink:
        sink.until_connected()
        time.sleep(BRIDGE_LIMIT_S)
        watched = sink.so_far()
    bridge.child.stop()
    rate = watched["events"] / ((watched["last_ns"] - watched["first_ns"]) / 1e9)
    took_s = (found["last_ns"] - found["first_ns"]) / 1e9
    note = f"{EVENTS} readings of {REALISTIC} B in {found['publishes']} publishes, {found['bytes']} B; "
    note += f"the bridge was watched for {BRIDGE_LIMIT_S:.0f} s, its time is what its rate comes to"
    return [_beside("drain_under_quota", [took_s], "s", [EVENTS / rate], note, 12.0)]


def flow(site: EdgeSite) -> list[Figure]:
    """Forward events that arrive in bulk: throughput, CPU, and bytes written."""
    contender = start_forwarder(site, "flow", settings=UNTHROTTLED)
    with SinkProcess(site, EVENTS) as sink, BenchPublisher(contender.port) as publisher:
        written, used = written_bytes(contender.pid), cpu_s(contender.pid)
        began = time.monotonic()
        publisher.send_all(events(range(EVENTS), SIZE))
        found = sink.report()
        took = found["last_ns"] / 1e9 - began
        written = written_bytes(contender.pid) - written
        used = cpu_s(contender.pid) - used
    contender.child.stop()
    note = f"to storage, per byte of event; {EVENTS} x {SIZE} B as fast as they are taken: the uplink "
    note += "falls behind, so events outlast the log and are written twice, in compressed batches"
    return [
        Figure("bytes_written_per_byte", written / (EVENTS * SIZE), "ratio", 2.0, False, note=note),
        Figure("flow", EVENTS / took, "events/s", note="service to Mosquitto, spool and cloud"),
        Figure("flow_cpu", used * 1e6 / EVENTS, "ms/1000", note="CPU milliseconds per 1,000 events"),
    ]


def latency(site: EdgeSite) -> list[Figure]:
    """Measure from a service's publish to the cloud, at 1 and at 100 events a second."""
    figures = []
    for rate, count in ((1, 20), (100, 1_000)):
        ours = _latencies(site, start_forwarder(site, f"latency-{rate}"), rate, count, ALARM)
        theirs = _latencies(site, start_bridge(site, f"latency-bridge-{rate}"), rate, count, ALARM)
        note = f"{count} urgent events; the forwarder's are on the disk before they leave"
        figures += percentiles(f"latency_{{}}_at_{rate}_per_s", ours, "ms", note, BRIDGE, theirs)
    return figures


def home(site: EdgeSite) -> list[Figure]:
    """Measure the CPU of the forwarder and of its broker at a busy home's rate."""
    runs = [
        (
            *_cpu_at_a_rate(site, start_forwarder(site, f"home-{repeat}")),
            _cpu_at_a_rate(site, start_bridge(site, f"home-bridge-{repeat}"))[0],
        )
        for repeat in range(REPEATS)
    ]
    ours, brokers, theirs = zip(*runs, strict=True)
    note = f"CPU milliseconds per 1,000 events of {REALISTIC} B, one at a time; "
    note += f"the forwarder's own Mosquitto takes {median(brokers):.3g} beside it"
    return [_beside("cpu_at_500_per_s", ours, "ms/1000", theirs, note, 400.0)]


def urgent(site: EdgeSite) -> list[Figure]:
    """Send alarms while 100,000 readings drain under the quota."""
    spool = fill(site.directory / "urgent" / "spool.db", EVENTS, REALISTIC, first=EVENTS)
    alarms = 40
    with SinkProcess(site, EVENTS + alarms, quota=True) as sink:
        contender = start_forwarder(site, "urgent", spool=spool)
        with BenchPublisher(contender.port) as publisher:
            send_paced(publisher, 10, alarms, ALARM, ALARM_TOPIC)
        found = sink.so_far()
    contender.child.stop()
    waits = [(at - number) / 1e6 for at, numbers in found["arrivals"] for number in numbers]
    note = f"{len(waits)} alarms at 10/s while the backlog drains under the quota"
    return list(percentiles("urgent_behind_backlog_{}", waits, "ms", note))


def memory(site: EdgeSite) -> list[Figure]:
    """Measure resident memory: idle with TLS, and with a million pending events."""
    with SinkProcess(site, 2) as sink:
        idle = start_forwarder(site, "idle")
        with BenchPublisher(idle.port) as publisher:
            publisher.send(event(0, SIZE))
            publisher.send(event(1, SIZE))
        sink.report()
        resting = rss_mib(idle.pid)
    idle.child.stop()
    million = 1_000_000
    spool = fill(site.directory / "million" / "spool.db", million, SIZE)
    began = time.monotonic()
    loaded = start_forwarder(site, "million", spool=spool)
    started = time.monotonic() - began
    with SinkProcess(site, million // 10) as sink:
        sink.report()
        peak = peak_rss_mib(loaded.pid)
    loaded.child.stop()
    return [
        Figure("rss_idle", resting, "MiB", 26.0, note="over TLS, after traffic"),
        Figure("rss_backlog", peak, "MiB", 48.0, note=f"the most while {million} x {SIZE} B wait and leave"),
        Figure("start_with_backlog", started, "s", note="process start to connection"),
    ]


def _drain_forwarder(site: EdgeSite, name: str) -> tuple[float, float]:
    spool = fill(site.directory / name / "spool.db", EVENTS, SIZE)
    contender = start_forwarder(site, name, spool=spool, settings=UNTHROTTLED)
    return _drained(site, contender)


def _drain_bridge(site: EdgeSite, name: str) -> tuple[float, float]:
    contender = start_bridge(site, name)
    with BenchPublisher(contender.port) as publisher:
        publisher.send_all(events(range(EVENTS), SIZE))
    return _drained(site, contender)


def _drained(site: EdgeSite, contender: Contender) -> tuple[float, float]:
    """Return events a second, and CPU milliseconds per 1,000 events."""
    used = cpu_s(contender.pid)
    with SinkProcess(site, EVENTS) as sink:
        found = sink.report()
        used = cpu_s(contender.pid) - used
    contender.child.stop()
    return EVENTS / ((found["last_ns"] - found["first_ns"]) / 1e9), used * 1e6 / EVENTS


def _cpu_at_a_rate(site: EdgeSite, contender: Contender) -> tuple[float, float]:
    """Return CPU milliseconds per 1,000 events of the process, and of its broker if that is another."""
    pids = [contender.pid, *([contender.broker.pid or 0] if contender.broker else [])]
    with SinkProcess(site, HOME_EVENTS) as sink, BenchPublisher(contender.port) as publisher:
        sink.until_connected()
        before = [cpu_s(each) for each in pids]
        for number in paced(HOME_PER_S, HOME_EVENTS):
            publisher.send(event(number, REALISTIC))
        sink.report()
        used = [
            (cpu_s(each) - earlier) * 1e6 / HOME_EVENTS for each, earlier in zip(pids, before, strict=True)
        ]
    contender.child.stop()
    return used[0], sum(used[1:])


def _latencies(site: EdgeSite, contender: Contender, rate: int, count: int, type: str) -> list[float]:
    with SinkProcess(site, count) as sink, BenchPublisher(contender.port) as publisher:
        sink.until_connected()
        send_paced(publisher, rate, count, type, ALARM_TOPIC)
        found = sink.report()
    contender.child.stop()
    return [(at - number) / 1e6 for at, numbers in found["arrivals"] for number in numbers]


def _at_a_site(part: Callable[[EdgeSite], list[Figure]], _: Namespace) -> list[Figure]:
    with site() as here:
        return part(here)


PARTS = (drain, quota, flow, latency, urgent, memory, home, attacks.flood, attacks.queued)
BENCHMARK = Benchmark(
    "edge",
    {each.__name__: partial(_at_a_site, each) for each in PARTS},
    clock="wall clock unless the unit says so",
    notes_load=True,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
