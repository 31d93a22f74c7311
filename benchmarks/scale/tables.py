"""The tables of docs/scale.md: fleets, quotas, and how well the model agrees with what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.cost import peers
from benchmarks.cost.prices import dollars
from benchmarks.scale.bill import usd_per_million
from benchmarks.scale.parameters import EVENTS_PER_S, LOCAL, PRODUCTION, QUOTAS, REPORTS_PER_S
from benchmarks.scale.queue import Router, simulate

REGIMES: Final = {
    "bulk": "bulk: 250 events a publish",
    "trickle": "trickle: each event a publish, 20/s",
    "trickle_window": "the same, routers with a window of 5 s",
    "alarm": "alarms alone",
}
FLEETS: Final = (1_000, 10_000, 100_000, 1_000_000)
MONTH_S: Final = 30 * 24 * 3600

PUBLISHES_PER_S: Final = EVENTS_PER_S + REPORTS_PER_S
"""Of one device."""

BATCH_EVENTS: Final = 250
WINDOW_S: Final = 5.0
WINDOW_MESSAGES: Final = 100
"""What the router could do for all that is not urgent: no setting has it yet."""

Rows = list[list[str]]


def fleets(measured: Mapping[str, float]) -> tuple[list[str], Rows]:
    """One row a fleet, in the trickle: an event a minute a device, and its own reports."""
    head = ["devices", "publishes/s", "a batch", "routers busy", "delay p50, p99", "ledger PUT/s"]
    head += ["USD/month", f"in windows of {WINDOW_S:g} s"]
    rows = []
    for devices in FLEETS:
        rate = devices * PUBLISHES_PER_S
        found = simulate(_router(measured, PRODUCTION), rate)
        windows = simulate(_router(measured, PRODUCTION, window_s=WINDOW_S), rate)
        rows.append(
            [
                f"{devices:,}",
                f"{rate:,.0f}",
                f"{found.fill:.1f}",
                f"{found.busy:,.1f}",
                f"{1e3 * found.p50_s:,.0f}, {1e3 * found.p99_s:,.0f} ms",
                f"{rate / found.fill:,.0f}",
                f"{_bill(measured, devices, found.fill):,.0f}",
                f"{_bill(measured, devices, windows.fill):,.0f}",
            ]
        )
    return head, rows


def regimes(measured: Mapping[str, float]) -> tuple[list[str], Rows]:
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


def recovery(measured: Mapping[str, float]) -> tuple[list[str], Rows]:
    """A million devices that come back at once, as fast as IoT Core lets them connect."""
    rate = QUOTAS["iot_connects_per_s"]["limit"]
    router = _router(measured, PRODUCTION)
    connecting_s = FLEETS[-1] / rate
    rows = []
    for hours in (1, 24):
        waiting = hours * 3600 * PUBLISHES_PER_S
        publishes = -(-waiting // BATCH_EVENTS)
        work_s = publishes / router.batch * router.invocation_s + waiting * router.event_s
        routed_s = max(connecting_s, FLEETS[-1] * work_s / router.servers)
        rows.append(
            [
                f"{hours} h",
                f"{waiting:,.0f} in {publishes:.0f}",
                f"{connecting_s / 60:,.0f} min",
                f"{routed_s / 60:,.0f} min",
                f"{FLEETS[-1] * waiting / routed_s:,.0f}",
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


def quotas(measured: Mapping[str, float]) -> tuple[list[str], Rows]:
    """A million devices beside the default quotas, what is exceeded most first."""
    devices = FLEETS[-1]
    found = simulate(_router(measured, PRODUCTION), devices * PUBLISHES_PER_S)
    rate = devices * PUBLISHES_PER_S
    needs = {
        "iot_connections": devices,
        "iot_subscriptions": devices,
        "iot_publishes_per_s": rate,
        "lambda_concurrency": found.busy,
        "mapping_concurrency": found.busy,
        "sqs_in_flight": found.busy * found.fill,
        "s3_puts_per_s": rate / found.fill,
        "dynamodb_reads_per_s": PRODUCTION["max_concurrency"] / PRODUCTION["contract_refresh_s"],
    }
    order = sorted(needs, key=lambda name: -needs[name] / QUOTAS[name]["limit"])
    rows = [
        [
            f"[{QUOTAS[name]['of']}]({QUOTAS[name]['source']})",
            f"{QUOTAS[name]['limit']:,}",
            f"{needs[name]:,.0f}",
            f"{needs[name] / QUOTAS[name]['limit']:.0%}",
            "yes" if QUOTAS[name]["raise"] else "no",
        ]
        for name in order
    ]
    return ["quota", "by default", "needed", "share", "can be raised"], rows


def checks(measured: Mapping[str, float]) -> tuple[list[str], Rows]:
    """What the model says of the runs that were measured, and how far it is off."""
    local = _router(measured, LOCAL)
    alone = local.invocation_s + local.event_s
    trickle = simulate(local, 20)
    pairs = {
        "messages a batch, 20 publishes/s": (trickle.fill, measured["trickle_fill"]),
        "USD/M, 20 publishes/s": (_usd(measured, trickle.fill), measured["trickle_total"]),
        "USD/M in windows": (
            _usd(measured, measured["trickle_window_fill"]),
            measured["trickle_window_total"],
        ),
        "delay of telemetry under load, ms": (
            measured["latency_urgent_p50"] + 1e3 * (_under_load(measured, local) - alone),
            measured["latency_normal_p50"],
        ),
    }
    rows = [
        [name, f"{model:,.2f}", f"{real:,.2f}", f"{model / real - 1:+.0%}"]
        for name, (model, real) in pairs.items()
    ]
    return ["figure", "model", "measured", "deviation"], rows


def _under_load(measured: Mapping[str, float], local: Router) -> float:
    # Batches of another device and ten single publishes a second share the queue; a mean message of both.
    load, probes = measured["latency_load"] / BATCH_EVENTS, 10.0
    events = (load * BATCH_EVENTS + probes) / (load + probes)
    return simulate(local, load + probes, events=events).p50_s


def _bill(measured: Mapping[str, float], devices: int, fill: float) -> float:
    events = devices * PUBLISHES_PER_S * MONTH_S
    connections = dollars({"iot_minute": devices * MONTH_S / 60})
    return events / 1e6 * _usd(measured, fill) + connections


def _router(measured: Mapping[str, float], size: Mapping[str, int], window_s: float = 0.0) -> Router:
    return Router(
        servers=size["max_concurrency"],
        batch=WINDOW_MESSAGES if window_s else size["batch_size"],
        window_s=window_s,
        invocation_s=measured["router_time_invocation"] / 1e3,
        event_s=measured["router_time_event"] / 1e3,
    )


def _usd(measured: Mapping[str, float], fill: float) -> float:
    return usd_per_million(
        fill=fill,
        event_s=measured["router_time_event"] / 1e3,
        invocation_s=measured["router_time_invocation"] / 1e3,
    )


TABLES: Final[dict[str, Callable[[Mapping[str, float]], tuple[list[str], Rows]]]] = {
    "regimes": regimes,
    "fleets": fleets,
    "quotas": quotas,
    "recovery": recovery,
    "checks": checks,
}
