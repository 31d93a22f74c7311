"""The few figures that the README tells, out of docs/figures.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_CHOSEN: Final = (
    (
        "chaos/paper",
        "forwarder and router killed every 10 s, as in the source paper's test, "
        "the last of [three runs](docs/chaos.md#copies)",
        "{sent:,.0f} events, {lost:,.0f} lost, {duplicated:,.0f} came again",
    ),
    (
        "chaos/paper-best-effort",
        "the same over a channel that promises nothing",
        "{sent:,.0f} events, {lost:,.0f} lost",
    ),
    ("chaos/million", "two faults at a time, of every kind", "{sent:,.0f} events, {lost:,.0f} lost"),
    (
        "chaos/together",
        "all faults at once, again and again",
        "{faults:,.0f} faults, {sent:,.0f} events, {lost:,.0f} lost",
    ),
    (
        "chaos/soak",
        "an alarm, median, in a home where single faults strike for ten minutes",
        "{urgent_home_all_p50:.1f} ms to the call in the home, {urgent_cloud_all_p50:.1f} ms to the alarm "
        "centre; of those sent during a fault {urgent_home_faults_p50:.1f} and "
        "{urgent_cloud_faults_p50:,.0f} ms",
    ),
    (
        "chaos/attack",
        "attacks on the deployed plane with real credentials",
        "{tried:,.0f} tried, {refused:,.0f} refused, {reported:,.0f} reported with the true sender",
    ),
    (
        "bench/crash",
        "power cuts under the spool",
        "{power cuts:,.0f} cuts, {cuts that lost or revived an event:,.0f} lost or revived an event",
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
        "{events:,.0f} events; of what was lost at the routers {lost_router_recall:.0%} found, "
        "{lost_router_precision:.0%} of it true",
    ),
    (
        "bench/edge",
        "the forwarder: its process at rest, a backlog over TLS, an urgent event at 100 a second",
        "{rss_idle:.1f} MiB; {drain_unthrottled:,.0f} events/s; {latency_p50_at_100_per_s:.1f} ms median",
    ),
    (
        "bench/edge",
        "10,000 messages a second at QoS 0 from one service: another one's alarm, SIGTERM, memory",
        "{flood_alarm_p99:.2f} s to the cloud at the 99th percentile; ended after {flood_stop:.1f} s; "
        "{flood_rss_peak:.0f} MiB at most",
    ),
    (
        "bench/router",
        "events read and routed by 1,000 routes, one core",
        "{parse_and_route_1000:,.0f} a second",
    ),
)
"""A result, what it is about, and what is told of its figures; left out while one is missing."""


def rows(results: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """What was tried, what was seen, and the command that repeats it."""
    for name, about, told in _CHOSEN:
        if result := results.get(name):
            values = {each["name"]: each["value"] for each in result["figures"]}
            try:
                yield [about, told.format_map(values), f"`{result['command']}`"]
            except KeyError:
                continue
