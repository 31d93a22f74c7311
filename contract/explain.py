"""Explain the routing of an event: its receivers, and each condition that each route decided by.

`explain` asks each filter itself whether it matches, as the router does; the conditions below say why. Where
the reader of a route has announced what it handles, that is asked as well. `outcomes` follows the event over
every hop, with the sender that each hop stamps. Not judged: expiry, and which devices and groups there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any as Json

from eventplane.account import Fate
from eventplane.attributes import Attributes, AttributeValue
from eventplane.cesql import tree, write
from eventplane.cesql.expression import Evaluation, evaluate
from eventplane.cesql.tree import Node
from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    ParticipantKind,
    Place,
    Route,
)
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal
from eventplane.downlink.addressing import addressed
from eventplane.downlink.rights import DownlinkRights
from eventplane.downlink.wire import DownlinkError
from eventplane.envelope import THE_PLANE, Envelope, Sender, parse_sender
from eventplane.filter_texts import filter_text
from eventplane.filters import All, Combination, Filter, Not, Term
from eventplane.guarantee import guarantee_of
from eventplane.interest import is_wanted
from eventplane.names import SENDER_ATTRIBUTES, SENDER_DEVICE
from eventplane.reach import place_of, sequences, ways_to_lead
from eventplane.sending import SendingRights
from eventplane.values import MAX_TIME_MS


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition: `text` in words, whether it `matched`, and why.

    `values` are the attributes that it reads itself, None for a missing one; `parts` the conditions that it
    joins. `gives` and `errors` are an expression's: its value, and what erred, in that order.
    """

    text: str
    matched: bool
    values: Mapping[str, AttributeValue | None]
    gives: AttributeValue | None = None
    errors: tuple[str, ...] = ()
    parts: tuple[Clause, ...] = ()

    def document(self) -> dict[str, Json]:
        """Return the condition as JSON; a missing attribute is null."""
        return {
            "text": self.text,
            "matched": self.matched,
            "values": dict(self.values),
            "gives": self.gives,
            "errors": list(self.errors),
            "parts": [each.document() for each in self.parts],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision of `route` about an event, and the reasons.

    `guarantee` is that of the delivery. `interest` is what its reader announced (None: nothing); what is not
    `wanted` is not forwarded. Conditions are put into words for whoever asks.
    """

    route: Route
    attributes: Attributes
    matched: bool
    guarantee: DeliveryGuarantee
    wanted: bool = True

    @property
    def condition(self) -> Clause:
        return explain_filter(self.route.filter, self.attributes)

    @property
    def interest(self) -> Clause | None:
        interest = self.route.interest
        return None if interest is None else explain_filter(interest, self.attributes)

    @property
    def forwarded(self) -> bool:
        """True if the event goes to the route's destination, unless it has expired."""
        return self.matched and self.wanted

    def document(self) -> dict[str, Json]:
        """Return the explanation as JSON."""
        return {
            "route": self.route.name,
            "place": self.route.place.value,
            "to": self.route.destination,
            "matched": self.matched,
            "filter": self.condition.document(),
            "interest": self.interest and self.interest.document(),
            "forwarded": self.forwarded,
            "delivery_guarantee": self.guarantee.value,
        }


def explain(contract: Contract, event: Envelope, place: Place | None = None) -> tuple[Explanation, ...]:
    """Every route of `contract`, or of the router of one `place`, by name.

    The channel that an event came over decides about its guarantee, and about its priority where nothing
    else does. It is the outbox of the sender that the event names, otherwise the device's.
    """
    routes = contract.routes if place is None else contract.routes_at(place)
    return tuple(_explanation(contract, each, event) for each in routes)


def _explanation(contract: Contract, route: Route, event: Envelope) -> Explanation:
    over = _channel(contract, event, route.place)
    matched = route.filter.matches(event.attributes)
    guarantee = guarantee_of(contract, event, over, route)
    wanted = route.interest is None or is_wanted(route.interest, event, contract.priority(event, over))
    return Explanation(route, event.attributes, matched, guarantee, wanted)


def _channel(contract: Contract, event: Envelope, place: Place) -> Channel:
    """Return the channel over which the event comes to the router of `place`."""
    sender = contract.participants.get(event.sender.service)
    decides = ParticipantKind.DEVICE_SERVICE if place is Place.DEVICE else ParticipantKind.CLOUD_SERVICE
    return sender.outbox if sender is not None and sender.kind is decides else contract.device.outbox


def explain_filter(filter: Filter, attributes: Attributes) -> Clause:
    """Return the answer of `filter` for an event with these `attributes`, down to its last condition.

    Of an expression that is its value and errors; its parts are what AND and OR join. Each is judged as if it
    were alone, also where the whole was decided before its turn; the errors of the whole are those that
    counted.
    """
    if isinstance(filter, Combination):
        text = "not" if isinstance(filter, Not) else "all of" if isinstance(filter, All) else "any of"
        parts = tuple(explain_filter(each, attributes) for each in filter.filters)
        return Clause(text, filter.matches(attributes), {}, parts=parts)
    text = filter_text(filter)
    if isinstance(filter, Term):
        held = {filter.attribute: attributes.get(filter.attribute)}
        return Clause(text, filter.matches(attributes), held)
    result = filter.evaluate(attributes)
    return _sql_condition(f"sql {text}", filter.tree, result, attributes)


def _sql_condition(text: str, node: Node, result: Evaluation, attributes: Attributes) -> Clause:
    joined = _joined(node)
    names = () if joined else sorted(tree.names(node))
    return Clause(
        text,
        result.passes,
        {name: attributes.get(name) for name in names},
        result.value,
        tuple(f"{each.kind}: {each}" for each in result.errors),
        tuple(
            _sql_condition(write(each), each, evaluate(each, attributes).as_condition(), attributes)
            for each in joined
        ),
    )


def _joined(node: Node) -> list[Node]:
    """What one AND or OR joins, in the order of the text; nothing for any other condition."""
    if not isinstance(node, tree.Logic) or node.operator == "XOR":
        return []
    operator, parts = node.operator, []
    left: Node = node
    # `a AND b AND c` is ((a AND b) AND c): three parts of one list.
    while isinstance(left, tree.Logic) and left.operator == operator:
        parts.append(left.right)
        left = left.left
    return [left, *reversed(parts)]


@dataclass(frozen=True, slots=True)
class Reached:
    """An event comes into `channel` over `hops`, the routes that it takes, in their order."""

    channel: Channel
    hops: tuple[Explanation, ...]

    @property
    def guarantee(self) -> DeliveryGuarantee:
        """At best effort if one hop is."""
        guarantees = {each.guarantee for each in self.hops}
        return max(guarantees, key=lambda each: each is DeliveryGuarantee.BEST_EFFORT)

    def document(self) -> dict[str, Json]:
        """Return it as JSON."""
        return {
            "participant": self.channel.participant,
            "channel": self.channel.address,
            "routes": [each.route.name for each in self.hops],
            "delivery_guarantee": self.guarantee.value,
        }


@dataclass(frozen=True, slots=True)
class Reception:
    """The receivers of an event from `sender` ('': none may send it), or why there are none (`problem`).

    `routes` are all routes of the contract, explained for the event with the sender's stamps. `refused` is
    why the plane refuses it, or, where it has `receipts` on the device, why the cloud does. `not_down` is why
    no device takes the event from its inbox, to which a route leads it.
    """

    sender: str
    routes: tuple[Explanation, ...]
    receipts: tuple[Reached, ...] = ()
    problem: str = ""
    remedy: str = ""
    not_down: Refusal | None = None
    refused: Refusal | None = None

    @property
    def fate(self) -> Fate:
        """The fate of the event, in a word of the account."""
        if self.receipts:
            return Fate.IN_INBOX
        is_refused = not self.sender or self.not_down or self.refused
        return Fate.REFUSED if is_refused else Fate.DROPPED

    def document(self) -> dict[str, Json]:
        """Return the outcome as JSON; `nobody` is null where somebody receives the event."""
        return {
            "sender": self.sender or None,
            "received_by": [each.document() for each in self.receipts],
            "fate": self.fate.value,
            "nobody": {"because": self.problem, "remedy": self.remedy} if self.problem else None,
            "not_down": self.not_down and self.not_down._asdict(),
            "refused": self.refused and self.refused._asdict(),
        }


def outcomes(
    contract: Contract, event: Envelope, sender: str = "", payload: Refusal | None = None
) -> tuple[Reception, ...]:
    """Return what becomes of `event`, once for each sender that it can have.

    `sender` names one: a participant, `home-1/bell` for a service on a device, or `home-1/` for the device as
    a whole. Without it, that is the sender that the event has stamped, otherwise those participants that
    declare its type under `sends` or `asks`, otherwise those that may send it. `payload` is why the cloud
    refuses its payload (`contract.loader.check_payload`).
    """
    rights = SendingRights(contract)
    stamped = event.sender
    if sender and sender not in (stamped.service, str(stamped)):
        stamped = parse_sender(sender)
    event = event.without(SENDER_ATTRIBUTES)
    if stamped != Sender():
        senders = [stamped]
    elif event.type == DEAD_LETTER_TYPE:
        # Others may send dead letters too, about their own channels; these are rare.
        senders = [THE_PLANE, Sender(service=contract.device.name)]
    else:
        may = rights.declared_senders(event.type) or rights.senders(event.type)
        senders = [Sender(service=each.name) for each in may]
    if senders:
        return tuple(_outcome(contract, event, rights, each, payload) for each in senders)
    problem, remedy = f"no participant may send {event.type}", "add it to the `sends` of its sender"
    return (Reception("", explain(contract, event), problem=problem, remedy=remedy),)


def _outcome(
    contract: Contract, event: Envelope, rights: SendingRights, sender: Sender, payload: Refusal | None
) -> Reception:
    stamped = event.stamped(**sender.attributes)
    journey = _Journey(contract, stamped, payload)
    found = partial(Reception, str(sender), journey.routes, not_down=journey.not_down)
    if refusal := rights.refusal(stamped):
        problem, remedy = _problem(refusal)
        return found(problem=f"it is refused {problem}", remedy=remedy, refused=refusal)
    if receipts := tuple(journey.receipts()):
        return found(receipts, refused=journey.refused)
    problem, remedy = journey.obstacle()
    return found(problem=problem, remedy=remedy, refused=journey.refused)


def _problem(refusal: Refusal) -> tuple[str, str]:
    """Return what is wrong, and what to do, of a refusal."""
    problem, mark, remedy = refusal.detail.rpartition("; ")
    return f"({refusal.reason}): {problem if mark else remedy}", remedy if mark else "correct the sender"


class _Journey:
    """The hops of one event with its `sender`, which may be the plane, or a device without a forwarder."""

    def __init__(self, contract: Contract, event: Envelope, payload: Refusal | None) -> None:
        self._contract = contract
        self._event = event
        self._payload = payload
        self._uplink = contract.device.outbox
        self._downlink = contract.device.inbox
        participant = contract.participants.get(event.sender.service)
        on_device = participant is not None and participant.kind.is_on_device
        self._is_from_device = on_device or bool(event.sender.device)
        self._routes = {place: explain(contract, self._at(place), place) for place in Place}
        self._entry = Place.CLOUD if participant is None else place_of(participant)
        is_report = participant is not None and participant.kind is ParticipantKind.DEVICE
        if is_report and not any(each.matched for each in self._routes[Place.DEVICE]):
            # A forwarder sends its own reports up, also without a route.
            self._entry = Place.CLOUD
        leads_down = any(
            each.route.destination == self._downlink.address for each in self._taken(Place.CLOUD)
        )
        self.not_down = self._refusal_down() if leads_down and not self._is_from_device else None
        """Why no device takes the event from its inbox, to which a route leads it."""

    @property
    def routes(self) -> tuple[Explanation, ...]:
        """Every route, in the contract's order."""
        found = {each.route.name: each for place in Place for each in self._routes[place]}
        return tuple(found[each.name] for each in self._contract.routes)

    @property
    def refused(self) -> Refusal | None:
        """Why the cloud refuses the payload, if the event comes there."""
        links = (each.route.destination == self._uplink.address for each in self._taken(self._entry))
        return self._payload if self._entry is Place.CLOUD or any(links) else None

    def _at(self, place: Place) -> Envelope:
        """Return the event as the router of `place` sees it: only the cloud's stamps the device."""
        if not self._is_from_device:
            return self._event
        if place is Place.DEVICE:
            return self._event.without((SENDER_DEVICE,))
        # Any name where the device is not known, as every event from a device has one.
        device = self._event.sender.device or self._contract.device.name
        return self._event.with_attributes({SENDER_DEVICE: device})

    def _refusal_down(self) -> Refusal | None:
        """Return why the downlink refuses the event, as far as that does not depend on fleet or clock."""
        inbox = self._downlink
        try:
            kind = self._contract.downlink(self._event.type)
            wanted = addressed(self._event, kind, MAX_TIME_MS, inbox.expiry_s)
        except DownlinkError as error:
            return Refusal(error.reason, error.detail)
        participant = self._contract.participants.get(self._event.sender.service)
        scope = () if participant is None else participant.may_address
        # The fleet knows the groups of a device; here it is in each that the sender may address.
        groups = scope if isinstance(scope, tuple) else ()
        return DownlinkRights(self._contract).refusal(self._event, wanted, groups)

    def receipts(self) -> Iterator[Reached]:
        """Return the channels that the event comes into."""
        taken = {each.route.name: each for place in Place for each in self._taken(place)}
        for routes in sequences(
            self._contract, self._entry, self._is_from_device, lambda routes: routes[-1].name in taken
        ):
            channel = self._contract.channel(routes[-1].destination)
            goes_down = any(each.destination == self._downlink.address for each in routes)
            if channel is not self._uplink and not (goes_down and self.not_down):
                yield Reached(channel, tuple(taken[each.name] for each in routes))

    def _taken(self, place: Place) -> list[Explanation]:
        if place is Place.CLOUD and self._payload:
            return []
        return [each for each in self._routes[place] if each.forwarded]

    def obstacle(self) -> tuple[str, str]:
        """Return why nobody receives the event, and what to do."""
        if self.not_down:
            problem, remedy = _problem(self.not_down)
            return f"{self._downlink.address} refuses it {problem}", remedy
        if self.refused:
            return f"it is refused {_problem(self.refused)[0]}", "correct the payload, or its schema"
        taken = self._taken(self._entry)
        links = [each for each in taken if each.route.destination == self._uplink.address]
        visited = [Place.DEVICE, Place.CLOUD] if links else [self._entry]
        unwanted = [
            each for place in visited for each in self._routes[place] if each.matched and not each.wanted
        ]
        if unwanted:
            problem = f"the reader of {_routes(unwanted)} announced no interest in it"
            return problem, "let it announce what it handles, or nothing"
        if links and not self._taken(Place.CLOUD):
            problem = f"{_routes(links)} takes it to the cloud, where no route takes it"
            return problem, "add a route to an inbox, or correct the filter of one"
        if taken:
            return "what comes from a device does not go down to devices", "send it from a cloud service"
        other = Place.DEVICE if self._entry is Place.CLOUD else Place.CLOUD
        link = self._uplink if other is Place.CLOUD else self._downlink
        beyond = [each for each in self._taken(other) if each.route.destination != self._uplink.address]
        if not beyond or (self._is_from_device and other is Place.DEVICE):
            problem = f"no route {self._entry.where} takes it"
            return problem, "add a route to an inbox, or correct the filter of one"
        problem = (
            f"no route {self._entry.where} takes it to {link.address} ({_routes(beyond)} would take it "
            f"{other.where})"
        )
        return problem, ", or ".join(ways_to_lead(self._contract, link.address))


def _routes(explanations: Sequence[Explanation]) -> str:
    return " and ".join(each.route.name for each in explanations)
