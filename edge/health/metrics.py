"""The figures in Prometheus' text format 0.0.4, one declaration a metric. No library: it is a dozen lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from edge.figures import Figures
from edge.health.snapshots import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Labels = Mapping[str, str]
_Samples = Iterable[tuple[_Labels, float]]


class Metric(NamedTuple):
    """One family: its name, its kind, what it says, and how its samples are read."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Callable[[Snapshot], _Samples]


def render(snapshot: Snapshot) -> str:
    """What `/metrics` answers. A family without samples is left out."""
    lines: list[str] = []
    for metric in METRICS:
        samples = [
            f"{metric.name}{_labels(labels)} {_number(value)}" for labels, value in metric.samples(snapshot)
        ]
        if samples:
            lines.append(f"# HELP {metric.name} {_escape(metric.help)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines += samples
    return "\n".join(lines) + "\n"


def _labels(labels: _Labels) -> str:
    pairs = ",".join(f'{name}="{_escape_value(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_value(text: str) -> str:
    return _escape(text).replace('"', '\\"')


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def _plain(read: Callable[[Figures], float]) -> Callable[[Snapshot], _Samples]:
    return lambda snapshot: [({}, read(snapshot.figures))]


def _pending(snapshot: Snapshot) -> _Samples:
    for each in snapshot.figures.backlog:
        yield {"destination": each.destination, "priority": each.priority}, each.pending


def _ages(snapshot: Snapshot) -> _Samples:
    for each in snapshot.figures.backlog:
        yield {"destination": each.destination, "priority": each.priority}, each.oldest_s


def _up(snapshot: Snapshot) -> _Samples:
    return [({"link": each.name}, int(each.up)) for each in snapshot.figures.links.values()]


def _connects(snapshot: Snapshot) -> _Samples:
    return [({"link": each.name}, each.connects) for each in snapshot.figures.links.values()]


def _dead_letters(snapshot: Snapshot) -> _Samples:
    return [({"reason": reason}, count) for reason, count in sorted(snapshot.figures.dead_letters.items())]


def _descended(snapshot: Snapshot) -> _Samples:
    return [({"outcome": outcome}, count) for outcome, count in sorted(snapshot.figures.descended.items())]


def _discards(snapshot: Snapshot) -> _Samples:
    for (outcome, reason), count in sorted(snapshot.figures.discards.items()):
        yield {"outcome": outcome, "reason": reason}, count


def _certificate(snapshot: Snapshot) -> _Samples:
    return [] if snapshot.figures.certificate_left_s is None else [({}, snapshot.figures.certificate_left_s)]


def _info(snapshot: Snapshot) -> _Samples:
    labels = {
        "thing": snapshot.figures.thing,
        "contract": snapshot.figures.contract_version,
        "epoch": snapshot.figures.epoch,
        "birth": snapshot.figures.birth,
    }
    return [(labels, 1)]


def _problems(snapshot: Snapshot) -> _Samples:
    return [({"problem": each.name, "health": each.health.value}, 1) for each in snapshot.findings]


METRICS = (
    Metric(
        "eventplane_oldest_seconds",
        "gauge",
        "Age of the oldest event without an acknowledgement; 0 when none waits.",
        _ages,
    ),
    Metric("eventplane_pending", "gauge", "Deliveries that wait.", _pending),
    Metric(
        "eventplane_arrivals_total",
        "counter",
        "Events stored since the spool's epoch began.",
        _plain(lambda figures: figures.arrivals),
    ),
    Metric(
        "eventplane_refused_total",
        "counter",
        "Messages that found the spool full; their senders keep them.",
        _plain(lambda figures: figures.refused),
    ),
    Metric(
        "eventplane_sent_unstored_total",
        "counter",
        "Deliveries of urgent ones among them that were made from memory.",
        _plain(lambda figures: figures.sent_unstored),
    ),
    Metric(
        "eventplane_unwanted_total",
        "counter",
        "Deliveries spared because nobody at their end handles such events.",
        _plain(lambda figures: figures.unwanted),
    ),
    Metric("eventplane_dead_letters_total", "counter", "Messages that became dead letters.", _dead_letters),
    Metric(
        "eventplane_descended_total",
        "counter",
        "Events of the cloud that were answered: stored, or why not; repetitions included.",
        _descended,
    ),
    Metric(
        "eventplane_discards_total",
        "counter",
        "Deliveries that expired, were dropped or refused by the cloud.",
        _discards,
    ),
    Metric("eventplane_problem", "gauge", "What is wrong, one sample each, as on `/healthz`.", _problems),
    Metric("eventplane_link_up", "gauge", "Whether the line to a broker stands.", _up),
    Metric("eventplane_connects_total", "counter", "How often the line to a broker was made.", _connects),
    Metric(
        "eventplane_publishes_total",
        "counter",
        "Publishes sent to the cloud, repetitions included.",
        _plain(lambda figures: figures.publishes),
    ),
    Metric(
        "eventplane_published_events_total",
        "counter",
        "Events in them.",
        _plain(lambda figures: figures.published_events),
    ),
    Metric(
        "eventplane_published_bytes_total",
        "counter",
        "Bytes of their payloads, compressed.",
        _plain(lambda figures: figures.published_bytes),
    ),
    Metric(
        "eventplane_acknowledged_total",
        "counter",
        "Publishes that the cloud acknowledged.",
        _plain(lambda figures: figures.acknowledged),
    ),
    Metric(
        "eventplane_acknowledge_seconds_total",
        "counter",
        "Time from these publishes to their acknowledgements.",
        _plain(lambda figures: figures.acknowledge_s),
    ),
    Metric(
        "eventplane_in_flight",
        "gauge",
        "Publishes without an acknowledgement yet.",
        _plain(lambda figures: figures.in_flight),
    ),
    Metric(
        "eventplane_slowdowns_total",
        "counter",
        "Times the uplink slowed down because the cloud did not keep up.",
        _plain(lambda figures: figures.slowdowns),
    ),
    Metric(
        "eventplane_spool_used_bytes",
        "gauge",
        "Room that the spool takes.",
        _plain(lambda figures: figures.used_bytes),
    ),
    Metric(
        "eventplane_spool_capacity_bytes",
        "gauge",
        "Room that the spool may take.",
        _plain(lambda figures: figures.capacity_bytes),
    ),
    Metric(
        "eventplane_spool_capacity_deliveries",
        "gauge",
        "Deliveries that may wait.",
        _plain(lambda figures: figures.capacity_deliveries),
    ),
    Metric(
        "eventplane_spool_pressure",
        "gauge",
        "Used share of the scarcer capacity; 1 also when the disk refuses.",
        _plain(lambda figures: figures.pressure),
    ),
    Metric(
        "eventplane_spool_written_bytes_total",
        "counter",
        "Bytes written to storage, which wears out flash.",
        _plain(lambda figures: figures.written_bytes),
    ),
    Metric(
        "eventplane_reloads_total",
        "counter",
        "Contracts put in force by a reload.",
        _plain(lambda figures: figures.reloads),
    ),
    Metric(
        "eventplane_reloads_refused_total",
        "counter",
        "Contracts that a start or a reload refused.",
        _plain(lambda figures: figures.reloads_refused),
    ),
    Metric(
        "eventplane_certificate_left_seconds",
        "gauge",
        "Until the device's certificate expires, by its clock.",
        _certificate,
    ),
    Metric("eventplane_info", "gauge", "Who this is: thing, contract version, epoch and birth.", _info),
    Metric(
        "eventplane_uptime_seconds",
        "gauge",
        "Since the forwarder's start.",
        _plain(lambda figures: figures.uptime_s),
    ),
    Metric(
        "process_cpu_seconds_total",
        "counter",
        "Computing time of the process, user and system.",
        _plain(lambda figures: figures.cpu_s),
    ),
    Metric(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory of the process.",
        _plain(lambda figures: figures.rss_bytes),
    ),
)
