"""The warnings of `make contract`: what is allowed in a contract and probably not intended.

A warning never stops a deployment. The checks do not report what they cannot be sure of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eventplane.attributes import Attributes
from eventplane.cesql import Expression, lint
from eventplane.contract import (
    AddressScope,
    Contract,
    DeliveryGuarantee,
    Ordering,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    Route,
    Transport,
)
from eventplane.contract.canonical import Problem
from eventplane.contract.channels import is_default
from eventplane.contract.participants import reply_routes
from eventplane.contract.possibilities import Takes, can_match, needed, of_type, possible
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import PLANE_TYPES
from eventplane.filter_texts import to_document
from eventplane.filters import All, Any, Combination, Filter, Not
from eventplane.names import (
    CANARY,
    CANARY_ALARM,
    CANARY_CLIENT,
    MONITOR,
    NOTICE,
    NOTICE_OF_MANY,
    OWN_SERVICES,
    REPLY_TYPE,
    SUBSCRIBERS,
)
from eventplane.reach import Reachability, Way, place_of, types_of, ways_to_lead


def check(contract: Contract) -> tuple[Problem, ...]:
    """Return every warning about a compiled `contract`: where, what is doubtful, what to do."""
    reach = Reachability(contract)
    return (
        *_unreachable_channels(contract),
        *_unheard_plane(contract),
        *_lost_order(contract, reach),
        *_waiting_alarms(contract, reach.takes),
        *_dead_letters_to_webhooks(contract),
        *_droppable_alarms(contract),
        *_doubtful_mappings(contract),
        *_untaken_types(contract, reach.takes),
        *_unreached_readers(contract, reach),
        *_misnamed_sends(contract),
        *_unsent_types(contract),
        *_silent_senders(contract),
        *_idle_scopes(contract, reach),
        *_unlimited_subscribers(contract),
        *_doubtful_filters(contract, reach.takes),
        *_repeated_routes(contract),
        *_relay_loops(contract, reach),
        *_service_loops(contract, reach),
    )


def _unreachable_channels(contract: Contract) -> Iterator[Problem]:
    written = {route.destination for route in contract.routes}
    for each in contract.participants.values():
        # An inbox without settings may be unused. In the cloud it is a queue, expected to be used unless its
        # participant is known to be a sender.
        in_cloud = each.kind is ParticipantKind.CLOUD_SERVICE
        wanted = (in_cloud and not each.sends) or not is_default(each.inbox, each.kind)
        if each.name == SUBSCRIBERS:
            continue  # participants lead routes there themselves
        if wanted and not each.retired and each.inbox.address not in written:
            yield Problem(
                f"participants.{each.name}.inbox",
                "no route leads here",
                "add a route if it should receive events; otherwise leave it so",
            )
    uplink = contract.device.outbox.address
    if uplink not in written:
        yield Problem(
            f"participants.{contract.device.name}.outbox",
            "no route leads to the uplink, so nothing that happens in a home reaches the cloud",
            f"add a route to {uplink}",
        )


def _unheard_plane(contract: Contract) -> Iterator[Problem]:
    """What the plane says of itself to somebody, and no route leads there: routes of 0.3.0 do not."""
    routes = contract.routes_at(Place.CLOUD)
    many = {each.destination for each in routes if can_match(each.filter, of_type(NOTICE_OF_MANY))}
    for each in routes:
        if MONITOR not in contract.participants or each.destination in many:
            continue
        if can_match(each.filter, of_type(NOTICE)):
            yield Problem(
                f"routes.{each.name}",
                f"{each.destination} gets notices of one device, and not {NOTICE_OF_MANY}, which replaces "
                "them in an outage of the fleet",
                "filter by the prefix org.eventplane.notice.",
            )
    canary = {**of_type(CANARY_ALARM), "senderdevice": CANARY_CLIENT}
    own = [each for each in routes if each.destination == f"{CANARY}.inbox"]
    if own and not any(can_match(each.filter, canary) for each in own):
        yield Problem(
            f"routes.{own[0].name}",
            "it takes none of the canary's alarms, so each of them counts as missed",
            f"filter by the type {CANARY_ALARM} and the senderdevice {CANARY_CLIENT}",
        )


def _dead_letters_to_webhooks(contract: Contract) -> Iterator[Problem]:
    for route in contract.routes_at(Place.CLOUD):
        if contract.channel(route.destination).webhook and can_match(route.filter, of_type(DEAD_LETTER_TYPE)):
            yield Problem(
                f"routes.{route.name}",
                "it can lead dead letters to a webhook; one that the endpoint refuses stays in the inbox's "
                "dead-letter queue",
                "lead dead letters to an inbox that somebody reads",
            )


def _droppable_alarms(contract: Contract) -> Iterator[Problem]:
    for each in contract.event_types.values():
        if each.priority is Priority.URGENT and each.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT:
            yield Problem(
                f"event_types.{each.name}.delivery_guarantee",
                "the type is urgent, and its events may be dropped",
                "remove the setting, or give the type another priority",
            )


def _doubtful_mappings(contract: Contract) -> Iterator[Problem]:
    """Mappings that raise too many alarms or can lose one, or whose data lacks what the schema requires."""
    for each in contract.mappings:
        path = f"participants.{each.participant}.mappings.{each.name}"
        if each.is_urgent(contract) and not each.when:
            yield Problem(
                path,
                "every message on its topics is urgent, whatever it says",
                "name under `when` what makes it an alarm",
            )
        pointed = [name for name, value in each.attributes.items() if isinstance(value, Mapping)]
        for name in pointed if each.is_urgent(contract) else ():
            yield Problem(
                f"{path}.attributes.{name}",
                "an alarm with a value that the attribute may not have becomes a dead letter",
                "leave it out, or take it as a member of `data`; `time` is that of reception then",
            )
        event_type = contract.event_types[each.type]
        first = next(iter(event_type.schemas), None)
        schema = event_type.schemas.get(each.attributes.get("dataschema", first), {})
        missing = sorted({*schema.get("required", ())} - {*(each.data or ())})
        if each.data is not None and missing:
            yield Problem(
                f"{path}.data",
                f"the schema requires {', '.join(missing)}, which it does not give",
                "add it, or leave `data` out to pass the payload as it is",
            )


def _waiting_alarms(contract: Contract, takes: Takes) -> Iterator[Problem]:
    for route in contract.routes_at(Place.CLOUD):
        urgent = sorted(
            each.name
            for each in contract.event_types.values()
            if each.priority is Priority.URGENT and each.name in takes[route.name]
        )
        inbox = contract.channel(route.destination)
        if urgent and inbox.ordering is Ordering.SOURCE and inbox.transport is Transport.SQS:
            yield Problem(
                f"routes.{route.name}",
                f"it leads urgent events ({', '.join(urgent)}) to an ordered inbox, where they wait for the "
                "reader's `gap_timeout_s` behind one of the same sender that was lost",
                "lead it to an inbox with `ordering: none`, unless order is worth the wait",
            )


def _untaken_types(contract: Contract, takes: Takes) -> Iterator[Problem]:
    taken = frozenset[str]().union(*takes.values())
    for name in contract.event_types:
        if name not in taken:
            yield Problem(
                f"event_types.{name}",
                "no route takes it",
                "add a route, or remove the type if nobody sends it",
            )


def _unreached_readers(contract: Contract, reach: Reachability) -> Iterator[Problem]:
    """Types that their declared senders never bring to the end of a route that takes them, or to anybody."""
    relays = {contract.device.outbox.address, contract.device.inbox.address}
    for name in contract.event_types:
        senders = reach.rights.declared_senders(name)
        taking = [each for each in contract.routes if name in reach.takes[each.name]]
        if not senders or not taking:
            continue
        readers = {way.channel.address for each in senders for way in reach.ways(name, each)}
        missed = [each for each in taking if each.destination not in readers | relays]
        places = dict.fromkeys(place_of(each).where for each in senders)
        sent = f"{_listed(each.name for each in senders)} sends it {_listed(places)}"
        path = f"event_types.{name}"
        for there in ([each for each in missed if each.place is place] for place in Place):
            if there:
                ends = ", ".join(f"{each.destination} (route {each.name})" for each in there)
                why, remedy = _gap(contract, senders, there, taking)
                yield Problem(path, f"{sent}, and it never comes to {ends}: {why}", remedy)
        if not missed and not readers and name not in PLANE_TYPES:
            links = [each for each in taking if each.place in set(map(place_of, senders))]
            up_or_down = (
                f"{_listed(each.name for each in links)} takes it to the other side, where no route does"
            )
            yield Problem(
                path,
                f"{sent}, and nobody receives it: {up_or_down if links else 'no route there takes it'}",
                "add a route to an inbox, or leave it so if the archive is its only reader",
            )


def _gap(
    contract: Contract,
    senders: Sequence[Participant],
    missed: Sequence[Route],
    taking: Sequence[Route],
) -> tuple[str, str]:
    """Why events do not come from `senders` to the end of the routes `missed` at one place; the remedy."""
    place = missed[0].place
    if any(place_of(each) is place for each in senders):
        return "no sender passes their filters", "correct the filters, or leave the type out of them"
    link = contract.device.outbox if place is Place.CLOUD else contract.device.inbox
    passing = [each.name for each in taking if each.destination == link.address]
    if passing:
        why = f"the filters exclude those of {_listed(passing)}, by which it would come"
        return why, "correct the filters, or leave the type out of them"
    leave = f"leave it out of {_listed(each.name for each in missed)}"
    return f"no route to {link.address} takes it", ", or ".join(
        [*ways_to_lead(contract, link.address), leave]
    )


def _listed(names: Iterable[str], last: str = "and") -> str:
    return f" {last} ".join(names)


def _unlimited_subscribers(contract: Contract) -> Iterator[Problem]:
    """Cloud services without `may_subscribe`, where participants can subscribe by the API."""
    if SUBSCRIBERS not in contract.participants:
        return
    for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        if each.may_subscribe is None and not each.retired and each.name not in OWN_SERVICES:
            yield Problem(
                f"participants.{each.name}.may_subscribe",
                "it is missing, so that the participant can subscribe only to what its routes already take",
                "add the filter of the events that it may subscribe to",
            )


def _doubtful_filters(contract: Contract, takes: Takes) -> Iterator[Problem]:
    ours = reply_routes(contract.participants)
    for route in contract.routes:
        if route.name in ours:
            continue
        path = f"routes.{route.name}.filter"
        yield from _lint(route.filter, path)
        if contract.event_types:
            yield from _never_matching(route.filter, path, takes[route.name])
        answers = possible(route.filter, {})
        # The lint has reported that of a single expression.
        if len(answers) == 1 and not isinstance(route.filter, Expression):
            word, remedy = (
                ("every", "narrow it if that is not meant") if True in answers else ("no", "correct it")
            )
            yield Problem(path, f"{word} event passes this filter", remedy)


def _lint(filter: Filter, path: str) -> Iterator[Problem]:
    """The problems that the lint of expressions finds, at any place of the filter."""
    if isinstance(filter, Expression):
        for each in lint(filter):
            yield Problem(f"{path}.sql", each.message, each.remedy, each.excerpt)
    for part_path, part in _parts(filter, path):
        yield from _lint(part, part_path)


def _never_matching(filter: Filter, path: str, types: frozenset[str]) -> Iterator[Problem]:
    """The filter, or the alternatives in it, that fit none of the contract's `types`."""
    if not types and can_match(filter, {}):
        (dialect,) = to_document(filter)
        yield Problem(
            f"{path}.{dialect}",
            "it matches no event type of the contract",
            "correct the type, or declare the event type",
            filter.text if isinstance(filter, Expression) else "",
        )
    elif types and isinstance(filter, Any):
        for part_path, part in _parts(filter, path):
            # The whole takes what a part takes.
            yield from _never_matching(part, part_path, types_of(part, types))


def _repeated_routes(contract: Contract) -> Iterator[Problem]:
    first: dict[tuple[Filter, str], Route] = {}
    for route in contract.routes:
        earlier = first.setdefault((route.filter, route.destination), route)
        if earlier is not route:
            yield Problem(
                f"routes.{route.name}",
                f"it is the same as {earlier.name}, so its reader gets each event twice",
                "remove one of the two",
            )


def _parts(filter: Filter, path: str) -> Iterator[tuple[str, Filter]]:
    if isinstance(filter, Combination):
        dialect = type(filter).__name__.lower()
        for at, part in enumerate(filter.filters):
            yield f"{path}.{dialect}{'' if isinstance(filter, Not) else f'[{at}]'}", part


def _lost_order(contract: Contract, reach: Reachability) -> Iterator[Problem]:
    """Participants whose events come into an ordered inbox in the cloud in any order.

    A participant without `sends` is not reported, unless no participant on the device has it.
    """
    for address in sorted({each.destination for each in contract.routes_at(Place.CLOUD)}):
        inbox = contract.channel(address)
        if inbox.ordering is not Ordering.SOURCE:
            continue
        for sender in contract.participants.values():
            types = sorted(
                each
                for each in _sent(contract, sender, reach)
                if any(way.channel is inbox for way in reach.ways(each, sender))
            )
            if types and (wrong := _order_problem(contract, sender, inbox.transport)):
                problem, remedy = wrong
                yield Problem(
                    f"participants.{inbox.participant}.inbox.ordering",
                    f"{problem}, so that {', '.join(types)} of {sender.name} come in any order",
                    remedy,
                )
        if inbox.transport is Transport.SQS and any(
            can_match(each.filter, of_type(DEAD_LETTER_TYPE))
            for each in contract.routes_at(Place.CLOUD)
            if each.destination == address
        ):
            yield Problem(
                f"participants.{inbox.participant}.inbox.ordering",
                "routers do not number their dead letters, so that these come in any order",
                "lead dead letters to another inbox, or count on no order among them",
            )


def _sent(contract: Contract, sender: Participant, reach: Reachability) -> set[str]:
    """The types that `sender` declares, without dead letters."""
    if sender.kind is ParticipantKind.DEVICE and not any(
        each.sends is not None for each in contract.participants.values() if each.kind.is_on_device
    ):
        # No participant on the device declares what it sends: any of the types.
        return {*contract.event_types} - {DEAD_LETTER_TYPE}
    return {*reach.named_types(sender)} - {DEAD_LETTER_TYPE}


def _order_problem(
    contract: Contract, sender: Participant, transport: Transport | str
) -> tuple[str, str] | None:
    """Why events of `sender` have no order in an inbox of this `transport`, and what to do."""
    way = [sender.outbox, *([contract.device.outbox] if sender.kind.is_on_device else [])]
    is_unreliable = any(each.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT for each in way)
    if transport is Transport.SQS_FIFO:
        if sender.kind.is_on_device:
            return (
                "a FIFO queue keeps the order in which routers write, and a device's events come to them by "
                "standard queues",
                "use `transport: sqs`: the device numbers its events, and the reader's client library sorts",
            )
        if sender.outbox.transport is not Transport.SQS_FIFO and sender.name not in OWN_SERVICES:
            return (
                "its outbox is a standard queue",
                "use `transport: sqs_fifo` for the outbox, or `transport: sqs` for this inbox",
            )
    # A forwarder's own reports are stored whatever its outbox declares.
    elif is_unreliable and sender.kind is not ParticipantKind.DEVICE:
        return (
            "senders do not number events that a best-effort outbox may lose",
            "use `delivery_guarantee: at_least_once` for the outbox, or count on no order among them",
        )
    if sender.name in OWN_SERVICES:
        return (
            "the plane's own services do not number",
            "lead them to another inbox, or count on no order among them",
        )
    return None


def _misnamed_sends(contract: Contract) -> Iterator[Problem]:
    """Types under `sends` or `asks` that are none of the contract's. A family may be without members."""
    if not contract.event_types:
        return
    for participant in contract.participants.values():
        named = [("sends", each) for each in participant.sends or ()]
        for member, each in named + [("asks", each) for each in participant.asks]:
            if each not in contract.event_types and not each.endswith(".*"):
                yield Problem(
                    f"participants.{participant.name}.{member}",
                    f"{each} is no event type of the contract",
                    "correct the type, or declare the event type",
                )


def _unsent_types(contract: Contract) -> Iterator[Problem]:
    """Event types that nobody sends; none while a sender does not declare what it sends."""
    participants = contract.participants.values()
    written = {route.destination for route in contract.routes}
    silent = [each for each in participants if each.sends is None]
    if len(silent) == len(participants) or any(_is_sender(each, written) for each in silent):
        return
    for name in contract.event_types:
        # Dead letters are the routers' own; everybody may reply.
        if name not in (DEAD_LETTER_TYPE, REPLY_TYPE) and not any(
            each.may_send(name) or each.may_ask(name) for each in participants
        ):
            yield Problem(
                f"event_types.{name}",
                "no participant declares that it sends it",
                "add it to the `sends` of its sender, or remove the type",
            )


def _idle_scopes(contract: Contract, reach: Reachability) -> Iterator[Problem]:
    """Participants that may address more than one device, and send nothing that goes down."""
    for each in contract.participants.values():
        if each.may_address is not AddressScope.ONE and each.sends is not None and not reach.goes_down(each):
            yield Problem(
                f"participants.{each.name}.may_address",
                "the participant sends nothing that a route leads down to devices",
                "remove it, or add what it sends to `sends` and to a route",
            )


def _silent_senders(contract: Contract) -> Iterator[Problem]:
    """Participants whose outbox is in use and that do not declare what they send.

    None in a contract without any `sends`, which is older than the setting.
    """
    participants = contract.participants.values()
    if all(each.sends is None for each in participants):
        return
    written = {route.destination for route in contract.routes}
    for each in participants:
        if each.sends is None and _is_sender(each, written):
            yield Problem(
                f"participants.{each.name}.sends",
                "it is missing, so that the participant may send only types that nobody else names",
                "list the types of its events, or `[]` for none",
            )


def _is_sender(participant: Participant, written: set[str]) -> bool:
    """Whether its outbox is in use: it has settings, or the participant receives nothing and so must send.

    A device's outbox is the uplink, which routes write, also for a device without events of its own.
    """
    if participant.kind is ParticipantKind.DEVICE:
        return False
    return participant.inbox.address not in written or not is_default(participant.outbox, participant.kind)


def _relay_loops(contract: Contract, reach: Reachability) -> Iterator[Problem]:
    """Routes down to devices that take what comes from devices."""
    device = contract.device
    up = [each for each in contract.routes if each.destination == device.outbox.address]
    down = [each for each in contract.routes if each.destination == device.inbox.address]
    types = {
        each: of_type(each)
        for each in contract.event_types
        if any(sender.kind.is_on_device for sender in reach.rights.senders(each))
    }
    for back in down:
        loops = [each.name for each in up if _can_share(each, back, reach.takes, types, contract)]
        if loops:
            yield Problem(
                f"routes.{back.name}",
                f"it takes what {_listed(loops, 'or')} brings up from devices: a loop, where each such "
                "event becomes a dead letter",
                "let the filters exclude each other, by type or by an attribute",
            )


def _can_share(
    one: Route, other: Route, takes: Takes, types: Mapping[str, Attributes], contract: Contract
) -> bool:
    both = All((one.filter, other.filter))
    if not contract.event_types:
        return can_match(both, needed(both))
    shared = types.keys() & takes[one.name] & takes[other.name]
    return any(can_match(both, {**needed(both), **types[each]}) for each in shared)


@dataclass(frozen=True, slots=True)
class _Hop:
    """`sender` sends `event_type`, which `way` brings to its reader."""

    sender: str
    event_type: str
    way: Way

    @property
    def reader(self) -> str:
        return self.way.channel.participant

    def __str__(self) -> str:
        return f"{self.sender} sends {self.event_type} -> {self.way}"


def _service_loops(contract: Contract, reach: Reachability) -> Iterator[Problem]:
    """Services that can answer each other for ever, as far as they declare what they send.

    The contract does not declare whether a service answers: each loop is a possible one. Each participant is
    named in at least one loop, if it is in any.
    """
    hops = {each.name: list(_hops(contract, each, reach)) for each in contract.participants.values()}
    named: set[str] = set()
    for name in sorted(hops):
        loop = None if name in named else _shortest_loop(name, hops)
        if loop:
            named.update(each.sender for each in loop)
            yield Problem(
                f"participants.{name}.sends",
                f"a loop: {' -> '.join(str(each) for each in loop)} -> {name}",
                "let a route leave out the answer, by type or by an attribute, unless a service ends it",
            )


def _hops(contract: Contract, sender: Participant, reach: Reachability) -> Iterator[_Hop]:
    """One hop from `sender` to each of its readers."""
    known = {contract.device.name}  # the device reads nothing: it passes on what it gets
    for event_type in reach.named_types(sender):
        for way in reach.ways(event_type, sender):
            if way.channel.participant not in known:
                known.add(way.channel.participant)
                yield _Hop(sender.name, event_type, way)


def _shortest_loop(start: str, hops: Mapping[str, Sequence[_Hop]]) -> list[_Hop] | None:
    """The hops from `start` back to it, as few as there can be."""
    waiting: list[list[_Hop]] = [[each] for each in hops[start]]
    seen: set[str] = set()
    for path in waiting:
        reader = path[-1].reader
        if reader == start:
            return path
        if reader not in seen:
            seen.add(reader)
            waiting += [[*path, each] for each in hops[reader]]
    return None
