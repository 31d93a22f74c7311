"""The catalogue as one HTML file that needs nothing else, made of the contract alone, with its picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from contract import pages
from contract.summary import guarantee_text, scope_text, settings_text
from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    EventType,
    Participant,
    ParticipantKind,
    Priority,
)
from eventplane.filter_texts import filter_text
from eventplane.reach import Flow, Reachability

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


_HERE: Final = Path(__file__).parent


def catalogue(contract: Contract) -> str:
    """Return the page of `contract`, as HTML."""
    reach = Reachability(contract)
    flowing = {name: reach.flow(name) for name in contract.event_types}
    environment = pages.environment(_HERE)
    environment.filters |= {
        "breakable": _breakable,
        "filter": filter_text,
        "json": _json,
        "settings": settings_text,
        "guarantee": guarantee_text,
    }
    return environment.get_template("page.html.j2").render(
        contract=contract,
        types=[_type(each, flowing[each.name]) for each in contract.event_types.values()],
        participants=[_participant(each, flowing, reach) for each in contract.participants.values()],
        schemas=len({id for each in contract.event_types.values() for id in each.schemas}),
        picture=picture(contract, flowing),
        sizes={"width": WIDTH, "box": BOX, "lane": LANE, "lanes": LANES},
        style=pages.text_of(_HERE / "page.css"),
        script=pages.text_of(_HERE / "page.js"),
    )


def _type(event_type: EventType, flow: Flow) -> dict[str, Any]:
    return {
        "is": event_type,
        "flow": flow,
        "receivers": list(dict.fromkeys(each.channel.participant for each in flow.ways)),
        "versions": [
            {
                "id": id,
                "schema": schema,
                "members": list(_members(schema)),
                "event": _event(event_type, flow, id, schema),
                "others": schema.get("examples", [])[1:],
            }
            for id, schema in event_type.schemas.items()
        ],
    }


def _members(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The members of the payload by the schema, a line each."""
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        schema_of = member if isinstance(member, dict) else {}
        kind = schema_of.get("type", "")
        words = " or ".join(kind) if isinstance(kind, list) else kind
        if "enum" in schema_of:
            words = " or ".join(json.dumps(each, ensure_ascii=False) for each in schema_of["enum"])
        yield {
            "name": name,
            "kind": words,
            "required": name in required,
            "description": schema_of.get("description", ""),
        }


def _event(event_type: EventType, flow: Flow, id: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """A whole event with the schema's first example as payload; None without one."""
    if not schema.get("examples"):
        return None
    sender = flow.senders[0].name if flow.senders else "eventplane"
    return {
        "specversion": "1.0",
        "id": "1",
        "source": f"/{sender}",
        "type": event_type.name,
        "time": "2026-03-01T08:30:00Z",
        **({"dataschema": id} if id else {}),
        "datacontenttype": "application/json",
        "data": schema["examples"][0],
    }


def _participant(
    participant: Participant, flowing: Mapping[str, Flow], reach: Reachability
) -> dict[str, Any]:
    return {
        "is": participant,
        "sends": [name for name, flow in flowing.items() if participant in flow.senders],
        "asks": [name for name in flowing if participant.may_ask(name)],
        "addresses": scope_text(participant.may_address) if reach.goes_down(participant) else "",
        "receives": [
            name
            for name, flow in flowing.items()
            if any(way.channel is participant.inbox for way in flow.ways)
        ],
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _breakable(name: str) -> Markup:
    """The name, which a narrow screen may break behind its dots."""
    return Markup(".<wbr>").join(name.split("."))
