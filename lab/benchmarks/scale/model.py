"""A model of fleets: publishes, routers, delays, objects, jobs, money, by the figures that were measured."""

import heapq
import json
import random
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from eventplane_aws.prices import dollars
from lab.benchmarks.results import FOLDER, Figure
from stacks.config import ENVIRONMENTS

_DOCUMENT: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("parameters.toml").read_text())
_PUBLISHED: Final = Path(__file__).parents[3] / "docs" / "figures.json"
_RUNS: Final = ("audit", "cloud", "cost")

EVENTS_PER_S: Final[float] = _DOCUMENT["device"]["events_per_s"]
GATHERED: Final[int] = _DOCUMENT["device"]["gathered"]
REPORTS_PER_S: Final[float] = _DOCUMENT["device"]["reports_per_s"]
PRESENCE_USD: Final[float] = _DOCUMENT["device"]["presence_usd"]
"""A month of one device's presence."""
PROD: Final = ENVIRONMENTS["prod"]
LOCAL: Final = ENVIRONMENTS["local"].device_router
QUOTAS: Final[dict[str, dict[str, Any]]] = _DOCUMENT["quota"]

REGION: Final = "us-east-1"
"""Whose quotas docs/explanation/scale.md shows."""

FLEETS: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Devices."""

OUTAGES: Final = (1, 24)
"""Hours."""

MEMORIES: Final = (512, 1_769)
"""MiB of a router that were measured at their share of a core."""

DAY_S: Final = 24 * 3600
MONTH_DAYS: Final = 30
MONTH_S: Final = MONTH_DAYS * DAY_S

DEVICE_EVENTS_PER_S: Final = EVENTS_PER_S + REPORTS_PER_S
PUBLISHES_PER_S: Final = DEVICE_EVENTS_PER_S / GATHERED
"""Of one device, which gathers its reports as well."""

BATCH_EVENTS: Final = 250
_DPU_CORES: Final = 4

_AUDITS_A_DAY: Final = 1 + 23 / 2
"""Of production, in days of data: the nightly one, and 23 of the day so far."""

SEED: Final = 1

Measured = Mapping[str, float]


def published() -> dict[str, float]:
    """The published figures, so that the docs do not depend on what was run last."""
    results = json.loads(_PUBLISHED.read_text())
    return _values(results[f"bench/{name}"] for name in _RUNS)


def newest() -> dict[str, float]:
    """The published figures, with those of the last runs on this machine in their place."""
    files = [file for name in _RUNS if (file := FOLDER / f"{name}.json").exists()]
    return published() | _values(json.loads(file.read_text()) for file in files)


def _values(results: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures by name, and those of peers as `NAME_peer`."""
    found = [each for result in results for each in result["figures"]]
    peers = {f"{each['name']}_peer": each["peer_value"] for each in found if each.get("peer_value")}
    return {each["name"]: each["value"] for each in found} | peers


def limit(quota: str, region: str) -> float | None:
    """The default of a quota in a `region`; None where it is unknown to us."""
    found: dict[str, float] = QUOTAS[quota]["limit"]
    return found.get("everywhere", found.get(region))


@dataclass(frozen=True, slots=True)
class RouterModel:
    """`servers` run at a time and take up to `batch` messages each.

    A batch takes `invocation_s`, and `event_s` more for each of its events. It starts when a server and a
    message are there; with `window_s` it waits so long for more, or until it is full.
    """

    servers: int
    batch: int
    invocation_s: float
    event_s: float
    window_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """`fill` messages a batch; `busy` servers on average; delays from arrival to the end of the batch."""

    fill: float
    busy: float
    p50_s: float
    p99_s: float


def simulate(
    router: RouterModel, messages_per_s: float, events: float = 1, messages: int = 50_000
) -> Simulated:
    """Simulate so many `messages` of so many `events` each, which arrive at random."""
    dice = random.Random(SEED)
    now = 0.0
    arrivals = [now := now + dice.expovariate(messages_per_s) for _ in range(messages)]
    free = [0.0] * router.servers
    delays: list[float] = []
    first = batches = 0
    worked = 0.0
    while first < messages:
        start = max(heapq.heappop(free), arrivals[first])
        if router.window_s:
            full = arrivals[min(first + router.batch, messages) - 1]
            start = max(start, min(arrivals[first] + router.window_s, full))
        last = first
        while last < messages and last - first < router.batch and arrivals[last] <= start:
            last += 1
        time = router.invocation_s + router.event_s * events * (last - first)
        delays += [start + time - arrivals[each] for each in range(first, last)]
        heapq.heappush(free, start + time)
        worked += time
        batches += 1
        first = last
    cuts = quantiles(delays, n=100)
    return Simulated(messages / batches, worked / max(free), cuts[49], cuts[98])


@dataclass(frozen=True, slots=True)
class ArchiveModel:
    """The archive of a fleet: objects a day, and the time of its jobs.

    `compaction_s` and `audit_s` are the seconds that production's workers take for an hour, and for a day.
    """

    objects: float
    compaction_s: float
    audit_s: float
    usd: float


@dataclass(frozen=True, slots=True)
class FleetModel:
    """So many devices in the trickle: an event a minute each, and its own reports. `usd` is a month's."""

    publishes_per_s: float
    routers: Simulated
    archive: ArchiveModel
    usd: float


def fleet(measured: Measured, devices: int) -> FleetModel:
    """Simulate the routers of so many `devices`, and price what they do and what is idle besides."""
    rate = devices * PUBLISHES_PER_S
    routers = simulate(_router(measured), rate, events=GATHERED)
    archive = _archive(measured, devices * DEVICE_EVENTS_PER_S, rate)
    events = devices * DEVICE_EVENTS_PER_S * MONTH_S
    usd = events / 1e6 * measured["trickle_total"] + dollars({"iot_minute": devices * MONTH_S / 60})
    usd += devices * PRESENCE_USD
    return FleetModel(rate, routers, archive, usd + measured["idle_prod"] + archive.usd)


def _archive(measured: Measured, events_per_s: float, publishes_per_s: float) -> ArchiveModel:
    window, most = PROD.archive_writer.batch_window_s, PROD.archive_writer.batch_size
    # A writer of tap or ledger writes an object when it has waited, or has as many messages as it may.
    objects = 2 * DAY_S * max(1 / window, publishes_per_s / most)
    millions = events_per_s * DAY_S / 1e6
    # The hours of a day that is audited are closed, and so compacted.
    day = millions * measured["audit_largest_compacted_cpu"] / _DPU_CORES
    compacted = millions / 24 * measured["audit_largest_compaction"] / _DPU_CORES
    months = MONTH_DAYS / 3600
    dpu = _AUDITS_A_DAY * day * months, 24 * compacted * months
    return ArchiveModel(
        objects=objects,
        compaction_s=compacted / PROD.compaction.workers,
        audit_s=day / PROD.audit.workers,
        usd=dollars({"glue_dpu_h": dpu[0], "glue_flex_dpu_h": dpu[1]}) + measured["idle_prod_jobs"],
    )


@dataclass(frozen=True, slots=True)
class RecoveryModel:
    """A million devices come back at once, each with `events` in so many `publishes`."""

    events: float
    publishes: float
    connected_s: float
    routed_s: float

    @property
    def events_per_s(self) -> float:
        """The rate of the routers until all is routed."""
        return FLEETS[-1] * self.events / self.routed_s


def recovery(measured: Measured, hours: float, memory_mib: int) -> RecoveryModel:
    """The largest fleet after an outage of so many `hours`, as fast as IoT Core lets devices connect."""
    connects = limit("iot_connects_per_s", REGION)
    if connects is None:
        raise ValueError(f"how many devices may connect a second is unknown in {REGION}")
    connected_s = FLEETS[-1] / connects
    waiting = hours * 3600 * DEVICE_EVENTS_PER_S
    publishes = -(-waiting // BATCH_EVENTS)
    rate = PROD.device_router.max_concurrency * measured[f"router_{memory_mib}_events"]
    return RecoveryModel(waiting, publishes, connected_s, max(connected_s, FLEETS[-1] * waiting / rate))


def needs(measured: Measured) -> dict[str, float]:
    """Return the need of the largest fleet of each quota."""
    whole = fleet(measured, FLEETS[-1])
    return {
        "iot_connections": FLEETS[-1],
        "iot_subscriptions": FLEETS[-1],
        "iot_publishes_per_s": whole.publishes_per_s,
        "lambda_concurrency": whole.routers.busy,
        "mapping_concurrency": whole.routers.busy,
        "sqs_in_flight": whole.routers.busy * whole.routers.fill,
        "s3_puts_per_s": whole.archive.objects / DAY_S,
        "dynamodb_reads_per_s": PROD.device_router.max_concurrency / PROD.contract_refresh_s,
    }


def share(quota: str, need: float, region: str) -> float | None:
    """`need` as a share of the default quota in `region`; None where that is unknown."""
    most = limit(quota, region)
    return None if most is None else need / most


def checks(measured: Measured) -> dict[str, tuple[float, float]]:
    """Return the model's values for the runs that were measured, and the measured ones."""
    return {
        "delay of telemetry under load, ms": (
            measured["latency_urgent_p50"] + 1e3 * _under_load(measured),
            measured["latency_normal_p50"],
        )
    }


def figures(measured: Measured) -> list[Figure]:
    """Return its rows on the page of figures."""
    found = []
    for devices in FLEETS:
        each = fleet(measured, devices)
        found += [
            Figure(f"{devices}_devices", each.usd, "USD/month", note="an event a minute a device, trickle"),
            Figure(f"{devices}_devices_routers", each.routers.busy, "busy"),
            Figure(f"{devices}_devices_delay_p99", 1e3 * each.routers.p99_s, "ms"),
            Figure(f"{devices}_devices_objects", each.archive.objects, "objects/day"),
            Figure(f"{devices}_devices_audit", each.archive.audit_s / 60, "min", note="of a day"),
            Figure(f"{devices}_devices_compaction", each.archive.compaction_s / 60, "min", note="of an hour"),
        ]
    for name, need in needs(measured).items():
        part = share(name, need, REGION)
        if part is not None:
            found.append(Figure(f"quota_{name}", part, "of the default", note=QUOTAS[name]["of"]))
    found += [
        Figure(f"recovery_after_{hours}_h_{memory}", recovery(measured, hours, memory).routed_s / 60, "min")
        for hours in OUTAGES
        for memory in MEMORIES
    ]
    found += [
        Figure(f"check: {name}", model, "modelled", note=f"measured: {real:.4g}")
        for name, (model, real) in checks(measured).items()
    ]
    return found


def _under_load(measured: Measured) -> float:
    """How much longer telemetry waits than it would alone, in the local cloud, seconds."""
    local = RouterModel(
        servers=LOCAL.max_concurrency,
        batch=LOCAL.batch_size,
        invocation_s=measured["router_time_invocation"] / 1e3,
        event_s=measured["router_time_event"] / 1e3,
    )
    # Batches of another device and ten single publishes a second share the queue; a mean message of both.
    load, probes = measured["latency_load"] / BATCH_EVENTS, 10.0
    events = (load * BATCH_EVENTS + probes) / (load + probes)
    return simulate(local, load + probes, events=events).p50_s - local.invocation_s - local.event_s


def _router(measured: Measured) -> RouterModel:
    """A router of production at its share of a core."""
    memory = PROD.device_router.memory_mib
    return RouterModel(
        servers=PROD.device_router.max_concurrency,
        batch=PROD.device_router.batch_size,
        window_s=PROD.device_router.batch_window_s,
        invocation_s=measured[f"router_{memory}_invocation"] / 1e3,
        event_s=1 / measured[f"router_{memory}_events"],
    )
