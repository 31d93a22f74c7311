"""A home loses its connection: carers and relatives get a notice, and a second one when it is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from eventplane.contract import Contract
from eventplane.names import CONNECTED, NOTICE
from eventplane.resource_names import resource_name
from lab.cloud import CloudEndpoint
from lab.consumers import ReceivedEvent
from lab.network import NetworkLink
from lab.waiting import Waits
from stacks.config import environment
from stacks.names import TIMERS

LOCAL: Final = environment("local")

OPENED: Final = "opened"
PHASES: Final = (OPENED, "over")
"""The notices of one incident: when it begins, and when it ends."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice that `service` received.

    `late_s` is its delay beyond `disconnected_after_s` after the loss of the connection, in seconds; None at
    the end of an incident, which depends on the device as well.
    """

    service: str
    phase: str
    title: str
    check: Sequence[str]
    late_s: float | None


@contextmanager
def judging(cloud: CloudEndpoint) -> Iterator[None]:
    """Let timers fire while the `with` block runs; before and after, they wait in their queue."""
    client = cloud.client("lambda")
    name = resource_name(LOCAL.name, TIMERS)
    (mapping,) = client.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
    client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
    yield
    client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)


def cut_off(
    name: str,
    link: NetworkLink,
    services: Sequence[str],
    kept: Callable[[], Sequence[ReceivedEvent]],
    waits: Waits,
) -> list[Notice]:
    """Cut the `link` of home `name` until `services` got a notice, and heal it until they got the second one.

    Waits first until the plane knows the home as connected; by then all functions have started.
    """

    def is_unknown() -> int:
        return int(not any(_is_about(each, CONNECTED, name) for each in kept()))

    waits.until_none_remain("notices: a home is known to be there", is_unknown)
    for phase, act in zip(PHASES, (link.cut, link.heal), strict=True):
        act()
        title = f"notices: a home is {'cut off' if phase == OPENED else 'back'}"
        waits.until_none_remain(title, lambda phase=phase: missing(notices(kept(), name), services, [phase]))  # type: ignore[misc]
    return notices(kept(), name)


def missing(found: Sequence[Notice], services: Sequence[str], phases: Sequence[str] = PHASES) -> int:
    """Return how many of the notices that each of `services` must get are not in `found`."""
    wanted = {(service, phase) for service in services for phase in phases}
    return len(wanted - {(each.service, each.phase) for each in found})


def notified_services(contract: Contract) -> list[str]:
    """Return the services to which the contract routes notices."""
    takers = (route for route in contract.routes if route.filter.matches({"type": NOTICE}))
    inboxes = {route.destination for route in takers} - {contract.device.outbox.address}
    return sorted(contract.channel(each).participant for each in inboxes)


def notices(kept: Sequence[ReceivedEvent], device: str) -> list[Notice]:
    """Return the notices about `device` among the events in `kept`, in the order of their arrival."""
    return [_notice(*each) for each in kept if _is_about(each, NOTICE, device)]


def _is_about(received: ReceivedEvent, type: str, device: str) -> bool:
    return (received.event["type"], received.event.get("subject")) == (type, device)


def _notice(service: str, event: Mapping[str, Any], arrived_ms: int) -> Notice:
    data, late_s = event["data"], None
    if data["phase"] == OPENED:
        lost_s = datetime.fromisoformat(data["since"]).timestamp()
        late_s = round(arrived_ms / 1_000 - lost_s - LOCAL.presence.disconnected_after_s, 1)
    return Notice(service, data["phase"], data["title"], data["check"], late_s)
