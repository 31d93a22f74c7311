"""`python -m lab.benchmarks.cost [SCALE]`: prices regimes and idle months; writes build/bench/cost.json."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from edge.settings import Settings
from eventplane.archive_layout import COMPACTED, compacted_folders
from eventplane_aws.prices import billed, dollars, listed
from glue_jobs.common.session import local_session
from glue_jobs.compaction.main import main as compact
from glue_jobs.delivery_audit.main import main as audit
from lab.benchmarks.audit.accesses import Accesses, watched
from lab.benchmarks.cloud.plane import BenchDevice, Deployed, deployed_plane
from lab.benchmarks.cost.deployment import MONTH_S, PricedPlane
from lab.benchmarks.cost.metered import Meter
from lab.benchmarks.cost.months import (
    Key,
    Reads,
    Regime,
    StorageUsage,
    idle,
    jobs,
    regimes,
    requests,
    storage,
)
from lab.benchmarks.cost.site import Observed, Site
from lab.benchmarks.results import Figure
from lab.benchmarks.runner import Benchmark

MILLION: Final = 1e6
AIMS: Final = {"dev": 10.0, "prod": 60.0}
"""USD a month of an environment in which nothing happens, without its jobs on the archive."""

_EVENTBRIDGE: Final = Counter({"eventbridge_event": 1, "sqs_request": 2})
"""One event through an EventBridge bus to the queues of two inboxes; how it gets there is free here."""

HOW: Final = (
    "counted in a run through the local cloud: sizes of what was published, calls of functions and "
    "consumers by a meter in their way; event source mappings with a batching window are played in the "
    "batches of production; compaction and audit of a copy of the archive, each opening of an object "
    "counted; functions ran as long as on this machine, whose emulator answers more slowly than AWS; what an "
    "idle month has is counted in the synthesized templates"
)


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts: by regime, by call of a scheduled function, and what jobs read."""

    regimes: Mapping[str, tuple[Regime, Observed]]
    calls: Mapping[Key, StorageUsage]
    reads: Reads
    lost: int


def costs(options: Namespace) -> Iterator[Figure]:
    """Count, and price what was counted."""
    deployments = {name: PricedPlane(name) for name in AIMS}
    with deployed_plane() as run:
        found = _count(run, deployments, options.scale)
    yield from _regimes(found, deployments["prod"])
    yield from _idle(found, deployments)
    yield from _overhead(found)


def _count(run: Deployed, deployments: Mapping[str, PricedPlane], scale: float) -> Counted:
    url = run.plane.cloud.url
    with (
        Meter(url) as functions,
        Meter(url) as consumers,
        BenchDevice(run.plane, "bench-home", run.directory) as device,
    ):
        site = Site(run.plane, deployments["prod"], functions, consumers, run.log)
        site.connect()
        for each in regimes(0.05):
            site.run(each, device)  # for the cold starts, which are not what an average event costs
        seen = {each.name: (each, site.run(each, device)) for each in regimes(scale)}
        calls = site.scheduled(deployments.values())
    archive = run.directory / "archive"
    for key, content in site.archive():
        (archive / key).parent.mkdir(parents=True, exist_ok=True)
        (archive / key).write_bytes(content)
    return Counted(seen, calls, *_read(archive))


def _read(archive: Path) -> tuple[Reads, int]:
    """Let the jobs read the `archive`; how often they opened its objects, and what the audit calls lost."""
    raw = [each for name, _ in compacted_folders() for each in (archive / name.name).rglob("*.json.gz")]
    raw_bytes = sum(each.stat().st_size for each in raw)

    def opens(accesses: Accesses) -> float:
        return sum(accesses.opens[each.relative_to(archive)] for each in raw) / len(raw)

    with local_session():
        with watched(archive) as compacting:
            compact(["--INPUT", str(archive), "--DATE", "all"], datetime.now(UTC) + timedelta(hours=3))
        with watched(archive) as auditing:
            report = audit(["--INPUT", str(archive), "--OUTPUT", str(archive.with_name("audit"))])
    compacted = sum(each.stat().st_size for each in (archive / COMPACTED).rglob("*.parquet"))
    return Reads(opens(compacting), opens(auditing), compacted / raw_bytes), report["totals"]["lost"]


def _regimes(found: Counted, production: PricedPlane) -> Iterator[Figure]:
    for name, (regime, seen) in found.regimes.items():
        parts = {
            **seen.units,
            "reading": requests(seen.written, found.reads, production),
            "storage": storage(seen.written, found.reads, production),
        }
        total = MILLION * dollars(sum(parts.values(), Counter()))
        bridge = MILLION * dollars(_EVENTBRIDGE + parts["consumers"])
        yield Figure(
            f"{name}_total", total, "USD/M", regime.aim, False, "EventBridge", bridge, note=regime.note
        )
        for part, units in parts.items():
            note = f"{regime.note}; units an event: {listed(units)}"
            yield Figure(f"{name}_{part}", MILLION * dollars(units), "USD/M", note=note)
        yield Figure(f"{name}_fill", seen.fill, "messages", note="of an invocation of the router")
        objects = MILLION * sum(seen.written.objects.values())
        yield Figure(f"{name}_objects", objects, "objects/M", note="in the archive")
    yield Figure("compaction_opens", found.reads.compaction, "opens", note="of a raw object")
    yield Figure("audit_opens", found.reads.audit, "opens", note="of a raw object, a run")
    yield Figure("compacted_size", found.reads.compacted_bytes, "of raw", note="bytes")
    yield Figure("lost", found.lost, "events", 0, note="by the audit of all of it")


def _idle(found: Counted, deployments: Mapping[str, PricedPlane]) -> Iterator[Figure]:
    alarm = found.regimes["alarm"][1].usage
    for name, deployment in deployments.items():
        parts = idle(deployment, found.calls, alarm)
        total = sum(parts.values(), Counter())
        note = "without jobs on the archive"
        yield Figure(f"idle_{name}", dollars(total), "USD/month", AIMS[name], note=note)
        note = "what an account with nothing else is billed: without the units that are always free"
        yield Figure(f"idle_{name}_billed", dollars(billed(total)), "USD/month", note=note)
        for part, units in {**parts, "jobs": jobs(deployment)}.items():
            yield Figure(f"idle_{name}_{part}", dollars(units), "USD/month", note=listed(units))


def _overhead(found: Counted) -> Iterator[Figure]:
    """What a device costs a month beside its events: modelled, as nobody waits that long."""
    default = {each.name: each.default for each in fields(Settings)}
    reports = MONTH_S / default["heartbeat_s"] + MONTH_S / default["manifest_interval_s"]
    units = found.regimes["trickle"][1].units
    # To operations only: half the deliveries; the plane's part is the same but for one write.
    usd = reports * (dollars(units["plane"]) + dollars(units["consumers"]) / 2)
    note = (
        f"{reports:,.0f} heartbeats and manifests by the default settings, each as one event of the trickle"
    )
    yield Figure("reports_of_a_device", usd, "USD/month", note=note)
    connected = dollars({"iot_minute": MONTH_S / 60})
    yield Figure("connection_of_a_device", connected, "USD/month", note="30 days")


if __name__ == "__main__":
    scale = {"type": float, "nargs": "?", "default": 1.0, "help": "of the number of events"}
    sys.exit(Benchmark("cost", {"costs": costs}, HOW, {"scale": scale}, notes_load=True).main())
