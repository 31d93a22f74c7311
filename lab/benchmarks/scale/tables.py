"""The tables of docs/explanation/scale.md: fleets, quotas, and the model beside what was measured."""

from collections.abc import Callable
from typing import Final

from lab.benchmarks.scale import model
from lab.benchmarks.scale.model import FLEETS, MEMORIES, OUTAGES, QUOTAS, REGION, Measured

REGIMES: Final = {
    "bulk": "bulk: 250 events a publish",
    "trickle_single": "trickle: each event a publish, 20 events/s",
    "trickle": "trickle, gathered: 3 events a publish",
    "trickle_five": "trickle, gathered: 5 events a publish",
    "alarm": "alarms alone, 2/s",
}
PARTS: Final = ("plane", "consumers", "watching", "reading", "storage")

Rows = list[list[str]]


def regimes(measured: Measured) -> tuple[list[str], Rows]:
    """Return the cost of a million events over their whole life, by who causes it."""
    aims = {"bulk": "0.10", "trickle": "0.60", "trickle_five": "0.60", "alarm": "6.00"}
    rows = []
    for name, told in REGIMES.items():
        total, *parts = (f"{measured[f'{name}_{part}']:,.2f}" for part in ("total", *PARTS))
        bridge = f"{measured[f'{name}_total_peer']:,.2f}"
        rows.append([told, total, aims.get(name, ""), *parts, bridge])
    head = ["regime", "USD/M", "aim", "plane", "consumers", "logs, traces", "jobs' reads", "storage"]
    return [*head, "over EventBridge"], rows


def fleets(measured: Measured) -> tuple[list[str], Rows]:
    """One row a fleet, in the trickle: an event a minute a device, and its own reports."""
    head = ["devices", "publishes/s", "a batch", "routers busy", "delay p50, p99", "objects/day"]
    head += ["compaction of an hour", "audit of a day", "USD/month"]
    rows = []
    for devices in FLEETS:
        each = model.fleet(measured, devices)
        found, archive = each.routers, each.archive
        rows.append(
            [
                f"{devices:,}",
                f"{each.publishes_per_s:,.0f}",
                f"{found.fill:.1f}",
                f"{found.busy:,.1f}",
                f"{found.p50_s:,.2f}, {found.p99_s:,.2f} s",
                f"{archive.objects:,.0f}",
                f"{archive.compaction_s / 60:,.1f} min",
                f"{archive.audit_s / 60:,.1f} min",
                f"{each.usd:,.0f}",
            ]
        )
    return head, rows


def recovery(measured: Measured) -> tuple[list[str], Rows]:
    """A million devices that come back at once, as fast as IoT Core lets them connect."""
    rows = []
    for hours in OUTAGES:
        for memory in MEMORIES:
            each = model.recovery(measured, hours, memory)
            rows.append(
                [
                    f"{hours} h",
                    f"{memory:,} MiB",
                    f"{each.events:,.0f} in {each.publishes:.0f}",
                    f"{each.connected_s / 60:,.0f} min",
                    f"{each.routed_s / 60:,.0f} min",
                    f"{each.events_per_s:,.0f}",
                ]
            )
    head = ["outage", "routers", "events, publishes a device", "until all are connected"]
    return [*head, "until all is routed", "events/s"], rows


def quotas(measured: Measured, region: str = REGION) -> tuple[list[str], Rows]:
    """A million devices beside the default quotas of `region`, what is exceeded most first."""
    found = {name: (need, model.share(name, need, region)) for name, need in model.needs(measured).items()}
    rows = [
        [
            f"[{QUOTAS[name]['of']}]({QUOTAS[name]['source']})",
            "unknown" if part is None else f"{need / part:,.0f}",
            f"{need:,.0f}",
            "" if part is None else f"{part:.0%}",
            "yes" if QUOTAS[name]["raise"] else "no",
        ]
        for name, (need, part) in sorted(
            found.items(), key=lambda each: -(float("inf") if each[1][1] is None else each[1][1])
        )
    ]
    return ["quota", f"by default in {region}", "needed", "share", "can be raised"], rows


def checks(measured: Measured) -> tuple[list[str], Rows]:
    """Return the model's values for the runs that were measured, and its errors."""
    rows = [
        [name, f"{said:,.2f}", f"{real:,.2f}", f"{said / real - 1:+.0%}"]
        for name, (said, real) in model.checks(measured).items()
    ]
    return ["figure", "model", "measured", "deviation"], rows


TABLES: Final[dict[str, Callable[[Measured], tuple[list[str], Rows]]]] = {
    "regimes": regimes,
    "fleets": fleets,
    "quotas": quotas,
    "recovery": recovery,
    "checks": checks,
}
