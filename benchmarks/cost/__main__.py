"""`python -m benchmarks.cost [SCALE]`: counts and prices three regimes; writes build/bench/cost.json."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from benchmarks.cloud.device import Device
from benchmarks.cost import peers
from benchmarks.cost.meter import Meter
from benchmarks.cost.prices import Units, dollars
from benchmarks.cost.regimes import Regime, regimes
from benchmarks.cost.site import Observed, Site
from benchmarks.results import Figure, machine_load, write
from edge.settings import Settings
from local.demo.plane import deploy_plane
from local.emulator import start_emulator
from local.process import Supervisor

Counted = dict[str, tuple[Regime, Observed]]
MILLION = 1e6
MONTH_S = 30 * 24 * 3600
HOW = (
    "counted in a run through the local cloud: sizes of what was published, batches of the event source "
    "mappings in the emulator's log, calls of functions and consumers by a meter in their way; functions ran "
    "as long as on this machine, whose emulator answers more slowly than AWS"
)
WHY = {
    "bulk": "ten deliveries take a write, a read and a delete: 0.6 requests to SQS an event, $0.24/M, before "
    "anything else; only inboxes that take many events a message would be cheaper",
    "trickle": "a publish of one event is $0.45/M at the rule and $0.80/M to hand over to two queues; each "
    "invocation writes a ledger object, $5/M; a batching window and a longer batching_delay_ms lower both",
    "trickle_window": "what is left is the price of single publishes, $1.25/M: only batches lower it",
}
"""Why an aim is not met."""


def main(scale: float) -> None:
    """Count, price, print and write."""
    load = machine_load()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with Supervisor(directory / "run") as supervisor:
            found = _count(supervisor, directory, scale)
    gb_s = found["bulk"][1].units["plane"]["lambda_gb_s"]
    figures = [each for regime, seen in found.values() for each in _figures(regime, seen.units, gb_s)]
    figures += [
        Figure(f"{name}_fill", seen.fill, "messages", note="of an invocation of the router")
        for name, (_, seen) in found.items()
    ]
    figures += [*_overhead(found["trickle"][1].units), load]
    write("cost", figures, f"python -m benchmarks.cost {scale:g}", HOW)


def _count(supervisor: Supervisor, directory: Path, scale: float) -> Counted:
    cloud = start_emulator(supervisor)
    plane = deploy_plane(supervisor, cloud)
    log = supervisor.run_dir / "emulator.log"
    with (
        Meter(cloud.url) as functions,
        Meter(cloud.url) as consumers,
        Device(plane, "bench-home", directory) as device,
    ):
        site = Site(plane, functions, consumers, log)
        site.connect()
        for each in regimes(0.05):
            site.run(each, device)  # for the cold starts, which are not what an average event costs
        return {each.name: (each, site.run(each, device)) for each in regimes(scale)}


def _figures(regime: Regime, units: dict[str, Units], gb_s: float) -> list[Figure]:
    bridge = dollars(peers.eventbridge() + units["consumers"])
    unbatched = dollars(peers.unbatched(gb_s) + units["consumers"])
    total = units["plane"] + units["consumers"]
    name = regime.name
    parts = [
        _figure(f"{name}_{part}", of, f"{regime.note}; units an event: {_listed(of)}")
        for part, of in units.items()
    ]
    return [
        _figure(f"{name}_total", total, WHY.get(name, ""), regime.aim, "EventBridge", bridge),
        _figure(f"{name}_total_unbatched", total, "", None, "unbatched IoT, SQS, Lambda", unbatched),
        *parts,
    ]


def _overhead(trickle: dict[str, Units]) -> list[Figure]:
    """What a device costs a month beside its events: modelled, as nobody waits that long."""
    default = {each.name: each.default for each in fields(Settings)}
    reports = MONTH_S / default["heartbeat_s"] + MONTH_S / default["manifest_interval_s"]
    # To operations only: half the deliveries; the plane's part is the same but for one write.
    usd = reports * (dollars(trickle["plane"]) + dollars(trickle["consumers"]) / 2)
    connected = dollars({"iot_minute": MONTH_S / 60})
    note = (
        f"{reports:,.0f} heartbeats and manifests by the default settings, each as one event of the trickle"
    )
    return [
        Figure("reports_of_a_device", usd, "USD/month", higher_is_better=False, note=note),
        Figure("connection_of_a_device", connected, "USD/month", higher_is_better=False, note="30 days"),
    ]


def _figure(
    name: str,
    units: Units,
    note: str,
    aim: float | None = None,
    peer: str | None = None,
    each: float | None = None,
) -> Figure:
    theirs = None if each is None else MILLION * each
    value = MILLION * dollars(units)
    return Figure(name, value, "USD/M", aim, False, peer, theirs, note)


def _listed(units: Units) -> str:
    return ", ".join(f"{name} {number:.4g}" for name, number in sorted(units.items()))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
