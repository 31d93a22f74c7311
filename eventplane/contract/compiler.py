"""From the document people write to a checked `Contract` and its canonical form.

The canonical form is JSON with sorted members and every default written out; its SHA-256 is the contract
version. Loading a canonical form gives an equal contract with the same version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from eventplane.contract.canonical import FORMAT, canonical_bytes, version_of, whole_document
from eventplane.contract.channel_reader import check_delays, read_channel
from eventplane.contract.errors import ContractError, ContractFormatError, Problem
from eventplane.contract.event_type_reader import read_event_types
from eventplane.contract.filter_reader import MixedLogic, read_filter, read_interest
from eventplane.contract.guarantees import check_guarantees, read_guarantee
from eventplane.contract.model import Contract, EventType, Participant, Route
from eventplane.contract.names import check_names
from eventplane.contract.reader import Section
from eventplane.contract.replies import REPLIES, replies_channel, with_reply_routes
from eventplane.contract.rights import read_may_address, read_may_subscribe
from eventplane.contract.sends import read_asks, read_sends
from eventplane.contract.vocabulary import Ordering, ParticipantKind, Place, Transport
from eventplane.limits import MAX_ORDERED_INBOXES
from eventplane.own_services import DOWNLINK, leads_down


def compile_contract(document: object, origin: str) -> Contract:
    """The contract that `document` declares. Raises `ContractError` with every problem found.

    `document` is plain data (mappings, lists, strings, numbers), `origin` the file it came from. The payload
    schemas of an event type stand in it as JSON Schema documents, not as file names.
    """
    top = Section("", document, [])
    name, participants, event_types, routes = _read(top, origin)
    check_names(participants, top)
    check_delays(participants, top)
    check_guarantees(participants, event_types, routes, top)
    _refuse(top, origin)
    canonical = canonical_bytes(whole_document(name, participants, event_types, routes))
    return _contract(name, participants, event_types, routes, canonical)


def load_compiled(compiled: bytes | str, origin: str = "compiled contract") -> Contract:
    """The contract of a canonical form, with the version it was compiled with.

    The version is that of the text as it stands: settings that came later have their defaults in the
    contract, and change nothing about what an old one is called. Raises `ContractError` when it is damaged,
    `ContractFormatError` when a newer program wrote it.
    """
    try:
        document = json.loads(compiled)
        canonical = canonical_bytes(document)
    except (ValueError, RecursionError) as error:
        raise ContractError(
            origin, [Problem("(document)", f"not JSON: {error}", "compile the contract again")]
        ) from error
    top = Section("", document, [])
    parts = _read(top, origin)
    top.problems[:] = [each for each in top.problems if not isinstance(each, MixedLogic)]
    _refuse(top, origin)
    return _contract(*parts, canonical)


_Parts = tuple[str, dict[str, Participant], dict[str, EventType], tuple[Route, ...]]


def _contract(
    name: str,
    participants: dict[str, Participant],
    event_types: dict[str, EventType],
    routes: tuple[Route, ...],
    canonical: bytes,
) -> Contract:
    return Contract(
        name=name,
        version=version_of(canonical),
        canonical=canonical,
        participants=MappingProxyType(participants),
        event_types=MappingProxyType(event_types),
        routes=routes,
    )


def _read(top: Section, origin: str) -> _Parts:
    format_version = _read_format(top, origin)
    name = top.text("name")
    participants = {
        each: _read_participant(each, section)
        for each, section in top.section("participants").entries().items()
    }
    event_types = read_event_types(top.section("event_types"), format_version)
    # By name, like everything in the canonical form: the order of writing means nothing.
    routes = tuple(
        _read_route(each, section, participants)
        for each, section in sorted(top.section("routes").entries().items())
    )
    routes = with_reply_routes(routes, participants, top)
    top.finish()
    _check_whole(top, participants, routes)
    return name, participants, event_types, routes


def _refuse(top: Section, origin: str) -> None:
    if top.problems:
        raise ContractError(origin, top.problems)


def _read_format(top: Section, origin: str) -> int:
    found = top.raw("format")
    if isinstance(found, int) and not isinstance(found, bool):
        if found > FORMAT:
            # Whatever else one found here would be a fault by rules that this contract does not follow.
            raise ContractFormatError(origin, found, FORMAT)
        if found >= 1:
            return found
    top.fault("format", f"{found!r} is not a known format", f"write `format: {FORMAT}`")
    return FORMAT


def _read_participant(name: str, section: Section) -> Participant:
    kind = section.choice("kind", ParticipantKind, None)
    if kind is None:
        if section.raw("kind") is None:
            section.fault("kind", "it is missing", "say where the participant lives: device_service, ...")
        kind = ParticipantKind.CLOUD_SERVICE
    asks = read_asks(section)
    participant = Participant(
        name=name,
        kind=kind,
        description=section.text("description"),
        inbox=read_channel(name, kind, section.section("inbox")),
        outbox=read_channel(name, kind, section.section("outbox")),
        sends=read_sends(section),
        retired=section.boolean("retired", default=False),
        asks=asks,
        replies=replies_channel(name, kind) if asks else None,
        may_subscribe=read_may_subscribe(kind, section),
        may_address=read_may_address(kind, section),
    )
    if asks and kind is ParticipantKind.DEVICE:
        section.fault("asks", "a device asks nothing by itself", "let a service on it ask")
    if participant.retired and kind is not ParticipantKind.CLOUD_SERVICE:
        section.fault("retired", f"a {kind} has no queues that could hold events", "just remove it")
    section.finish()
    return participant


def _read_route(name: str, section: Section, participants: Mapping[str, Participant]) -> Route:
    destination = section.text("to")
    route_filter = read_filter(section.raw("filter"), f"{section.path}.filter", section.problems)
    section.raw("description")
    interest = read_interest(section.raw("interest"), f"{section.path}.interest", section.problems)
    guarantee = read_guarantee(section)
    section.finish()
    place = _place_of(destination, section, participants)
    return Route(name, route_filter, destination, place, interest, guarantee)


def _place_of(destination: str, section: Section, participants: Mapping[str, Participant]) -> Place:
    """Who decides a route follows from where it leads: the router that writes that channel."""
    participant, _, box = destination.partition(".")
    target = participants.get(participant)
    if target is None:
        known = ", ".join(participants) or "none"
        section.fault("to", f"participant {participant!r} is unknown", f"declare it, or use one of: {known}")
        return Place.CLOUD
    writable = "outbox" if target.kind is ParticipantKind.DEVICE and box == "outbox" else "inbox"
    if box == REPLIES and target.replies is not None:
        # Whether it is the one that belongs there is checked once all routes are known.
        return Place.CLOUD if target.kind is ParticipantKind.CLOUD_SERVICE else Place.DEVICE
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
    if target.kind is ParticipantKind.CLOUD_SERVICE:
        return Place.CLOUD
    if target.kind is ParticipantKind.DEVICE and box == "inbox":
        if DOWNLINK in participants and not leads_down(participants):
            section.fault(
                "to",
                f"{DOWNLINK!r}, which brings events there, is retired",
                "remove the route, or `retired` from the participant",
            )
        return Place.CLOUD
    return Place.DEVICE


def _check_whole(top: Section, participants: Mapping[str, Participant], routes: tuple[Route, ...]) -> None:
    devices = [each.name for each in participants.values() if each.kind is ParticipantKind.DEVICE]
    if len(devices) != 1:
        top.fault(
            "participants",
            f"{len(devices)} participants are of kind device",
            "declare exactly one: it stands for every device",
        )
    if not routes:
        top.fault("routes", "there is no route", "declare at least one")
    inboxes = [each.inbox for each in participants.values() if each.inbox.transport is Transport.SQS]
    ordered = [each for each in inboxes if each.ordering is Ordering.SOURCE]
    if len(ordered) > MAX_ORDERED_INBOXES:
        top.fault(
            "participants",
            f"{len(ordered)} standard inboxes have `ordering: source`",
            f"let at most {MAX_ORDERED_INBOXES} have it: each takes room in every event that goes there",
        )
