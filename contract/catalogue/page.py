"""The catalogue as one HTML file that needs nothing else, made of the contract alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from contract import pages
from contract.catalogue.picture import BOX, LANE, LANES, WIDTH, picture
from contract.summary import guarantee_text, scope_text, settings_text
from eventplane.contract import Contract, EventType, Participant
from eventplane.filters import filter_text
from eventplane.reach import Flow, Reachability

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
