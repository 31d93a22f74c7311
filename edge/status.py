"""Read the state of the device: its links, what is pending, and whether the uplink makes progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edge.errors import SpoolError
from edge.forwarder import Forwarder
from edge.health_status import Backlog, LinkState, Progress, Status
from edge.system import System
from eventplane.contract import Place, Priority
from eventplane_mqtt.link import Link
from eventplane_mqtt.mailbox import LinkName

if TYPE_CHECKING:
    from edge.certificate import CertificateFile


class LinkWatch:
    """Since when a link is as it is; `look` costs nothing and is called between turns."""

    def __init__(self, link: Link, now: float) -> None:
        self._link = link
        self._standing = 0
        self._since = now
        self._dropped = 0
        self._dropped_at: float | None = None

    @property
    def standing(self) -> int:
        """The generation of the connection that is up, 0 for none."""
        return self._standing

    def look(self, now: float) -> bool:
        """Return whether the link changed since the last look. Seconds of the monotonic clock."""
        share = self._link.share
        if share and share.dropped != self._dropped:
            self._dropped, self._dropped_at = share.dropped, now
        standing = self._link.generation if self._link.up else 0
        if standing == self._standing:
            return False
        self._standing, self._since = standing, now
        return True

    def state(self, now: float) -> LinkState:
        """Return the state of the link now."""
        link, share = self._link, self._link.share
        return LinkState(
            link.name,
            bool(self._standing),
            now - self._since,
            link.connects,
            link.complaint,
            waiting_bytes=share.waiting_bytes if share else 0,
            dropped=share.dropped if share else 0,
            since_drop_s=None if self._dropped_at is None else now - self._dropped_at,
            pauses=share.pauses if share else 0,
        )


class StatusReader:
    """Reads the state of `forwarder`, by the loop's thread only."""

    def __init__(self, forwarder: Forwarder, certificate: CertificateFile | None, system: System) -> None:
        self.forwarder = forwarder
        started = system.monotonic()
        self._links = {name: LinkWatch(each, started) for name, each in forwarder.links.items()}
        self._certificate = certificate
        self._cpu_time = system.cpu_time
        self._started = started
        self._has_disk = True

    def look(self, now: float) -> bool:
        """Return whether a link, or whether there is a disk, changed since the last look."""
        changed = [each.look(now) for each in self._links.values()]
        had_disk, self._has_disk = self._has_disk, self.forwarder.disk_failure is None
        return any(changed) or had_disk != self._has_disk

    def progress(self) -> Progress:
        """Return what the watchdog compares."""
        uplink, budget = self.forwarder.contract.device.outbox.address, self.forwarder.uplink.budget
        going = (Priority.URGENT,) if budget and budget.is_used_up else Priority
        waiting = sum(self.forwarder.spool.pending(uplink, each.rank) for each in going)
        answered, left = self.forwarder.counts.answered, self.forwarder.uplink.left_bytes
        return Progress(self._links[LinkName.CLOUD].standing, answered, waiting, left)

    def status(self, now: float) -> Status:
        """Return the device's status now, monotonic seconds."""
        forwarder = self.forwarder
        failure, budget = forwarder.disk_failure, forwarder.uplink.budget
        return Status(
            thing=forwarder.thing,
            contract_version=forwarder.contract.version,
            uptime_s=now - self._started,
            pressure=forwarder.spool.pressure,
            links={name: each.state(now) for name, each in self._links.items()},
            backlog=tuple(self._backlog()),
            disk_failure=None if failure is None else failure.problem,
            contract_refused=forwarder.counts.contract_refused,
            image_version=forwarder.image.version,
            certificate_left_s=self._certificate.left_s() if self._certificate else None,
            sessions_lost=forwarder.counts.sessions_lost,
            cpu_s=self._cpu_time(),
            is_budget_used_up=budget is not None and budget.is_used_up,
        )

    def heartbeat(self, now: float) -> dict[str, float | str]:
        """Return what the device reports to the cloud about its health: flat, and small in a batch."""
        from edge.metrics import Reading, heartbeat

        return heartbeat(Reading(self.status(now), (), self.forwarder))

    def _backlog(self) -> Iterator[Backlog]:
        contract = self.forwarder.contract
        links = {route.destination: LinkName.LOCAL for route in contract.routes_at(Place.DEVICE)}
        links[contract.device.outbox.address] = LinkName.CLOUD
        for destination in dict.fromkeys([*links, *self.forwarder.spool.destinations()]):
            for priority in Priority:
                yield self._pending(destination, priority, links.get(destination))

    def _pending(self, destination: str, priority: Priority, link: LinkName | None) -> Backlog:
        spool = self.forwarder.spool
        pending = spool.pending(destination, priority.rank)
        try:
            stored_ms = spool.oldest_stored_ms(destination, priority.rank)
        except SpoolError:
            # Metrics must not end the loop: its next turn finds the damage and deals with it.
            stored_ms = None
        oldest_s = 0.0 if stored_ms is None else max(0.0, (spool.clock() - stored_ms) / 1000)
        return Backlog(destination, priority, link, pending, oldest_s)
