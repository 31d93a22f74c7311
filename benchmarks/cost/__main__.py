"""`python -m benchmarks.cost [SCALE]`: prices regimes and idle months; writes build/bench/cost.json."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from benchmarks.cloud.device import Device
from benchmarks.cost import archive_reads, peers
from benchmarks.cost.deployment import MONTH_S, Deployment
from benchmarks.cost.idle import Key, Usage, idle, jobs
from benchmarks.cost.life import Reads
from benchmarks.cost.meter import Meter
from benchmarks.cost.prices import Units, billed, dollars
from benchmarks.cost.receipts import receipts
from benchmarks.cost.regimes import Regime, regimes
from benchmarks.cost.site import Observed, Site, life_of
from benchmarks.results import Figure, machine_load, write
from edge.settings import Settings
from local.demo.plane import deploy_plane
from local.emulator import start_emulator
from local.process import Supervisor

MILLION: Final = 1e6
AIMS: Final = {"dev": 10.0, "prod": 60.0}
"""USD a month of an environment in which nothing happens, without its jobs on the archive."""

HOW: Final = (
    "counted in a run through the local cloud: sizes of what was published, calls of functions and "
    "consumers by a meter in their way; event source mappings with a batching window are played in the "
    "batches of production; compaction and audit of a copy of the archive, each opening of an object "
    "counted; functions ran as long as on this machine, whose emulator answers more slowly than AWS; what an "
    "idle month has is counted in the synthesized templates"
)


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted: by regime, by call of a scheduled function, and what jobs read."""

    regimes: Mapping[str, tuple[Regime, Observed]]
    calls: Mapping[Key, Usage]
    reads: Reads
    lost: int


def main(scale: float) -> None:
    """Count, price, print and write."""
    load = machine_load()
    deployments = {name: Deployment(name) for name in AIMS}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with Supervisor(directory / "run") as supervisor:
            found = _count(supervisor, directory, deployments, scale)
    figures = [*_regimes(found, deployments["prod"]), *_idle(found, deployments), *_overhead(found)]
    figures += _receipts(deployments["prod"])
    write("cost", [*figures, load], f"python -m benchmarks.cost {scale:g}", HOW)


def _count(
    supervisor: Supervisor, directory: Path, deployments: Mapping[str, Deployment], scale: float
) -> Counted:
    cloud = start_emulator(supervisor)
    plane = deploy_plane(supervisor, cloud)
    log = supervisor.run_dir / "emulator.log"
    with (
        Meter(cloud.url) as functions,
        Meter(cloud.url) as consumers,
        Device(plane, "bench-home", directory) as device,
    ):
        site = Site(plane, deployments["prod"], functions, consumers, log)
        site.connect()
        for each in regimes(0.05):
            site.run(each, device)  # for the cold starts, which are not what an average event costs
        seen = {each.name: (each, site.run(each, device)) for each in regimes(scale)}
        calls = site.calls(deployments.values())
    reads, report = archive_reads.measured(*site.archive(), directory / "archive")
    return Counted(seen, calls, reads, report["totals"]["lost"])


def _regimes(found: Counted, production: Deployment) -> Iterator[Figure]:
    gb_s = found.regimes["bulk"][1].units["plane"]["lambda_gb_s"]
    for name, (regime, seen) in found.regimes.items():
        parts = {**seen.units, **life_of(seen, found.reads, production)}
        total = sum(parts.values(), Counter())
        bridge = dollars(peers.eventbridge() + parts["consumers"])
        unbatched = dollars(peers.unbatched(gb_s) + parts["consumers"])
        yield _a_million(f"{name}_total", total, regime.note, regime.aim, "EventBridge", bridge)
        yield _a_million(f"{name}_total_unbatched", total, "", None, "unbatched IoT, SQS, Lambda", unbatched)
        for part, units in parts.items():
            yield _a_million(f"{name}_{part}", units, f"{regime.note}; units an event: {_listed(units)}")
        yield Figure(f"{name}_fill", seen.fill, "messages", note="of an invocation of the router")
        objects = MILLION * sum(seen.written.objects.values())
        yield Figure(f"{name}_objects", objects, "objects/M", higher_is_better=False, note="in the archive")
    yield Figure(
        "compaction_opens", found.reads.compaction, "opens", note="of a raw object", higher_is_better=False
    )
    yield Figure(
        "audit_opens", found.reads.audit, "opens", note="of a raw object, a run", higher_is_better=False
    )
    yield Figure(
        "compacted_size", found.reads.compacted_bytes, "of raw", note="bytes", higher_is_better=False
    )
    yield Figure("lost", found.lost, "events", 0, higher_is_better=False, note="by the audit of all of it")


def _idle(found: Counted, deployments: Mapping[str, Deployment]) -> Iterator[Figure]:
    alarm = found.regimes["alarm"][1].usage
    for name, deployment in deployments.items():
        parts = idle(deployment, found.calls, alarm)
        total = sum(parts.values(), Counter())
        note = "without jobs on the archive"
        yield Figure(f"idle_{name}", dollars(total), "USD/month", AIMS[name], False, note=note)
        note = "what an account with nothing else is billed: without the units that are always free"
        yield Figure(f"idle_{name}_billed", dollars(billed(total)), "USD/month", None, False, note=note)
        for part, units in parts.items():
            yield Figure(f"idle_{name}_{part}", dollars(units), "USD/month", None, False, note=_listed(units))
        work = jobs(deployment)
        yield Figure(f"idle_{name}_jobs", dollars(work), "USD/month", None, False, note=_listed(work))


def _overhead(found: Counted) -> list[Figure]:
    """What a device costs a month beside its events: modelled, as nobody waits that long."""
    default = {each.name: each.default for each in fields(Settings)}
    reports = MONTH_S / default["heartbeat_s"] + MONTH_S / default["manifest_interval_s"]
    units = found.regimes["trickle"][1].units
    # To operations only: half the deliveries; the plane's part is the same but for one write.
    usd = reports * (dollars(units["plane"]) + dollars(units["consumers"]) / 2)
    connected = dollars({"iot_minute": MONTH_S / 60})
    note = (
        f"{reports:,.0f} heartbeats and manifests by the default settings, each as one event of the trickle"
    )
    return [
        Figure("reports_of_a_device", usd, "USD/month", higher_is_better=False, note=note),
        Figure("connection_of_a_device", connected, "USD/month", higher_is_better=False, note="30 days"),
    ]


def _receipts(production: Deployment) -> Iterator[Figure]:
    """What receipts of the tap would add to a device of the trickle, which the plane does without."""
    for each in regimes(1.0):
        if each.name in ("trickle", "trickle_five"):
            frames = MONTH_S / 60 / each.batch
            for name, hourly in (("receipts", False), ("hourly_receipts", True)):
                units = receipts(production, frames, hourly=hourly)
                note = f"not built (ADR 29); {_listed(units)}"
                yield Figure(f"{each.name}_{name}", dollars(units), "USD/month", None, False, note=note)


def _a_million(
    name: str,
    units: Units,
    note: str,
    aim: float | None = None,
    peer: str | None = None,
    each: float | None = None,
) -> Figure:
    theirs = None if each is None else MILLION * each
    return Figure(name, MILLION * dollars(units), "USD/M", aim, False, peer, theirs, note)


def _listed(units: Units) -> str:
    return ", ".join(f"{name} {number:.4g}" for name, number in sorted(units.items()))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
