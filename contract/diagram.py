"""The plane as a mermaid flowchart: who sends to which router, and where each route leads."""

from __future__ import annotations

from eventplane.contract import (
    Contract,
    DeliveryGuarantee,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    Route,
)

_ROUTERS = {Place.DEVICE: "device_router", Place.CLOUD: "cloud_router"}


def diagram(contract: Contract) -> str:
    """The flowchart's text. A thick arrow is urgent, a dotted one best effort."""
    device = contract.device
    home = [_node(each) for each in contract.of_kind(ParticipantKind.DEVICE_SERVICE)]
    cloud = [_node(each) for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)]
    up = [each for each in contract.routes if each.destination == device.outbox.address]
    lines = [
        "flowchart LR",
        *_group("home", device.name, [*home, 'device_router{"router on the device"}']),
        *_group("cloud", "cloud", [*cloud, 'cloud_router{"router in the cloud"}']),
        *(_sends(each) for each in contract.participants.values() if each is not device and each.sends != ()),
        *(f"  device_router -- {_quoted(each.name)} --> cloud_router" for each in up),
        *(_route(each, contract) for each in contract.routes if each not in up),
    ]
    return "\n".join(lines)


def _group(id: str, title: str, members: list[str]) -> list[str]:
    return [f"  subgraph {id}[{_quoted(title)}]", *(f"    {each}" for each in members), "  end"]


def _node(participant: Participant) -> str:
    return f"{_id(participant.name)}[{_quoted(participant.name)}]"


def _sends(participant: Participant) -> str:
    cloud = participant.kind is ParticipantKind.CLOUD_SERVICE
    arrow = f"-- {_quoted('<br/>'.join(participant.sends))} -->" if participant.sends else "-->"
    return f"  {_id(participant.name)} {arrow} {_ROUTERS[Place.CLOUD if cloud else Place.DEVICE]}"


def _route(route: Route, contract: Contract) -> str:
    channel = contract.channel(route.destination)
    # The device's inbox is the downlink: it ends at the home as a whole.
    down = channel is contract.device.inbox
    start, end = ("==", "==>") if channel.priority is Priority.URGENT else ("--", "-->")
    if DeliveryGuarantee.BEST_EFFORT in (channel.delivery_guarantee, route.delivery_guarantee):
        start, end = "-.", ".->"
    target = "home" if down else _id(channel.participant)
    return f"  {_ROUTERS[route.place]} {start} {_quoted(route.name)} {end} {target}"


def _id(name: str) -> str:
    # Mermaid has words of its own (end, graph); a name is letters, digits and hyphens.
    return "p_" + name.replace("-", "_")


def _quoted(text: str) -> str:
    return f'"{text}"'
