"""From the document people write to a checked `Contract` and its canonical form.

The canonical form is JSON with sorted members and every default written out; its SHA-256 is the contract
version. Loading a canonical form gives an equal contract with the same version. Whether a payload schema is a
good JSON Schema is checked where its file is read (contract/loader.py): the core needs no such library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from eventplane.attributes import value_problem
from eventplane.contract import (
    REPLIES,
    Contract,
    Downlink,
    EventType,
    Ordering,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    Route,
    SchemaCheck,
    Transport,
)
from eventplane.contract.canonical import (
    FORMAT,
    OLDEST_FORMAT,
    ContractError,
    canonical_bytes,
    contract_of,
    place_of,
    refuse_newer,
)
from eventplane.contract.channels import Guarantee
from eventplane.contract.document import whole_document
from eventplane.contract.filter_reader import MixedLogic, read_filter, read_interest
from eventplane.contract.mapping_reader import check_mappings
from eventplane.contract.participants import leads_down, read_participant, with_reply_routes
from eventplane.contract.reader import Section, Setting, Text, Word
from eventplane.contract.rules import check_delays, check_guarantees, check_names
from eventplane.limits import MAX_ORDERED_INBOXES
from eventplane.names import DOWNLINK


def compile_contract(document: object, origin: str, *, is_derived: bool = False) -> Contract:
    """Return the contract that `document` declares. Raises `ContractError` with every problem found.

    `document` is plain data (mappings, lists, strings, numbers), `origin` the file it came from. The payload
    schemas of event types are JSON Schema documents in it, not file names. One that `is_derived` from a
    compiled contract need not keep a rule that came later, which stops no router.
    """
    top = Section("", document, [])
    name, participants, event_types, routes = _read(top, origin)
    if is_derived:
        top.problems[:] = [each for each in top.problems if not isinstance(each, MixedLogic)]
    else:
        check_names(participants, top)
        check_delays(participants, top)
        check_guarantees(participants, event_types, routes, top)
    if top.problems:
        raise ContractError(origin, top.problems)
    canonical = canonical_bytes(whole_document(name, participants, event_types, routes))
    return contract_of(name, participants, event_types, routes, canonical)


def contract_document(contract: Contract) -> dict[str, Any]:
    """Return `contract` as a document, whatever format it was compiled in."""
    return whole_document(contract.name, contract.participants, contract.event_types, contract.routes)


def check_compiled(contract: Contract, origin: str) -> None:
    """Check a loaded `contract` as it was when it was compiled. Raises `ContractError` with every problem.

    For one that comes from elsewhere: `load_compiled` checks its form alone.
    """
    compile_contract(json.loads(contract.canonical), origin, is_derived=True)


_Parts = tuple[str, dict[str, Participant], dict[str, EventType], tuple[Route, ...]]


def _read(top: Section, origin: str) -> _Parts:
    found = top.raw("format")
    refuse_newer(found, origin)  # other faults would be faults by rules that this contract does not follow
    if not isinstance(found, int) or isinstance(found, bool) or found < OLDEST_FORMAT:
        top.fault("format", f"{found!r} is not a known format", f"write `format: {FORMAT}`")
    name = top.text("name")
    participants = {
        each: read_participant(each, section)
        for each, section in top.section("participants").entries().items()
    }
    event_types = read_event_types(top.section("event_types"))
    # By name, like everything in the canonical form: the written order has no meaning.
    routes = tuple(
        _read_route(each, section, participants)
        for each, section in sorted(top.section("routes").entries().items())
    )
    routes = with_reply_routes(routes, participants, top)
    top.finish()
    _check_whole(top, participants, routes)
    check_mappings(participants, event_types, top)
    return name, participants, event_types, routes


ROUTE: Final[dict[str, Setting]] = {
    "to": Text(meaning="a participant's inbox, or the device's outbox, which leads to the cloud"),
    "delivery_guarantee": Guarantee(
        default=None, meaning="how reliable its deliveries are; without it, as the type or the channels say"
    ),
}
"""The members of a route beside its filter, its description and its readers' interest, by name."""


def _read_route(name: str, section: Section, participants: Mapping[str, Participant]) -> Route:
    destination = ROUTE["to"].read("to", section)
    route_filter = read_filter(section.raw("filter"), f"{section.path}.filter", section.problems)
    section.raw("description")
    interest = read_interest(section.raw("interest"), f"{section.path}.interest", section.problems)
    guarantee = ROUTE["delivery_guarantee"].read("delivery_guarantee", section)
    section.finish()
    place = _place_of(destination, section, participants)
    return Route(name, route_filter, destination, place, interest, guarantee)


def _place_of(destination: str, section: Section, participants: Mapping[str, Participant]) -> Place:
    """Return where a route is decided: at the router that writes its destination."""
    participant, _, box = destination.partition(".")
    target = participants.get(participant)
    if target is None:
        known = ", ".join(participants) or "none"
        section.fault("to", f"participant {participant!r} is unknown", f"declare it, or use one of: {known}")
        return Place.CLOUD
    writable = "outbox" if target.kind is ParticipantKind.DEVICE and box == "outbox" else "inbox"
    place = place_of(box, target.kind)
    if box == REPLIES and target.replies is not None:
        return place  # whether it is the compiler's own is checked once all routes are known
    if box != writable:
        section.fault(
            "to",
            f"a router does not write {destination!r}",
            "lead to a participant's inbox, or to the device's outbox (the uplink)",
        )
    if target.retired:
        section.fault(
            "to", f"{participant!r} is retired", "remove the route, or `retired` from the participant"
        )
    is_downlink = target.kind is ParticipantKind.DEVICE and box == "inbox"
    if is_downlink and DOWNLINK in participants and not leads_down(participants):
        section.fault(
            "to",
            f"{DOWNLINK!r}, which brings events there, is retired",
            "remove the route, or `retired` from the participant",
        )
    return place


def _check_whole(top: Section, participants: Mapping[str, Participant], routes: tuple[Route, ...]) -> None:
    devices = [each.name for each in participants.values() if each.kind is ParticipantKind.DEVICE]
    if len(devices) != 1:
        top.fault(
            "participants",
            f"{len(devices)} participants are of kind device",
            "declare exactly one: it represents every device",
        )
    if not routes:
        top.fault("routes", "there is no route", "declare at least one")
    inboxes = [each.inbox for each in participants.values() if each.inbox.transport is Transport.SQS]
    ordered = [each for each in inboxes if each.ordering is Ordering.SOURCE]
    if len(ordered) > MAX_ORDERED_INBOXES:
        top.fault(
            "participants",
            f"{len(ordered)} standard inboxes have `ordering: source`",
            f"give it to at most {MAX_ORDERED_INBOXES}: each takes room in every event that goes there",
        )


_Schema = Mapping[str, Any]


EVENT_TYPE: Final[dict[str, Setting]] = {
    "description": Text(meaning="one sentence for people"),
    "priority": Word(
        options=Priority,
        default=None,
        meaning="the order of delivery; without it, as an event's severity or its channel says",
    ),
    "schema_check": Word(
        options=SchemaCheck,
        default=SchemaCheck.NONE,
        meaning="`strict` refuses payloads that none of the schemas describes, `known` passes other versions",
    ),
    "downlink": Word(
        options=Downlink,
        default=None,
        meaning="how its events go down to devices: of a `state` only the newest counts; without it, as the "
        "device's inbox says",
    ),
    "delivery_guarantee": Guarantee(
        default=None, meaning="how reliable its deliveries are where their route does not say"
    ),
}
"""The members of an event type beside its schemas, by name."""


def read_event_types(section: Section) -> dict[str, EventType]:
    """Return the event types of a contract; faults go to the section."""
    types = {}
    by_id: dict[str, _Schema] = {}
    for name in section.members:
        each = section.section(name)
        listed = _listed(each)
        values = {member: setting.read(member, each) for member, setting in EVENT_TYPE.items()}
        types[str(name)] = EventType(name=str(name), schemas=_by_id(listed, each, by_id), **values)
        if not listed and values["schema_check"] is not SchemaCheck.NONE:
            each.fault("schema_check", "there is no schema to check by", "list `schemas`, or remove this")
        each.finish()
    return types


def _listed(section: Section) -> list[Any]:
    """Return the list of schemas, unread."""
    listed = section.raw("schemas")
    if "schema" in section.members:
        section.raw("schema")
        section.fault("schema", "since format 2 a payload has versions", "write `schemas: [FILE, ...]`")
    if listed is not None and not isinstance(listed, list):
        section.fault("schemas", "it is not a list", "list files under schemas/, the oldest version first")
        return []
    return listed or []


def _by_id(listed: list[Any], section: Section, by_id: dict[str, _Schema]) -> dict[str, _Schema]:
    """Return the valid ones of the `listed` schemas by `$id`; `by_id` has those of all event types."""
    schemas: dict[str, _Schema] = {}
    for at, schema in enumerate(listed):
        path = f"schemas[{at}]"
        if not isinstance(schema, Mapping):
            section.fault(path, "it is not a JSON Schema", "name a file under schemas/ that holds one")
        elif fault := _id_fault(schema, schemas, by_id):
            section.fault(path, *fault)
        else:
            schemas[schema["$id"]] = schema
    by_id.update(schemas)
    return schemas


def _id_fault(
    schema: _Schema, own: Mapping[str, _Schema], by_id: Mapping[str, _Schema]
) -> tuple[str, str] | None:
    """Return what is wrong with the `$id` and what to do; None when it is valid."""
    id = schema.get("$id")
    if id is None:
        return "it has no `$id`, so that no event can name it", "give it an absolute URI of its own as `$id`"
    # An event must be able to carry it as its `dataschema`.
    problem = value_problem("dataschema", id) if isinstance(id, str) else "it is not a string"
    if not problem and "#" in id:
        problem = "it has a fragment"
    if problem:
        return f"`$id` {id!r:.200}: {problem}", "write an absolute URI without a fragment"
    if id in own:
        return f"`$id` {id} is in the list twice", "give every version an `$id` of its own"
    if by_id.get(id, schema) != schema:
        return f"another schema has the `$id` {id}", "give every schema an `$id` of its own"
    return None
