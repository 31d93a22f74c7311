"""The tables of docs/scale.md: fleets, quotas, and how well the model agrees with what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from benchmarks.cost import peers
from benchmarks.cost.prices import dollars
from benchmarks.scale import model
from benchmarks.scale.model import FLEETS, OUTAGES, WINDOW_S, Measured
from benchmarks.scale.parameters import PRODUCTION, QUOTAS

REGIMES: Final = {
    "bulk": "bulk: 250 events a publish",
    "trickle": "trickle: each event a publish, 20/s",
    "trickle_window": "the same, routers with a window of 5 s",
    "alarm": "alarms alone",
}

Rows = list[list[str]]


def fleets(measured: Measured) -> tuple[list[str], Rows]:
    """One row a fleet, in the trickle: an event a minute a device, and its own reports."""
    head = ["devices", "publishes/s", "a batch", "routers busy", "delay p50, p99", "ledger PUT/s"]
    head += ["USD/month", f"in windows of {WINDOW_S:g} s"]
    rows = []
    for devices in FLEETS:
        each = model.fleet(measured, devices)
        found = each.routers
        rows.append(
            [
                f"{devices:,}",
                f"{each.publishes_per_s:,.0f}",
                f"{found.fill:.1f}",
                f"{found.busy:,.1f}",
                f"{1e3 * found.p50_s:,.0f}, {1e3 * found.p99_s:,.0f} ms",
                f"{each.publishes_per_s / found.fill:,.0f}",
                f"{each.usd:,.0f}",
                f"{each.usd_in_windows:,.0f}",
            ]
        )
    return head, rows


def regimes(measured: Measured) -> tuple[list[str], Rows]:
    """What a million events cost, as counted, beside other ways with consumers that read by tens."""
    consumers = Counter({"sqs_request": 2 * peers.DELIVERIES / 10})
    bridge = 1e6 * dollars(peers.eventbridge() + consumers)  # type: ignore[operator]
    event_gb_s = measured["router_time_event"] / 1e3 * PRODUCTION["memory_mib"] / 1024
    alone = 1e6 * dollars(peers.unbatched(event_gb_s) + consumers)  # type: ignore[operator]
    rows = [
        [REGIMES[name], f"{measured[f'{name}_total']:,.2f}", aim, f"{bridge:,.2f}", f"{alone:,.2f}"]
        for name, aim in {"bulk": "0.15", "trickle": "0.60", "trickle_window": "0.60", "alarm": ""}.items()
    ]
    return ["regime", "USD/M", "aim", "over EventBridge", "unbatched IoT, SQS, Lambda"], rows


def recovery(measured: Measured) -> tuple[list[str], Rows]:
    """A million devices that come back at once, as fast as IoT Core lets them connect."""
    rows = []
    for hours in OUTAGES:
        each = model.recovery(measured, hours)
        rows.append(
            [
                f"{hours} h",
                f"{each.events:,.0f} in {each.publishes:.0f}",
                f"{each.connected_s / 60:,.0f} min",
                f"{each.routed_s / 60:,.0f} min",
                f"{each.events_per_s:,.0f}",
            ]
        )
    head = [
        "outage",
        "events, publishes a device",
        "until all are connected",
        "until all is routed",
        "events/s",
    ]
    return head, rows


def quotas(measured: Measured) -> tuple[list[str], Rows]:
    """A million devices beside the default quotas, what is exceeded most first."""
    rows = [
        [
            f"[{QUOTAS[name]['of']}]({QUOTAS[name]['source']})",
            f"{QUOTAS[name]['limit']:,}",
            f"{need:,.0f}",
            f"{need / QUOTAS[name]['limit']:.0%}",
            "yes" if QUOTAS[name]["raise"] else "no",
        ]
        for name, need in model.needs(measured).items()
    ]
    return ["quota", "by default", "needed", "share", "can be raised"], rows


def checks(measured: Measured) -> tuple[list[str], Rows]:
    """What the model says of the runs that were measured, and how far it is off."""
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
