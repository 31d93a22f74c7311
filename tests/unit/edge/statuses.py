"""The status of a device that is well, to be made worse."""

from typing import Any

from edge.health_status import Backlog, DeviceStatus, LinkState
from eventplane.contract import Priority
from eventplane_mqtt.mailbox import LinkName

WELL = DeviceStatus(
    thing="home-1",
    contract_version="c0ffee",
    uptime_s=100.0,
    pressure=0.1,
    links={each: LinkState(each, True, 1_000.0, 1) for each in LinkName},
)


def with_link(
    status: DeviceStatus, name: LinkName, up: bool = True, for_s: float = 1_000.0, **more: Any
) -> DeviceStatus:
    return status._replace(links={**status.links, name: LinkState(name, up, for_s, 1, **more)})


def waiting(
    oldest_s: float,
    priority: Priority = Priority.URGENT,
    destination: str = "device.outbox",
    link: LinkName | None = LinkName.CLOUD,
) -> Backlog:
    return Backlog(destination, priority, link, 3, oldest_s)
