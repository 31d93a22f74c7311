"""Read the state of the device: its links, what is pending, and whether the uplink makes progress."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Seen:
    """A link as it was at the last look: the generation that was `standing` (0: none) `since`, its drops."""

    since: float
    standing: int = 0
    dropped: int = 0
    dropped_at: float | None = None


class StatusReader:
    """Reads the state of `forwarder`, by the loop's thread only."""

    def __init__(self, forwarder: Forwarder, certificate: CertificateFile | None, system: System) -> None:
        self.forwarder = forwarder
        self._started = started = system.monotonic()
        self._seen = {name: _Seen(started) for name in forwarder.links}
        self._certificate = certificate
        self._cpu_time = system.cpu_time
        self._has_disk = True

    def look(self, now: float) -> bool:
        """Return whether a link, or whether there is a disk, changed since the last look; it costs nothing.

        Times are seconds of the monotonic clock.
        """
        had_disk, self._has_disk = self._has_disk, self.forwarder.disk_failure is None
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
        answered, left = self.forwarder.counts.answered, self.forwarder.uplink.left_bytes
        return Progress(self._seen[LinkName.CLOUD].standing, answered, waiting, left)

    def status(self, now: float) -> Status:
        """Return the device's status now, monotonic seconds."""
        forwarder = self.forwarder
        failure, budget = forwarder.disk_failure, forwarder.uplink.budget
        return Status(
            thing=forwarder.thing,
            contract_version=forwarder.contract.version,
            uptime_s=now - self._started,
            pressure=forwarder.spool.pressure,
            links={name: self._link_state(link, now) for name, link in forwarder.links.items()},
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
