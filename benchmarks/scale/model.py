"""What fleets mean: publishes, routers, delays, money, by the figures that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.cost.prices import dollars
from benchmarks.results import Figure
from benchmarks.scale.bill import usd_per_million
from benchmarks.scale.parameters import EVENTS_PER_S, LOCAL, PRODUCTION, QUOTAS, REPORTS_PER_S
from benchmarks.scale.queue import Found, Router, simulate

FLEETS: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Devices."""

OUTAGES: Final = (1, 24)
"""Hours."""

MONTH_S: Final = 30 * 24 * 3600

PUBLISHES_PER_S: Final = EVENTS_PER_S + REPORTS_PER_S
"""Of one device."""

BATCH_EVENTS: Final = 250
WINDOW_S: Final = 5.0
WINDOW_MESSAGES: Final = 100
"""What the router could do for all that is not urgent: no setting has it yet."""

Measured = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many devices in the trickle: an event a minute each, and its own reports.

    `usd`, and `usd_in_windows` of `WINDOW_S`, are a month's.
    """

    publishes_per_s: float
    routers: Found
    usd: float
    usd_in_windows: float


def fleet(measured: Measured, devices: int) -> Fleet:
    """Simulate the routers of so many `devices`, and price what they do."""
    rate = devices * PUBLISHES_PER_S
    routers = simulate(_router(measured, PRODUCTION), rate)
    windows = simulate(_router(measured, PRODUCTION, window_s=WINDOW_S), rate)
    usd, usd_in_windows = (_bill(measured, devices, each.fill) for each in (routers, windows))
    return Fleet(rate, routers, usd, usd_in_windows)


@dataclass(frozen=True, slots=True)
class Recovery:
    """A million devices come back at once, each with `events` in so many `publishes`."""

    events: float
    publishes: float
    connected_s: float
    routed_s: float

    @property
    def events_per_s(self) -> float:
        """What the routers take until all is routed."""
        return FLEETS[-1] * self.events / self.routed_s


def recovery(measured: Measured, hours: float) -> Recovery:
    """The largest fleet after an outage of so many `hours`, as fast as IoT Core lets devices connect."""
    router = _router(measured, PRODUCTION)
    connected_s = FLEETS[-1] / QUOTAS["iot_connects_per_s"]["limit"]
    waiting = hours * 3600 * PUBLISHES_PER_S
    publishes = -(-waiting // BATCH_EVENTS)
    work_s = publishes / router.batch * router.invocation_s + waiting * router.event_s
    return Recovery(waiting, publishes, connected_s, max(connected_s, FLEETS[-1] * work_s / router.servers))


def needs(measured: Measured) -> dict[str, float]:
    """What the largest fleet needs of each quota, most of its default first."""
    whole = fleet(measured, FLEETS[-1])
    needed: dict[str, float] = {
        "iot_connections": FLEETS[-1],
        "iot_subscriptions": FLEETS[-1],
        "iot_publishes_per_s": whole.publishes_per_s,
        "lambda_concurrency": whole.routers.busy,
        "mapping_concurrency": whole.routers.busy,
        "sqs_in_flight": whole.routers.busy * whole.routers.fill,
        "s3_puts_per_s": whole.publishes_per_s / whole.routers.fill,
        "dynamodb_reads_per_s": PRODUCTION["max_concurrency"] / PRODUCTION["contract_refresh_s"],
    }
    return dict(sorted(needed.items(), key=lambda each: -each[1] / QUOTAS[each[0]]["limit"]))


def checks(measured: Measured) -> dict[str, tuple[float, float]]:
    """What the model says of the runs that were measured, and what was measured."""
    local = _router(measured, LOCAL)
    alone = local.invocation_s + local.event_s
    trickle = simulate(local, 20)
    return {
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


def figures(measured: Measured) -> list[Figure]:
    """What the page of figures has of it."""
    found = []
    for devices in FLEETS:
        each = fleet(measured, devices)
        found += [
            Figure(f"{devices}_devices", each.usd, "USD/month", note="an event a minute a device, trickle"),
            Figure(f"{devices}_devices_in_windows", each.usd_in_windows, "USD/month"),
            Figure(f"{devices}_devices_routers", each.routers.busy, "busy"),
            Figure(f"{devices}_devices_delay_p99", 1e3 * each.routers.p99_s, "ms"),
        ]
    found += [
        Figure(f"quota_{name}", need / QUOTAS[name]["limit"], "of the default", note=QUOTAS[name]["of"])
        for name, need in needs(measured).items()
    ]
    found += [
        Figure(f"recovery_after_{hours}_h", recovery(measured, hours).routed_s / 60, "min")
        for hours in OUTAGES
    ]
    found += [
        Figure(f"check: {name}", model, "modelled", note=f"measured: {real:.4g}")
        for name, (model, real) in checks(measured).items()
    ]
    return found


def _under_load(measured: Measured, local: Router) -> float:
    # Batches of another device and ten single publishes a second share the queue; a mean message of both.
    load, probes = measured["latency_load"] / BATCH_EVENTS, 10.0
    events = (load * BATCH_EVENTS + probes) / (load + probes)
    return simulate(local, load + probes, events=events).p50_s


def _bill(measured: Measured, devices: int, fill: float) -> float:
    events = devices * PUBLISHES_PER_S * MONTH_S
    connections = dollars({"iot_minute": devices * MONTH_S / 60})
    return events / 1e6 * _usd(measured, fill) + connections


def _router(measured: Measured, size: Mapping[str, int], window_s: float = 0.0) -> Router:
    return Router(
        servers=size["max_concurrency"],
        batch=WINDOW_MESSAGES if window_s else size["batch_size"],
        window_s=window_s,
        invocation_s=measured["router_time_invocation"] / 1e3,
        event_s=measured["router_time_event"] / 1e3,
    )


def _usd(measured: Measured, fill: float) -> float:
    return usd_per_million(
        fill=fill,
        event_s=measured["router_time_event"] / 1e3,
        invocation_s=measured["router_time_invocation"] / 1e3,
    )
