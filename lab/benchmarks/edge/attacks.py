"""The effect of a flood or a backlog in the home's broker on alarms, on the forwarder's memory and stop.

Each attack runs against a forwarder of its own in a memory cgroup of LIMIT_MIB. The alarms come from another
service than the flood, 10 a second; an alarm's latency is from its publish to its arrival in the cloud.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

from lab.background import Background
from lab.benchmarks.edge.parts import (
    ALARM_TOPIC,
    BenchPublisher,
    Contender,
    EdgeSite,
    SinkProcess,
    send_paced,
    start_forwarder,
)
from lab.benchmarks.edge.sink import ALARM, READING, REALISTIC, events
from lab.benchmarks.edge.sink import flood as send_flood
from lab.benchmarks.processes import ControlGroup, Worker, peak_rss_mib
from lab.benchmarks.results import Figure

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
