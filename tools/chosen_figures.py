"""The few figures of the README, out of docs/figures.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tools.places import place

_CHOSEN: Final = (
    (
        "chaos/paper",
        "forwarder and router killed every 10 s, the source paper's test",
        "{sent:,.0f} events, {lost:,.0f} lost, "
        "{duplicated:,.0f} [received twice](docs/explanation/chaos.md#copies)",
    ),
    (
        "chaos/paper-best-effort",
        "the same at best effort",
        "{sent:,.0f} events, {lost:,.0f} lost",
    ),
    (
        "chaos/million",
        "two faults at a time, of every kind",
        "{sent:,.0f} events, {lost:,.0f} lost, {given_up:,.0f} given up on a full disk, and reported",
    ),
    (
        "chaos/together",
        "all faults at once, again and again",
        "{faults:,.0f} faults, {sent:,.0f} events, {lost:,.0f} lost; an alarm took at most "
        "{urgent_home_all_max:,.0f} ms to the call in the home, {urgent_cloud_all_max:,.0f} ms "
        "to the alarm centre",
    ),
    (
        "chaos/soak",
        "an alarm's time (median, 99th percentile, most), a fault at a time for ten minutes",
        "to the call in the home {urgent_home_all_p50:,.1f}, {urgent_home_all_p99:,.0f}, "
        "{urgent_home_all_max:,.0f} ms; to the alarm centre {urgent_cloud_all_p50:,.1f}, "
        "{urgent_cloud_all_p99:,.0f}, {urgent_cloud_all_max:,.0f} ms",
    ),
    (
        "chaos/million",
        "the same under two faults at a time, at 3,000 events a second, about what the machine carries",
        "to the call in the home {urgent_home_all_p50:,.0f}, {urgent_home_all_p99:,.0f}, "
        "{urgent_home_all_max:,.0f} ms; to the alarm centre {urgent_cloud_all_p50:,.0f}, "
        "{urgent_cloud_all_p99:,.0f}, {urgent_cloud_all_max:,.0f} ms",
    ),
    (
        "chaos/cloud-faults",
        "services of AWS that stall, throttle or fail while alarms are sent",
        "{sent:,.0f} events, {lost:,.0f} lost; an alarm to the alarm centre {urgent_cloud_all_p50:,.0f}, "
        "{urgent_cloud_all_p99:,.0f}, {urgent_cloud_all_max:,.0f} ms",
    ),
    (
        "chaos/attack",
        "attacks on the deployed plane with real credentials",
        "{tried:,.0f} attacks, {refused:,.0f} refused, {reported:,.0f} reported with the true sender",
    ),
    (
        "bench/crash",
        "power cuts under the spool",
        "{power cuts:,.0f} cuts, {cuts that lost or revived an event:,.0f} lost or resurrected an event",
    ),
    (
        "bench/crash",
        "random damages of the spool's files",
        "{random damages:,.0f} damages, {damages with a silent loss:,.0f} lost an event without a report, "
        "{damages with an invented event:,.0f} invented one",
    ),
    (
        "bench/audit_proof",
        "faults planted in an archive, found by the audit",
        "{events:,.0f} events; {lost_router_recall:.0%} of the losses at routers found, "
        "{lost_router_precision:.0%} of those it reports are true",
    ),
    (
        "bench/edge",
        "the forwarder (Mosquitto's bridge): memory when idle, a backlog over TLS, an urgent event's median "
        "latency, CPU for 1,000 events at 500 a second",
        "{rss_idle:.1f} MiB; {drain_unthrottled:,.0f} events/s ({drain_unthrottled_peer:,.0f}); "
        "{latency_p50_at_100_per_s:.1f} ms, on the disk ({latency_p50_at_100_per_s_peer:.1f} ms); "
        "{cpu_at_500_per_s:.0f} ms ({cpu_at_500_per_s_peer:.0f} ms)",
    ),
    (
        "bench/edge",
        "10,000 messages a second at QoS 0 from one service: another service's alarm, SIGTERM, memory",
        "{flood_alarm_p99:.2f} s to the cloud at the 99th percentile; ended after {flood_stop:.1f} s; "
        "{flood_rss_peak:.0f} MiB at most",
    ),
    (
        "bench/router",
        "events read and routed by 1,000 routes, one core",
        "{parse_and_route_1000:,.0f} a second",
    ),
    (
        "bench/cost",
        "cost of a million events of 512 B to two inboxes at list prices (over EventBridge)",
        "full batches ${bulk_total:.2f} (${bulk_total_peer:.2f}); a trickle, 3 events a publish "
        "${trickle_total:.2f} (${trickle_total_peer:.2f}), 1 a publish ${trickle_single_total:.2f} "
        "(${trickle_single_total_peer:.2f}); alarms alone ${alarm_total:.2f} (${alarm_total_peer:.2f})",
    ),
)
"""A result, what it is about, and the text of its figures (`NAME_peer`: the peer's).

A row is left out while one of them is missing."""


def rows(results: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield each test, its result, where it ran, and the command that repeats it."""
    for name, about, told in _CHOSEN:
        if result := results.get(name):
            values = {each["name"]: each["value"] for each in result["figures"]}
            values |= {f"{each['name']}_peer": each.get("peer_value") for each in result["figures"]}
            try:
                yield [about, told.format_map(values), place(name), f"`{result['command']}`"]
            except KeyError:
                continue
