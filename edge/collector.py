"""Reads the forwarder's figures from its parts, on the loop's own thread.

This is the one place that knows where each figure lives. A snapshot reads one row of the spool for each
destination and priority that has a backlog, the rest is in memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from edge.certificate import CertificateFile
from edge.errors import SpoolError
from edge.figures import Backlog, Figures, LinkState
from edge.forwarder import Forwarder
from edge.health.watchdog import Progress
from edge.link import Link
from edge.mailbox import LinkName
from eventplane.contract import Contract, Place, Priority

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class LinkWatch:
    """Since when a link is as it is; `look` costs nothing and is called between turns."""

    def __init__(self, link: Link, now: float) -> None:
        self._link = link
        self._standing = 0
        self._since = now

    @property
    def standing(self) -> int:
        """The generation of the connection that stands, 0 for none."""
        return self._standing

    def look(self, now: float) -> bool:
        """Note a change; whether there was one. Seconds of the monotonic clock."""
        standing = self._link.generation if self._link.up else 0
        if standing == self._standing:
            return False
        self._standing, self._since = standing, now
        return True

    def state(self, now: float) -> LinkState:
        """The link's figures."""
        link = self._link
        return LinkState(link.name, bool(self._standing), now - self._since, link.connects, link.complaint)


class Collector:
    """Reads `forwarder` and the links of `thing`, which works under `contract`; `started` is now."""

    def __init__(
        self,
        thing: str,
        contract: Contract,
        forwarder: Forwarder,
        links: Mapping[LinkName, Link],
        certificate: CertificateFile | None,
        started: float,
    ) -> None:
        self.contract = contract
        self.reloads = 0
        self.reloads_refused = 0
        self.last_reload_refused = False
        self._thing = thing
        self._forwarder = forwarder
        self._links = {name: LinkWatch(each, started) for name, each in links.items()}
        self._certificate = certificate
        self._started = started

    def refuse_contract(self) -> None:
        """The contract file, or what came down, cannot be used; another one is in force."""
        self.reloads_refused += 1
        self.last_reload_refused = True

    def look(self, now: float) -> bool:
        """Note which links changed since the last look; whether one did."""
        changed = [each.look(now) for each in self._links.values()]
        return any(changed)

    def progress(self) -> Progress:
        """What the watchdog looks at."""
        uplink = self.contract.device.outbox.address
        waiting = sum(self._forwarder.spool.pending(uplink, each.rank) for each in Priority)
        return Progress(self._links[LinkName.CLOUD].standing, self._forwarder.counts.answered, waiting)

    def collect(self, now: float) -> Figures:
        """The figures now, monotonic seconds."""
        counts, spool, uplink = self._forwarder.counts, self._forwarder.spool, self._forwarder.uplink
        return Figures(
            thing=self._thing,
            contract_version=self.contract.version,
            uptime_s=now - self._started,
            rss_bytes=_rss_bytes(),
            cpu_s=time.process_time(),
            epoch=spool.epoch,
            birth=spool.birth.kind,
            arrivals=spool.next_sequence - 1,
            used_bytes=spool.used_bytes,
            capacity_bytes=spool.capacity_bytes,
            capacity_deliveries=spool.capacity_deliveries,
            pressure=spool.pressure,
            written_bytes=spool.written_bytes,
            backlog=tuple(self._backlog()),
            links={name: each.state(now) for name, each in self._links.items()},
            dead_letters=dict(counts.dead_letters),
            descended=dict(counts.descended),
            discards={(str(outcome), reason): count for (outcome, reason), count in counts.discards.items()},
            refused=counts.refused,
            sent_unstored=counts.sent_unstored,
            unwanted=counts.unwanted,
            publishes=counts.published,
            published_events=counts.published_events,
            published_bytes=counts.published_bytes,
            acknowledged=counts.acknowledged,
            acknowledge_s=uplink.acknowledge_s,
            slowdowns=uplink.slowed,
            in_flight=uplink.unacknowledged,
            reloads=self.reloads,
            reloads_refused=self.reloads_refused,
            last_reload_refused=self.last_reload_refused,
            certificate_left_s=self._certificate.left_s() if self._certificate else None,
        )

    def _backlog(self) -> Iterator[Backlog]:
        uplink = self.contract.device.outbox.address
        ways = {route.destination: LinkName.LOCAL for route in self.contract.routes_at(Place.DEVICE)}
        ways[uplink] = LinkName.CLOUD
        for destination in dict.fromkeys([*ways, *self._forwarder.spool.destinations()]):
            for priority in Priority:
                yield self._lane(destination, priority, ways.get(destination))

    def _lane(self, destination: str, priority: Priority, link: LinkName | None) -> Backlog:
        spool = self._forwarder.spool
        pending = spool.pending(destination, priority.rank)
        try:
            stored_ms = spool.oldest_stored_ms(destination, priority.rank)
        except SpoolError:
            # Figures must not end the loop: its next turn finds the damage and deals with it.
            stored_ms = None
        oldest_s = 0.0 if stored_ms is None else max(0.0, (spool.life() - stored_ms) / 1000)
        return Backlog(destination, priority, link, pending, oldest_s)


def _rss_bytes() -> int:
    """Resident memory of this process; 0 where the kernel does not say."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
