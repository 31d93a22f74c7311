"""Whether the device is well: does the line really move, and if not, what should somebody do.

A device without network is well, only cut off: it stores, routes at home and says so. Nothing that a restart
cannot mend is a reason for one; the watchdog (edge/health/watchdog.py) has its own, narrower rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from edge.figures import Backlog, Figures, LinkState
from edge.mailbox import LinkName
from edge.pressure import ROOM
from eventplane.contract import Priority

EXPIRES_SOON_S = 30 * 86_400.0
"""Time enough to bring a certificate to a home that is seldom online."""

LOCAL_DOWN_S = 60.0
"""A broker that restarts is back in seconds; after this long it is broken, and so is the home."""

_RAISE = "raise spool_capacity_bytes or spool_capacity_deliveries, whichever is used up"


class Health(StrEnum):
    """In one word. `degraded` is for people to look at some time, `failing` for now."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, and what to do about it."""

    name: str
    health: Health
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From which age, in seconds, an event that could be delivered makes the device unwell."""

    urgent_s: float
    normal_s: float


def judge(figures: Figures, thresholds: Thresholds, stuck: str | None = None) -> tuple[Finding, ...]:
    """All that is wrong, the gravest first; `stuck` is the watchdog's complaint."""
    found = [
        *_line(stuck),
        *_spool(figures),
        *_links(figures),
        *_ages(figures, thresholds),
        *_contract(figures),
        *_certificate(figures),
    ]
    return tuple(sorted(found, key=lambda each: each.health is not Health.FAILING))


def overall(findings: Sequence[Finding]) -> Health:
    """The worst of them."""
    if any(each.health is Health.FAILING for each in findings):
        return Health.FAILING
    return Health.DEGRADED if findings else Health.OK


def to_json(findings: Sequence[Finding], **more: object) -> str:
    """What `/healthz` answers: the verdict, the problems, and `more`."""
    problems = [asdict(each) for each in findings]
    return json.dumps({"status": overall(findings), **more, "problems": problems}, indent=1) + "\n"


def summary(figures: Figures, findings: Sequence[Finding]) -> str:
    """One line for `systemctl status`."""
    links = ", ".join(f"{each.name} {'up' if each.up else 'down'}" for each in figures.links.values())
    problem = f"; {findings[0].problem}" if findings else ""
    return f"{overall(findings)}: {links}; {figures.pending} deliveries wait{problem}"


def _line(stuck: str | None) -> Iterator[Finding]:
    if stuck:
        remedy = "restart the forwarder (systemd's watchdog does) and report this with its log"
        yield Finding("stuck", Health.FAILING, stuck, remedy)


def _spool(figures: Figures) -> Iterator[Finding]:
    if figures.pressure >= ROOM[Priority.NORMAL.rank]:
        yield Finding(
            "spool_full",
            Health.FAILING,
            f"the spool is {figures.pressure:.0%} full: only urgent events are sure of room",
            f"restore the way to the cloud, make room on the disk, or {_RAISE}",
        )
    elif figures.pressure >= ROOM[Priority.LOW.rank]:
        yield Finding(
            "spool_filling",
            Health.DEGRADED,
            f"the spool is {figures.pressure:.0%} full: events of low priority are no longer sure of room",
            f"restore the way to the cloud, or {_RAISE}",
        )


def _links(figures: Figures) -> Iterator[Finding]:
    local, cloud = figures.links[LinkName.LOCAL], figures.links[LinkName.CLOUD]
    if not local.up:
        yield Finding(
            "local_broker_down",
            Health.FAILING if local.for_s >= LOCAL_DOWN_S else Health.DEGRADED,
            f"no connection to the home's broker for {local.for_s:.0f} s",
            "see whether Mosquitto runs and takes connections at local.host and local.port, "
            "or where local.profile leads",
        )
    if local.complaint:
        problem = f"the broker's profile cannot be used, the former address stays: {local.complaint}"
        yield Finding("profile_refused", Health.DEGRADED, problem, "correct the file; no restart is needed")
    if not cloud.up:
        yield Finding(
            "cloud_down",
            Health.DEGRADED,
            f"no connection to the cloud for {cloud.for_s:.0f} s; events are kept",
            "nothing, if the home is offline; otherwise see the log for what the cloud refuses",
        )


def _ages(figures: Figures, thresholds: Thresholds) -> Iterator[Finding]:
    limits = {Priority.URGENT: thresholds.urgent_s, Priority.NORMAL: thresholds.normal_s}
    for each in figures.backlog:
        if not each.pending:
            continue
        if each.link is None:
            problem = f"{each.pending} events wait for {each.destination}, which no route leads to"
            yield Finding("no_route", Health.DEGRADED, problem, "restore the route in the contract")
        elif each.priority in limits:
            yield from _age(each, figures.links[each.link], limits[each.priority])


def _age(each: Backlog, link: LinkState, limit_s: float) -> Iterator[Finding]:
    """What waited while there was no line is not late before it had as long with one."""
    age_s = min(each.oldest_s, link.for_s if link.up else 0.0)
    if age_s >= limit_s:
        remedy = (
            "see eventplane_slowdowns_total and the log for what holds up the cloud's acknowledgements"
            if link.name is LinkName.CLOUD
            else "see whether the service runs and confirms what it gets"
        )
        problem = f"an {each.priority} event" if each.priority is Priority.URGENT else "a normal event"
        problem += f" waits for {each.destination} for {each.oldest_s:.0f} s"
        yield Finding("late", Health.FAILING, problem, remedy)


def _contract(figures: Figures) -> Iterator[Finding]:
    if figures.last_reload_refused:
        problem = f"the new contract was refused; {figures.contract_version} stays in force"
        remedy = "see the log, correct the file and send SIGHUP"
        yield Finding("contract_refused", Health.DEGRADED, problem, remedy)


def _certificate(figures: Figures) -> Iterator[Finding]:
    left_s = figures.certificate_left_s
    if left_s is not None and left_s < EXPIRES_SOON_S:
        days = f"{left_s / 86_400:.0f} days"
        problem = f"the device's certificate {'expires in ' + days if left_s > 0 else 'has expired'}"
        yield Finding(
            "certificate_expires", Health.DEGRADED, problem, "replace the files; no restart is needed"
        )
