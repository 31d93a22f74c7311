"""`python -m lab.benchmarks.edge [PART ...]`: the forwarder beside Mosquitto's bridge; build/bench/edge.json.

Each part has a site of its own; the forwarder and the bridge take turns. Each attack, a flood or a backlog in
the home's broker, runs against a forwarder of its own in a memory cgroup of LIMIT_MIB. The alarms come from
another service than the flood, 10 a second; their latency is from publish to arrival in the cloud.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median, quantiles
from typing import Any

from lab.background import Background
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
from lab.benchmarks.edge.sink import ALARM, READING, REALISTIC, event, events
from lab.benchmarks.edge.sink import flood as send_flood
from lab.benchmarks.processes import ControlGroup, Worker, cpu_s, peak_rss_mib, rss_mib, written_bytes
from lab.benchmarks.results import Benchmark, Figure, paced, percentiles

LIMIT_MIB = 64
AIM_RSS_MIB = 48.0
AIM_ALARM_S = 1.0
AIM_STOP_S = 5.0

ALARMS = 150
ALARMS_PER_S = 10

PATIENCE_S = 30.0
"""How long an alarm is waited for, seconds; one that has not arrived then counts as that late."""

STOP_PATIENCE_S = 60.0

FLOOD_PER_S = 10_000
MOVEMENT = "org.eventplane.activity.motion.v1"
NEIGHBOUR = "eventplane/activity-service/outbox"
"""A service that never sends anything urgent; `MIXED` is one that may."""
MIXED = "eventplane/health-service/outbox"

QUEUED = 60_000

_PROBE_S = 0.2


def flood(site: EdgeSite) -> list[Figure]:
    """A QoS 0 flood of a service that sends nothing urgent, and of one that may."""
    return [
        *_flood(site, "flood", NEIGHBOUR, MOVEMENT),
        *_flood(site, "flood_mixed", MIXED, READING),
    ]


def queued(site: EdgeSite) -> list[Figure]:
    """60,000 events at QoS 1 of either service that wait in the home's broker when the forwarder returns."""
    return [
        *_queued(site, "queued", NEIGHBOUR, MOVEMENT),
        *_queued(site, "queued_mixed", MIXED, READING),
    ]


class LoadWatch(Background):
    """Follows the forwarder's peak of resident memory, and starts it again after its end, as systemd does."""

    def __init__(self, contender: Contender) -> None:
        super().__init__("watch")
        self.peak_mib = self.broker_peak_mib = 0.0
        self._child = contender.child
        self._broker = contender.broker

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        self._look()
        if self._broker is not None and self._broker.pid is not None:
            self.broker_peak_mib = peak_rss_mib(self._broker.pid)

    def _run(self) -> None:
        while not self._ending.wait(0.05):
            self._look()

    def _look(self) -> None:
        try:
            if self._child.pid is not None:
                self.peak_mib = max(self.peak_mib, peak_rss_mib(self._child.pid))
        except (OSError, StopIteration):  # it has ended, and has no memory any more
            self._child.revive()


def _flood(site: EdgeSite, name: str, topic: str, type: str) -> list[Figure]:
    with ControlGroup.memory(LIMIT_MIB) as limit, _forwarder(site, name, limit) as contender:
        contender.child.start()
        with SinkProcess(site, ALARMS, sent_after=time.monotonic_ns()) as sink, LoadWatch(contender) as watch:
            sink.until_connected()
            with Worker(send_flood, contender.port, FLOOD_PER_S, topic, type) as load:
                load.receive(bytes)  # it has begun
                _send_alarms(contender)
                found = sink.report(PATIENCE_S)
                took = _stop(contender)
                sent = load.stop(dict)
        per_s = sent["sent"] / sent["seconds"]
        return [
            alarm_figure(name, found, f"during {per_s:,.0f} messages of {REALISTIC} B a second at QoS 0"),
            _stop_figure(name, took),
            _rss_figure(name, watch, limit),
        ]


def _queued(site: EdgeSite, name: str, topic: str, type: str) -> list[Figure]:
    with ControlGroup.memory(LIMIT_MIB) as limit, _forwarder(site, name, limit) as contender:
        _queue(contender, range(QUEUED), topic, type)
        with SinkProcess(site, ALARMS, sent_after=time.monotonic_ns()) as sink:
            contender.child.launch()
            with LoadWatch(contender) as watch:
                _send_alarms(contender)
                found = sink.report(PATIENCE_S)
        contender.child.stop()
        _queue(contender, range(QUEUED, 2 * QUEUED), topic, type)
        contender.child.start()
        took = _stop(contender)
        return [
            alarm_figure(name, found, f"behind {QUEUED} events of {REALISTIC} B at QoS 1"),
            _stop_figure(name, took),
            _rss_figure(name, watch, limit),
        ]


@contextmanager
def _forwarder(site: EdgeSite, name: str, limit: ControlGroup) -> Iterator[Contender]:
    """Return a stopped forwarder whose sessions the home's broker knows: an alarm has gone through both."""
    contender = start_forwarder(site, name, limit=limit)
    with (
        SinkProcess(site, 1, sent_after=time.monotonic_ns()) as sink,
        BenchPublisher(contender.port) as publisher,
    ):
        while not sink.has_ended:
            send_paced(publisher, 1 / _PROBE_S, 1, ALARM, ALARM_TOPIC)
            time.sleep(_PROBE_S)
    contender.child.stop()
    try:
        yield contender
    finally:
        contender.child.stop()


def _queue(contender: Contender, numbers: range, topic: str, type: str) -> None:
    with BenchPublisher(contender.port) as publisher:
        publisher.send_all(events(numbers, REALISTIC, type), topic)


def _send_alarms(contender: Contender) -> None:
    with BenchPublisher(contender.port) as publisher:
        send_paced(publisher, ALARMS_PER_S, ALARMS, ALARM, ALARM_TOPIC)


def _stop(contender: Contender) -> float:
    """Seconds from SIGTERM to the end of the process."""
    began = time.monotonic()
    contender.child.stop(STOP_PATIENCE_S)
    return time.monotonic() - began


def alarm_figure(name: str, found: dict[str, Any], note: str) -> Figure:
    first: dict[int, float] = {}
    for at, sent in found["arrivals"]:
        for each in sent:
            first.setdefault(each, (at - each) / 1e9)
    missing = ALARMS - len(first)
    latencies = [*first.values(), *[PATIENCE_S] * missing]
    cuts = quantiles(latencies, n=100)
    return Figure(
        f"{name}_alarm_p99",
        cuts[98],
        "s",
        AIM_ALARM_S,
        note=f"{ALARMS} alarms at {ALARMS_PER_S}/s {note}; median {cuts[49]:.3g} s; "
        f"{missing} had not arrived {PATIENCE_S:g} s after the last one",
    )


def _stop_figure(name: str, seconds: float) -> Figure:
    note = "SIGTERM to the end of the process"
    return Figure(f"{name}_stop", seconds, "s", AIM_STOP_S, note=note)


def _rss_figure(name: str, watch: LoadWatch, limit: ControlGroup) -> Figure:
    group = "without a memory limit, which this machine does not allow"
    if limit.applies:
        group = f"in a memory cgroup of {LIMIT_MIB} MiB, killed {limit.kills} times"
    note = f"{group}; its broker's peak {watch.broker_peak_mib:.3g} MiB"
    return Figure(f"{name}_rss_peak", watch.peak_mib, "MiB", AIM_RSS_MIB, note=note)


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


PARTS = (drain, quota, flow, latency, urgent, memory, home, flood, queued)
BENCHMARK = Benchmark(
    "edge",
    {each.__name__: partial(_at_a_site, each) for each in PARTS},
    clock="wall clock unless the unit says so",
    notes_load=True,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
