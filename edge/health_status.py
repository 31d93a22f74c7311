"""Judge whether the device is well: what is wrong, how severe that is, and the remedy.

A device without network is degraded, not failing: it stores events and delivers them at home. The watchdog
causes a restart, so it has a narrower rule, for problems that a restart fixes:

The loop's thread feeds it between two turns, so a loop that hangs does not. It is not fed either while the
uplink is stuck: deliveries to the cloud are pending, the same connection is up, and no publish was answered,
for longer than the uplink's own timeouts. The uplink cuts a connection whose PUBACK is overdue, so a bad
network or a silent cloud changes the connection, and a cloud whose quota is used up answers: only a bug of
ours leads to a stuck uplink. A full spool refuses events, which no restart would fix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from edge.planning import ROOM
from edge.settings import HealthSettings
from eventplane.contract import Priority
from eventplane_mqtt.mailbox import LinkName

EXPIRES_SOON_S = 30 * 86_400.0
"""Time enough to bring a certificate to a home that is seldom online."""

LOCAL_DOWN_S = 60.0
"""A broker that restarts is back in seconds; after this long it is broken, and so is the home."""

DROPPED_S = 60.0
"""How long after a dropped message the device counts as flooded: a flood drops some every second."""

LOST_SESSION_REMEDY = (
    "see Mosquitto's log for a torn database, that its database is on a disk, and that "
    "persistent_client_expiration is not set"
)
_RAISE = "raise spool_capacity_bytes or spool_capacity_deliveries, whichever is used up"


class Backlog(NamedTuple):
    """The backlog of one `destination` at one `priority`; `oldest_s` is the age of the oldest, seconds.

    `link` leads there; None when no route does any more.
    """

    destination: str
    priority: Priority
    link: LinkName | None
    pending: int
    oldest_s: float


class LinkState(NamedTuple):
    """The state of the connection to a broker: whether up, for how many seconds, how often it was made.

    `complaint` is what is wrong with how the broker's address was found. Received messages that wait for the
    loop take `waiting_bytes`; `dropped` counts those that found no room, the last one `since_drop_s` seconds
    ago (None: never), `pauses` how often reading stopped.
    """

    name: LinkName
    up: bool
    for_s: float
    connects: int
    complaint: str | None = None
    waiting_bytes: int = 0
    dropped: int = 0
    since_drop_s: float | None = None
    pauses: int = 0


class DeviceStatus(NamedTuple):
    """The device at one moment: plain values, which any thread may read."""

    thing: str
    contract_version: str
    uptime_s: float
    pressure: float
    """Used share of the spool's scarcer capacity."""
    links: Mapping[LinkName, LinkState]
    backlog: tuple[Backlog, ...] = ()
    disk_failure: str | None = None
    """Why the spool in use has no disk, None for one that has."""
    contract_refused: bool = False
    """Whether the start or the last reload found a broken contract."""
    image_version: str = ""
    """The version of the contract of the device's image."""
    certificate_left_s: float | None = None
    """Until the device's certificate expires, by the wall clock; None when that is not known."""
    sessions_lost: int = 0
    """How often, since the start, the home's broker had forgotten our session."""
    cpu_s: float = 0.0
    """CPU time that the process has used, seconds."""
    is_budget_used_up: bool = False
    """Whether ordinary events wait because the day's budget of bytes is used up."""

    @property
    def pending(self) -> int:
        """Deliveries that wait for any destination."""
        return sum(each.pending for each in self.backlog)


class Health(StrEnum):
    """`degraded` needs attention at some time, `failing` at once."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILING = "failing"


class HealthFinding(NamedTuple):
    """One thing that is not as it should be, and what to do about it."""

    name: str
    health: Health
    problem: str
    remedy: str


def judge(
    status: DeviceStatus, settings: HealthSettings, stuck: str | None = None
) -> tuple[HealthFinding, ...]:
    """Return all that is wrong, the gravest first; `stuck` is the watchdog's complaint."""
    found = [
        *_spool(status),
        *_links(status),
        *_ages(status, settings),
        *_contract(status),
        *_certificate(status),
    ]
    if stuck:
        remedy = "restart the forwarder (systemd's watchdog does) and report this with its log"
        found.insert(0, HealthFinding("stuck", Health.FAILING, stuck, remedy))
    return tuple(sorted(found, key=lambda each: each.health is not Health.FAILING))


def overall(findings: Sequence[HealthFinding]) -> Health:
    """Return the worst health of the findings."""
    if any(each.health is Health.FAILING for each in findings):
        return Health.FAILING
    return Health.DEGRADED if findings else Health.OK


def to_json(findings: Sequence[HealthFinding], **more: object) -> str:
    """Return the body of `/healthz`: the health, the problems, and `more`."""
    problems = [each._asdict() for each in findings]
    return json.dumps({"status": overall(findings), **more, "problems": problems}, indent=1) + "\n"


def summary(status: DeviceStatus, findings: Sequence[HealthFinding]) -> str:
    """Return one line for `systemctl status`."""
    links = ", ".join(f"{each.name} {'up' if each.up else 'down'}" for each in status.links.values())
    problem = f"; {findings[0].problem}" if findings else ""
    return f"{overall(findings)}: {links}; {status.pending} deliveries pending{problem}"


def _spool(status: DeviceStatus) -> Iterator[HealthFinding]:
    if status.disk_failure is not None:
        yield HealthFinding(
            "no_disk",
            Health.FAILING,
            f"no disk, nothing is stored: {status.disk_failure}; urgent events go from memory, "
            "all others stay with their senders",
            "make the spool's directory writable or replace the disk; the forwarder tries it again by itself",
        )
    elif status.pressure >= ROOM[Priority.NORMAL.rank]:
        yield HealthFinding(
            "spool_full",
            Health.FAILING,
            f"the spool is {status.pressure:.0%} full: only urgent events are sure of room",
            f"restore the connection to the cloud, make room on the disk, or {_RAISE}",
        )
    elif status.pressure >= ROOM[Priority.LOW.rank]:
        yield HealthFinding(
            "spool_filling",
            Health.DEGRADED,
            f"the spool is {status.pressure:.0%} full: events of low priority are no longer sure of room",
            f"restore the connection to the cloud, or {_RAISE}",
        )


def _links(status: DeviceStatus) -> Iterator[HealthFinding]:
    local, cloud = status.links[LinkName.LOCAL], status.links[LinkName.CLOUD]
    urgent = status.links[LinkName.URGENT]
    if not local.up:
        yield HealthFinding(
            "local_broker_down",
            Health.FAILING if local.for_s >= LOCAL_DOWN_S else Health.DEGRADED,
            f"no connection to the home's broker for {local.for_s:.0f} s",
            "see whether Mosquitto runs and accepts connections at local.host and local.port, "
            "or where local.profile leads",
        )
    elif not urgent.up:
        yield HealthFinding(
            "urgent_session_down",
            Health.FAILING if urgent.for_s >= LOCAL_DOWN_S else Health.DEGRADED,
            f"no session of urgent outboxes at the home's broker for {urgent.for_s:.0f} s: "
            "an alarm waits behind other messages",
            "see the log for what the broker refuses; it must know the user name of local.username with "
            "-urgent behind it, with the same password (docs/reference/device.md)",
        )
    if status.sessions_lost:
        problem = f"the home's broker has forgotten our session {status.sessions_lost} times since the start"
        lost = f"{problem}, with an unknown number of messages"
        yield HealthFinding("session_lost", Health.DEGRADED, lost, LOST_SESSION_REMEDY)
    if local.complaint:
        problem = f"the broker's profile cannot be used, the former address stays: {local.complaint}"
        yield HealthFinding(
            "profile_refused", Health.DEGRADED, problem, "correct the file; no restart is needed"
        )
    for each in status.links.values():
        if each.since_drop_s is not None and each.since_drop_s < DROPPED_S:
            yield HealthFinding(
                "flooded",
                Health.DEGRADED,
                f"the {each.name} session brings more than is stored in time: {each.dropped} messages were "
                "dropped since the start",
                "find the sender of so many messages; a service that needs them all sends at QoS 1",
            )
    if not cloud.up:
        yield HealthFinding(
            "cloud_down",
            Health.DEGRADED,
            f"no connection to the cloud for {cloud.for_s:.0f} s; events are kept",
            "nothing, if the home is offline; otherwise see the log for what the cloud refuses",
        )
    if status.is_budget_used_up:
        yield HealthFinding(
            "data_budget_used_up",
            Health.DEGRADED,
            "the day's budget of bytes is used up: only urgent events go to the cloud, others wait",
            "nothing, if that is intended; otherwise raise cloud.bytes_per_day, or send less",
        )


def _ages(status: DeviceStatus, settings: HealthSettings) -> Iterator[HealthFinding]:
    limits = {Priority.URGENT: settings.urgent_age_s, Priority.NORMAL: settings.normal_age_s}
    waits = (LinkName.CLOUD, Priority.NORMAL) if status.is_budget_used_up else None
    for each in status.backlog:
        if not each.pending:
            continue
        if each.link is None:
            problem = f"{each.pending} events wait for {each.destination}, which no route leads to"
            yield HealthFinding("no_route", Health.DEGRADED, problem, "restore the route in the contract")
        elif each.priority in limits and (each.link, each.priority) != waits:
            yield from _age(each, status.links[each.link], limits[each.priority])


def _age(each: Backlog, link: LinkState, limit_s: float) -> Iterator[HealthFinding]:
    """Find an event that is late; the time without a connection does not count."""
    age_s = min(each.oldest_s, link.for_s if link.up else 0.0)
    if age_s >= limit_s:
        remedy = (
            "see eventplane_slowdowns_total and the log for what delays the cloud's acknowledgements"
            if link.name is LinkName.CLOUD
            else "see whether the service runs and confirms what it gets"
        )
        problem = f"an {each.priority} event" if each.priority is Priority.URGENT else "a normal event"
        problem += f" waits for {each.destination} for {each.oldest_s:.0f} s"
        yield HealthFinding("late", Health.FAILING, problem, remedy)


def _contract(status: DeviceStatus) -> Iterator[HealthFinding]:
    if status.contract_refused:
        problem = f"the new contract was refused; {status.contract_version} stays active"
        remedy = "see the log, correct the file and send SIGHUP"
        yield HealthFinding("contract_refused", Health.DEGRADED, problem, remedy)


def _certificate(status: DeviceStatus) -> Iterator[HealthFinding]:
    left_s = status.certificate_left_s
    if left_s is not None and left_s < EXPIRES_SOON_S:
        days = f"{left_s / 86_400:.0f} days"
        problem = f"the device's certificate {'expires in ' + days if left_s > 0 else 'has expired'}"
        yield HealthFinding(
            "certificate_expires", Health.DEGRADED, problem, "replace the files; no restart is needed"
        )


class Progress(NamedTuple):
    """The values that the watchdog compares: the cloud's connection (0: none), its answers to publishes, what
    waits.

    `left` counts the bytes of the oldest publish that have left: a large one takes long over a slow line.
    """

    connection: int
    answered: int
    waiting: int
    left: int = 0


class Watchdog:
    """Fed every `interval_s` monotonic seconds; None: the service manager has no watchdog."""

    def __init__(self, interval_s: float | None, now: float) -> None:
        self._interval_s = interval_s
        self._next = now
        self._last = Progress(0, 0, 0)
        self._still_since = now

    def deadline(self) -> float | None:
        """Return when it is due to be fed, None for never."""
        return None if self._interval_s is None else self._next

    def is_due(self, now: float) -> bool:
        """Return True once an interval."""
        if self._interval_s is None or now < self._next:
            return False
        self._next = now + self._interval_s
        return True

    def complaint(self, seen: Progress, now: float, patience_s: float) -> str | None:
        """Return why it must not be fed, None when the uplink makes progress or has nothing to send."""
        moved = seen._replace(waiting=0) != self._last._replace(waiting=0)
        if moved or not seen.connection or not seen.waiting or not self._last.waiting:
            self._still_since = now
        self._last = seen
        still_s = now - self._still_since
        if still_s < patience_s:
            return None
        return (
            f"{seen.waiting} deliveries wait and the connected cloud answered no publish for {still_s:.0f} s"
        )
