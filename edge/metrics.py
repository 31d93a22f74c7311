"""The forwarder's metrics: one table feeds the heartbeat, the Prometheus page, the docs and the dashboard.

Each metric is declared once, in `METRICS`: its name and help, how it is read, and the key under which
the heartbeat carries it. The loop's own thread reads them, because the values belong to the loop: one row of
the spool for each destination and priority with a backlog, the rest is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from edge.counts import Counts
from edge.forwarder import Forwarder
from edge.health_status import Backlog, DeviceStatus, HealthFinding, LinkState
from edge.parts import build_version
from eventplane.contract import Priority
from eventplane_mqtt.mailbox import LinkName

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Reading(NamedTuple):
    """The source of the metrics, for the loop's thread only."""

    status: DeviceStatus
    findings: Sequence[HealthFinding]
    forwarder: Forwarder


_Sample = tuple[Mapping[str, str], float]
"""Labels and value."""

_NO_LABELS: Mapping[str, str] = {}


class HeartbeatKey(NamedTuple):
    """One number of the heartbeat: the samples with `labels`, combined and rounded to `digits`."""

    name: str
    combine: Callable[[Sequence[float]], float] = sum
    digits: int = 0
    labels: Mapping[str, str] = _NO_LABELS

    def of(self, samples: Iterable[_Sample]) -> float:
        """Return the number; 0 without a sample."""
        values = [value for labels, value in samples if self.labels.items() <= labels.items()]
        return round(self.combine(values) if values else 0, self.digits or None)


class Metric(NamedTuple):
    """One family: its name, what it says, how it is read, and what the heartbeat carries of it."""

    name: str
    help: str
    read: Callable[[Reading], float | Iterable[_Sample] | None]
    heartbeat: tuple[HeartbeatKey, ...] = ()

    @property
    def kind(self) -> str:
        """Prometheus' type, which the name ends with."""
        return "counter" if self.name.endswith("_total") else "gauge"

    def samples(self, reading: Reading) -> list[_Sample]:
        """Return the samples of this family now; none where it reads None."""
        value = self.read(reading)
        if value is None:
            return []
        return [({}, value)] if isinstance(value, int | float) else list(value)


def heartbeat(reading: Reading) -> dict[str, float | str]:
    """Return what a heartbeat reports: numbers of the metrics, and the versions of what runs. It is small."""
    carried = {key.name: key.of(metric.samples(reading)) for metric in METRICS for key in metric.heartbeat}
    status = reading.status
    versions = {"contract": status.contract_version, "image": status.image_version}
    return {**versions, "version": build_version(), **carried}


Families = Sequence[tuple[Metric, Sequence[_Sample]]]
"""The samples of every metric at one moment: plain values, which any thread may read."""


def read_all(reading: Reading) -> Families:
    """Return the samples of all metrics."""
    return [(each, each.samples(reading)) for each in METRICS]


def render(families: Families) -> str:
    """Return Prometheus' text format 0.0.4. A family without samples is left out."""
    lines: list[str] = []
    for metric, samples in families:
        if samples:
            lines.append(f"# HELP {metric.name} {_escape(metric.help)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines += [f"{metric.name}{_labels(labels)} {value!r}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    escaped = {name: _escape(value).replace('"', '\\"') for name, value in labels.items()}
    pairs = ",".join(f'{name}="{value}"' for name, value in escaped.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _by_destination(value: Callable[[Backlog], float]) -> Callable[[Reading], Iterable[_Sample]]:
    return lambda it: [
        ({"destination": each.destination, "priority": each.priority}, value(each))
        for each in it.status.backlog
    ]


def _by_link(value: Callable[[LinkState], float]) -> Callable[[Reading], Iterable[_Sample]]:
    return lambda it: [({"link": each.name}, value(each)) for each in it.status.links.values()]


def _by(label: str, counter: Callable[[Counts], Mapping[str, int]]) -> Callable[[Reading], Iterable[_Sample]]:
    return lambda it: [({label: each}, count) for each, count in sorted(counter(it.forwarder.counts).items())]


def _discards(it: Reading) -> Iterable[_Sample]:
    for (outcome, reason), count in sorted(it.forwarder.counts.discards.items()):
        yield {"outcome": outcome, "reason": reason}, count


def _info(it: Reading) -> Iterable[_Sample]:
    status, spool = it.status, it.forwarder.spool
    labels = {"thing": status.thing, "contract": status.contract_version}
    return [(labels | {"epoch": spool.epoch, "birth": spool.origin.kind}, 1)]


def _disk_free_bytes(it: Reading) -> int | None:
    try:
        disk = os.statvfs(it.forwarder.spool.path.parent)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def _rss_bytes() -> int:
    """Return the resident memory of this process; 0 where the kernel does not report it."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


METRICS = (
    Metric(
        "eventplane_oldest_seconds",
        "Age of the oldest event without an acknowledgement; 0 when none is pending.",
        _by_destination(lambda each: each.oldest_s),
        (
            HeartbeatKey("oldest_urgent_s", max, 1, {"priority": Priority.URGENT}),
            HeartbeatKey("oldest_normal_s", max, 1, {"priority": Priority.NORMAL}),
            HeartbeatKey("oldest_low_s", max, 1, {"priority": Priority.LOW}),
        ),
    ),
    Metric(
        "eventplane_pending",
        "Pending deliveries.",
        _by_destination(lambda each: each.pending),
        (
            HeartbeatKey("pending"),
            *(HeartbeatKey(f"pending_{each}", labels={"priority": each}) for each in Priority),
        ),
    ),
    Metric(
        "eventplane_stored_total",
        "Events stored since the spool's epoch began.",
        lambda it: it.forwarder.spool.next_sequence - 1,
        (HeartbeatKey("stored"),),
    ),
    Metric(
        "eventplane_refused_total",
        "Messages that found the spool full; their senders keep them.",
        lambda it: it.forwarder.counts.refused,
        (HeartbeatKey("refused"),),
    ),
    Metric(
        "eventplane_sent_unstored_total",
        "Deliveries of urgent ones among them that were made from memory.",
        lambda it: it.forwarder.counts.sent_unstored,
    ),
    Metric(
        "eventplane_unwanted_total",
        "Deliveries that were left out because no reader at the destination handles such events.",
        lambda it: it.forwarder.counts.unwanted,
    ),
    Metric(
        "eventplane_dead_letters_total",
        "Messages that became dead letters.",
        _by("reason", lambda counts: counts.dead_letters),
        (HeartbeatKey("dead_letters"),),
    ),
    Metric(
        "eventplane_downlink_total",
        "Events of the cloud that were answered: stored, or why not; repetitions included.",
        _by("outcome", lambda counts: counts.downlink_outcomes),
    ),
    Metric(
        "eventplane_discards_total",
        "Deliveries that expired, were dropped or refused by the cloud.",
        _discards,
        (HeartbeatKey("discards"),),
    ),
    Metric(
        "eventplane_problem",
        "The problems on `/healthz`, one sample each.",
        lambda it: [({"problem": each.name, "health": each.health.value}, 1) for each in it.findings],
    ),
    Metric(
        "eventplane_link_up", "Whether the connection to a broker is up.", _by_link(lambda each: int(each.up))
    ),
    Metric(
        "eventplane_link_up_seconds",
        "How long the connection to a broker has been up; 0 when it is down.",
        _by_link(lambda each: each.for_s if each.up else 0.0),
        (HeartbeatKey("cloud_up_s", labels={"link": LinkName.CLOUD}),),
    ),
    Metric(
        "eventplane_connects_total",
        "How often the connection to a broker was made.",
        _by_link(lambda each: each.connects),
        (
            HeartbeatKey("cloud_connects", labels={"link": LinkName.CLOUD}),
            HeartbeatKey("local_connects", labels={"link": LinkName.LOCAL}),
        ),
    ),
    Metric(
        "eventplane_received_waiting_bytes",
        "Memory of received messages that wait for the loop.",
        _by_link(lambda each: each.waiting_bytes),
    ),
    Metric(
        "eventplane_received_dropped_total",
        "Received messages without room: at QoS 0, or unacknowledged and sent again by the cloud.",
        _by_link(lambda each: each.dropped),
        (HeartbeatKey("received_dropped"),),
    ),
    Metric(
        "eventplane_reading_paused_total",
        "Times that a connection stopped reading because too much waited for the loop.",
        _by_link(lambda each: each.pauses),
    ),
    Metric(
        "eventplane_publishes_total",
        "Publishes sent to the cloud, repetitions included.",
        lambda it: it.forwarder.counts.published,
    ),
    Metric(
        "eventplane_published_events_total",
        "Events in them.",
        lambda it: it.forwarder.counts.published_events,
        (HeartbeatKey("published_events"),),
    ),
    Metric(
        "eventplane_published_bytes_total",
        "Bytes of their payloads, compressed.",
        lambda it: it.forwarder.counts.published_bytes,
        (HeartbeatKey("published_bytes"),),
    ),
    Metric(
        "eventplane_data_budget_left_bytes",
        "What is left of the day's budget of bytes; no sample without one.",
        lambda it: budget.left_bytes if (budget := it.forwarder.uplink.budget) else None,
    ),
    Metric(
        "eventplane_acknowledged_total",
        "Publishes that the cloud acknowledged.",
        lambda it: it.forwarder.counts.acknowledged,
    ),
    Metric(
        "eventplane_acknowledge_seconds_total",
        "Time from these publishes to their acknowledgements.",
        lambda it: it.forwarder.uplink.acknowledge_s,
    ),
    Metric(
        "eventplane_in_flight",
        "Publishes in flight, without an acknowledgement yet.",
        lambda it: len(it.forwarder.uplink.publisher),
    ),
    Metric(
        "eventplane_slowdowns_total",
        "Times the uplink slowed down because the cloud did not keep up.",
        lambda it: it.forwarder.uplink.publisher.pace.slowed,
    ),
    Metric(
        "eventplane_spool_on_disk",
        "1 while events are stored on the disk, 0 while urgent ones go from memory.",
        lambda it: int(it.forwarder.spool.is_on_disk),
        (HeartbeatKey("on_disk"),),
    ),
    Metric(
        "eventplane_disk_free_bytes",
        "Free room on the spool's disk; no sample when it cannot be read.",
        _disk_free_bytes,
        (HeartbeatKey("disk_free_bytes"),),
    ),
    Metric(
        "eventplane_spool_used_bytes",
        "Room that the spool takes.",
        lambda it: it.forwarder.spool.space.used_bytes,
    ),
    Metric(
        "eventplane_spool_capacity_bytes",
        "Room that the spool may take.",
        lambda it: it.forwarder.spool.space.capacity_bytes,
    ),
    Metric(
        "eventplane_spool_capacity_deliveries",
        "Deliveries that may be pending.",
        lambda it: it.forwarder.spool.space.capacity_deliveries,
    ),
    Metric(
        "eventplane_spool_pressure",
        "Used share of the scarcer capacity; 1 also when the disk refuses.",
        lambda it: it.forwarder.spool.space.pressure,
        (HeartbeatKey("spool_pressure", digits=3),),
    ),
    Metric(
        "eventplane_spool_written_bytes_total",
        "Bytes written to storage, which wears out flash.",
        lambda it: it.forwarder.spool.written_bytes,
        (HeartbeatKey("written_bytes"),),
    ),
    Metric(
        "eventplane_reloads_total",
        "Contracts that a reload made the active one.",
        lambda it: it.forwarder.counts.reloads,
    ),
    Metric(
        "eventplane_reloads_refused_total",
        "Contracts that a start or a reload refused.",
        lambda it: it.forwarder.counts.reloads_refused,
    ),
    Metric(
        "eventplane_certificate_left_seconds",
        "Time until the device's certificate expires, by its clock.",
        lambda it: it.status.certificate_left_s,
    ),
    Metric(
        "eventplane_info", "The device: thing, contract version, the spool's epoch and how it began.", _info
    ),
    Metric(
        "eventplane_uptime_seconds",
        "Time since the forwarder's start.",
        lambda it: it.status.uptime_s,
        (HeartbeatKey("uptime_s"),),
    ),
    Metric(
        "process_cpu_seconds_total",
        "CPU time of the process, user and system.",
        lambda it: it.status.cpu_s,
    ),
    Metric(
        "process_resident_memory_bytes",
        "Resident memory of the process.",
        lambda _: _rss_bytes(),
        (HeartbeatKey("rss_bytes"),),
    ),
)
