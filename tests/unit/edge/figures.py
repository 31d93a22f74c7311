"""Figures of a device that is well, to be made worse."""

from __future__ import annotations

from dataclasses import replace

from edge.figures import Backlog, Figures, LinkState
from edge.mailbox import LinkName
from eventplane.contract import Priority

WELL = Figures(
    thing="home-1",
    contract_version="c0ffee",
    uptime_s=100.0,
    rss_bytes=18_000_000,
    cpu_s=1.5,
    epoch="0123",
    birth="resumed",
    arrivals=7,
    used_bytes=10,
    capacity_bytes=100,
    capacity_deliveries=1000,
    pressure=0.1,
    written_bytes=4096,
    backlog=(),
    links={
        LinkName.LOCAL: LinkState(LinkName.LOCAL, True, 1_000.0, 1),
        LinkName.CLOUD: LinkState(LinkName.CLOUD, True, 1_000.0, 2),
    },
)


def with_link(figures: Figures, name: LinkName, up: bool, for_s: float) -> Figures:
    return replace(figures, links={**figures.links, name: LinkState(name, up, for_s, 1)})


def waiting(
    oldest_s: float,
    priority: Priority = Priority.URGENT,
    destination: str = "device.outbox",
    link: LinkName | None = LinkName.CLOUD,
) -> Backlog:
    return Backlog(destination, priority, link, 3, oldest_s)
