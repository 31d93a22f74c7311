"""The plane as a picture: the home's participants, the two routers, the cloud's, and who sends and receives.

The SVG needs no layout program, since routers are lanes: whoever sends has an arrow into one, whoever
receives an arrow out of it. It is as wide as a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eventplane.contract import Channel, Contract, DeliveryGuarantee, Participant, ParticipantKind, Priority
from eventplane.reach import Flow

WIDTH: Final = 360
ROW: Final = 34
TOP: Final = 8
BOX: Final = 116
LANE: Final = 18
LANES: Final = (140, 202)
"""Where the lanes of the device's router and of the cloud's begin."""
MAX_LABEL: Final = 18
"""Characters of a name that fit in one line."""

MAX_LINE: Final = 21
"""Characters of each of two smaller lines. A contract has no name as long as both."""


@dataclass(frozen=True, slots=True)
class Box:
    """A participant, its upper left corner, and its name in one line or two."""

    name: str
    lines: tuple[str, ...]
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow; `title` names what goes there, `style` how (`urgent`, `best-effort`)."""

    x1: int
    x2: int
    y: int
    style: str
    title: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The shapes that the page's template draws."""

    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def picture(contract: Contract, flowing: Mapping[str, Flow]) -> Picture:
    """Return the picture of `contract`, whose event types have the flows `flowing`."""
    home = [*contract.of_kind(ParticipantKind.DEVICE_SERVICE), contract.device]
    cloud = list(contract.of_kind(ParticipantKind.CLOUD_SERVICE))
    received = _received(flowing)
    boxes = [*_boxes(home, 0), *_boxes(cloud, WIDTH - BOX)]
    arrows = [
        *_arrows(home, BOX, LANES[0], received),
        *_arrows(cloud, WIDTH - BOX, LANES[1] + LANE, received),
        *_links(contract),
    ]
    height = 2 * TOP + ROW * max(len(home), len(cloud))
    return Picture(height, tuple(boxes), tuple(arrows))


def _received(flowing: Mapping[str, Flow]) -> dict[str, list[str]]:
    """The event types that come to each channel."""
    received: dict[str, list[str]] = {}
    for name, flow in flowing.items():
        for address in dict.fromkeys(way.channel.address for way in flow.ways):
            received.setdefault(address, []).append(name)
    return received


def _boxes(participants: Sequence[Participant], x: int) -> Iterable[Box]:
    for row, each in enumerate(participants):
        yield Box(each.name, _lines(each.name), x, TOP + ROW * row)


def _lines(name: str) -> tuple[str, ...]:
    """Break a long name behind the hyphen nearest to its middle, or there."""
    if len(name) <= MAX_LABEL:
        return (name,)
    half = (len(name) + 1) // 2
    hyphens = (place + 1 for place, letter in enumerate(name) if letter == "-")
    fitting = (each for each in hyphens if len(name) - MAX_LINE <= each <= MAX_LINE)
    at = min(fitting, key=lambda each: abs(each - half), default=half)
    return name[:at], name[at:]


def _arrows(
    participants: Sequence[Participant], at: int, lane: int, received: Mapping[str, Sequence[str]]
) -> Iterable[Arrow]:
    for row, each in enumerate(participants):
        y = TOP + ROW * row
        if each.sends != ():
            named = ", ".join(each.sends) if each.sends else "not declared"
            yield Arrow(at, lane, y + 8, _style(each.outbox), f"{each.name} sends: {named}")
        # What comes to the device's inbox is between the lanes.
        if each.kind is not ParticipantKind.DEVICE and (types := received.get(each.inbox.address)):
            yield Arrow(lane, at, y + 19, _style(each.inbox), f"{each.name} receives: {', '.join(types)}")


def _links(contract: Contract) -> Iterable[Arrow]:
    device = contract.device
    ends = (LANES[0] + LANE, LANES[1])
    for channel, (start, end), y, name in (
        (device.outbox, ends, 30, "uplink"),
        (device.inbox, ends[::-1], 62, "downlink"),
    ):
        routes = [each.name for each in contract.routes if each.destination == channel.address]
        if routes:
            yield Arrow(start, end, y, _style(channel), f"{name}: {', '.join(routes)}")


def _style(channel: Channel) -> str:
    if channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT:
        return "best-effort"
    return "urgent" if channel.priority is Priority.URGENT else "normal"
