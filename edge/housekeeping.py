"""Work between two turns of the loop: the device's status, the watchdog, reloads of the contract.

The loop takes its messages from here. So this runs on the loop's thread, may read all that the loop owns, and
notices when the loop hangs. Only the service manager's watchdog wakes an idle loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from edge.contract_updates import Adopted
from edge.durable import can_load
from edge.errors import SettingProblem, SpoolError
from edge.forwarder import Forwarder, Message, Reload, Stop
from edge.health_status import (
    Backlog,
    DeviceStatus,
    HealthFinding,
    LinkState,
    Progress,
    Watchdog,
    judge,
    summary,
)
from edge.system import Host
from edge.systemd import ServiceManager
from edge.uplink import BatchingDelays
from eventplane.contract import Place, Priority
from eventplane_mqtt.mailbox import LinkName, Mailbox
from eventplane_mqtt.reconnection import Link

if TYPE_CHECKING:
    from edge.metrics import Families

_log = logging.getLogger(__name__)

STUCK_PUBACKS = 3
"""After so many PUBACK timeouts without progress the uplink counts as stuck."""

STUCK_AT_LEAST_S = 60.0
"""But not earlier, seconds: a slow pace may leave tens of seconds between two publishes."""


class Hangup:
    """SIGHUP, or a contract that came down: read the contract again."""


class SnapshotWanted:
    """The health endpoint asks for a snapshot."""


class Snapshot(NamedTuple):
    """The device at one moment, what is wrong with it, and its metrics."""

    status: DeviceStatus
    findings: tuple[HealthFinding, ...]
    families: Families


class Snapshots:
    """Snapshots for other threads, made by the loop's thread, which owns the spool.

    `wake_loop` wakes the loop, which then calls `answer`.
    """

    def __init__(self, wake_loop: Callable[[], None]) -> None:
        self._wake_loop = wake_loop
        self._asked: SimpleQueue[SimpleQueue[Snapshot]] = SimpleQueue()

    def ask(self, timeout_s: float) -> Snapshot | None:
        """Return a fresh snapshot; None when the loop made none within `timeout_s` seconds."""
        reply: SimpleQueue[Snapshot] = SimpleQueue()
        self._asked.put(reply)
        self._wake_loop()
        try:
            return reply.get(timeout=timeout_s)
        except Empty:
            return None

    def answer(self, make: Callable[[], Snapshot]) -> None:
        """Make one snapshot for all that have asked, if any did."""
        if self._asked.empty():
            return
        snapshot = make()
        while not self._asked.empty():
            self._asked.get().put(snapshot)


Posted = Message | Hangup | SnapshotWanted


@dataclass(slots=True)
class _Seen:
    """A link as it was at the last look: the generation that was `standing` (0: none) `since`, its drops."""

    since: float
    standing: int = 0
    dropped: int = 0
    dropped_at: float | None = None


class StatusReader:
    """Reads the state of `forwarder`, by the loop's thread only."""

    def __init__(self, forwarder: Forwarder, system: Host) -> None:
        self.forwarder = forwarder
        self._started = started = system.monotonic()
        self._seen = {name: _Seen(started) for name in forwarder.links}
        self._identity = forwarder.settings.cloud.identity
        self._system = system
        self._has_disk = True

    def look(self, now: float) -> bool:
        """Return whether a link, or whether there is a disk, changed since the last look; it costs nothing.

        Times are seconds of the monotonic clock.
        """
        had_disk, self._has_disk = self._has_disk, self.forwarder.disk.failure is None
        has_changed = had_disk != self._has_disk
        for name, link in self.forwarder.links.items():
            seen, standing = self._seen[name], link.generation if link.up else 0
            if link.share and link.share.dropped != seen.dropped:
                seen.dropped, seen.dropped_at = link.share.dropped, now
            if standing != seen.standing:
                seen.standing, seen.since, has_changed = standing, now, True
        return has_changed

    def progress(self) -> Progress:
        """Return what the watchdog compares."""
        uplink, budget = self.forwarder.contract.device.outbox.address, self.forwarder.uplink.budget
        going = (Priority.URGENT,) if budget and budget.is_used_up else Priority
        waiting = sum(self.forwarder.spool.pending(uplink, each.rank) for each in going)
        answered, left = self.forwarder.counts.answered, self.forwarder.uplink.publisher.moving[0]
        return Progress(self._seen[LinkName.CLOUD].standing, answered, waiting, left)

    def status(self, now: float) -> DeviceStatus:
        """Return the device's status now, monotonic seconds."""
        forwarder = self.forwarder
        failure, budget = forwarder.disk.failure, forwarder.uplink.budget
        return DeviceStatus(
            thing=forwarder.settings.thing,
            contract_version=forwarder.contract.version,
            uptime_s=now - self._started,
            pressure=forwarder.spool.space.pressure,
            links={name: self._link_state(link, now) for name, link in forwarder.links.items()},
            backlog=tuple(self._backlog()),
            disk_failure=None if failure is None else failure.problem,
            contract_refused=forwarder.counts.contract_refused,
            image_version=forwarder.image.version,
            certificate_left_s=self._certificate_left_s(),
            sessions_lost=forwarder.counts.sessions_lost,
            cpu_s=self._system.cpu_time(),
            is_budget_used_up=budget is not None and budget.is_used_up,
        )

    def heartbeat(self, now: float) -> dict[str, float | str]:
        """Return what the device reports to the cloud about its health: flat, and small in a batch."""
        if not can_load("edge.metrics"):
            return {}
        from edge.metrics import Reading, heartbeat

        return heartbeat(Reading(self.status(now), (), self.forwarder))

    def _certificate_left_s(self) -> float | None:
        if self._identity is None:
            return None
        from eventplane_mqtt.tls import seconds_left  # which only a connection with TLS needs

        return seconds_left(self._identity.certificate, self._system.now())

    def _link_state(self, link: Link, now: float) -> LinkState:
        seen, share = self._seen[link.name], link.share
        return LinkState(
            link.name,
            bool(seen.standing),
            now - seen.since,
            link.connects,
            link.complaint,
            waiting_bytes=share.waiting_bytes if share else 0,
            dropped=share.dropped if share else 0,
            since_drop_s=None if seen.dropped_at is None else now - seen.dropped_at,
            pauses=share.pauses if share else 0,
        )

    def _backlog(self) -> Iterator[Backlog]:
        contract, spool = self.forwarder.contract, self.forwarder.spool
        links = {route.destination: LinkName.LOCAL for route in contract.routes_at(Place.DEVICE)}
        links[contract.device.outbox.address] = LinkName.CLOUD
        for destination, priority in product(dict.fromkeys([*links, *spool.destinations()]), Priority):
            pending, stored_ms = spool.pending(destination, priority.rank), None
            # Metrics must not end the loop: its next turn finds the damage and deals with it.
            with suppress(SpoolError):
                stored_ms = spool.oldest_stored_ms(destination, priority.rank)
            oldest_s = 0.0 if stored_ms is None else max(0.0, (spool.clock() - stored_ms) / 1000)
            yield Backlog(destination, priority, links.get(destination), pending, oldest_s)


class Housekeeping:
    """Waits for messages for the loop; `snapshots` is for other threads.

    `read_contract` returns the contract to use after SIGHUP or a contract from the cloud.
    """

    def __init__(
        self,
        mailbox: Mailbox[Posted],
        status: StatusReader,
        manager: ServiceManager,
        read_contract: Callable[[], Adopted | SettingProblem],
        now: Callable[[], float],
    ) -> None:
        self.snapshots = Snapshots(lambda: mailbox.put(SnapshotWanted()))
        self._mailbox = mailbox
        self._state = status
        self._forwarder = status.forwarder
        self._manager = manager
        self._read_contract = read_contract
        self._now = now
        # Twice within what the manager grants, as sd_watchdog_enabled(3) advises.
        self._watchdog = Watchdog(manager.watchdog_s / 2 if manager.watchdog_s else None, now())
        self._in_service = False
        self._stopping = False
        self._complaint: str | None = None

    def wait(self, timeout_s: float | None, linger_s: float = 0.0) -> Sequence[Message]:
        """Return the messages so far, after at most `timeout_s` seconds (None: no limit).

        With `linger_s` it waits up to so many seconds for more messages that are not urgent.
        """
        self._between_turns(self._now())
        messages = self._mailbox.wait(self._timeout_s(timeout_s), linger_s)
        self.snapshots.answer(lambda: self._snapshot(self._now()))
        return [each for each in map(self._take, messages) if each is not None]

    def _between_turns(self, now: float) -> None:
        changed = self._state.look(now)
        if self._stopping:
            return  # links that go down now are no news, and the end is bounded in time
        if not self._in_service:
            self._in_service = True
            self._manager.ready(self._status(now))
        elif self._watchdog.is_due(now):
            self._feed(now)
        elif changed:
            self._manager.status(self._status(now))

    def _feed(self, now: float) -> None:
        status = self._status(now)
        if self._complaint is None:
            self._manager.alive(status)
        else:
            _log.error("the watchdog is not fed: %s", self._complaint)
            self._manager.status(status)

    def _timeout_s(self, timeout_s: float | None) -> float | None:
        due = self._watchdog.deadline()
        if due is None:
            return timeout_s
        left_s = max(0.0, due - self._now())
        return left_s if timeout_s is None else min(timeout_s, left_s)

    def _take(self, message: Posted) -> Message | None:
        match message:
            case SnapshotWanted():
                return None
            case Hangup():
                return self._reload()
            case Stop():
                self._stopping = True
                self._manager.stopping()
        return message

    def _reload(self) -> Reload | None:
        """Return the new contract; a broken one is refused, and the old one stays active."""
        self._manager.reloading()
        self._in_service = False  # until the turn that applies it is over
        version, counts = self._forwarder.contract.version, self._forwarder.counts
        found = self._read_contract()
        if isinstance(found, SettingProblem):
            _log.error("contract %s stays active, the new one is refused: %s", version, found)
            counts.refused_contract()
            return None
        _log.info("contract %s follows %s", found.contract.version, version)
        counts.reloaded()
        if found.refused:
            counts.refused_contract()
        return Reload(found.contract, found.image)

    def _snapshot(self, now: float) -> Snapshot:
        from edge.metrics import Reading, read_all

        status, findings = self._judged(now)
        return Snapshot(status, findings, read_all(Reading(status, findings, self._forwarder)))

    def _judged(self, now: float) -> tuple[DeviceStatus, tuple[HealthFinding, ...]]:
        self._complaint = self._watchdog.complaint(self._state.progress(), now, self._stuck_after_s())
        status = self._state.status(now)
        return status, judge(status, self._forwarder.settings.health, self._complaint)

    def _status(self, now: float) -> str:
        return summary(*self._judged(now))

    def _stuck_after_s(self) -> float:
        cloud = self._forwarder.settings.cloud
        batching_s = BatchingDelays(self._forwarder.contract, cloud.longest_delay_ms).longest_s
        return max(STUCK_AT_LEAST_S, STUCK_PUBACKS * cloud.puback_timeout_s) + batching_s
