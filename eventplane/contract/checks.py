"""What is allowed in a contract and was hardly meant: the warnings of `make contract`.

A warning never stops a deploy. What the checks cannot know, they leave alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from eventplane.contract.channels import is_default
from eventplane.contract.model import (
    Contract,
    DeliveryGuarantee,
    Ordering,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    Reach,
    Route,
    Transport,
)
from eventplane.contract.participants import reply_routes
from eventplane.contract.possibilities import Takes, can_match, of_type, possible
from eventplane.contract.reach import relay_loops, sends_down, service_loops, taken, types_of
from eventplane.contract.reader import Problem
from eventplane.conversation.attributes import REPLY_TYPE
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.filters import All, Any, Filter, Not, Sql, to_document
from eventplane.names import OWN_SERVICES, SUBSCRIBERS


def check(contract: Contract) -> tuple[Problem, ...]:
    """Every warning about a compiled `contract`: place, what is doubtful, what to do."""
    takes = taken(contract)
    return (
        *_unreachable_channels(contract),
        *lost_order(contract, takes),
        *_waiting_alarms(contract, takes),
        *_letters_to_webhooks(contract),
        *_droppable_alarms(contract),
        *_untaken_types(contract, takes),
        *misnamed_sends(contract),
        *unsent_types(contract),
        *silent_senders(contract),
        *idle_reaches(contract),
        *_unlimited_subscribers(contract),
        *_doubtful_filters(contract, takes),
        *_repeated_routes(contract),
        *relay_loops(contract, takes),
        *service_loops(contract, takes),
    )


def _unreachable_channels(contract: Contract) -> Iterator[Problem]:
    written = {route.destination for route in contract.routes}
    for each in contract.participants.values():
        # Nobody misses what leads to an inbox that the contract says nothing of; in the cloud it is a queue,
        # and wanted unless its participant is known to be a sender.
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


def _letters_to_webhooks(contract: Contract) -> Iterator[Problem]:
    for route in contract.routes_at(Place.CLOUD):
        if contract.channel(route.destination).webhook and can_match(route.filter, of_type(DEAD_LETTER_TYPE)):
            yield Problem(
                f"routes.{route.name}",
                "it can lead dead letters to a webhook; one that the endpoint refuses waits in the inbox's "
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


def _unlimited_subscribers(contract: Contract) -> Iterator[Problem]:
    """Cloud services without `may_subscribe`, where participants can subscribe by the API."""
    if SUBSCRIBERS not in contract.participants:
        return
    for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        if each.may_subscribe is None and not each.retired and each.name not in OWN_SERVICES:
            yield Problem(
                f"participants.{each.name}.may_subscribe",
                "it is missing, so that the participant can subscribe only to what its routes already take",
                "say which events it may subscribe to",
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
        # Of one expression alone the lint has said so.
        if len(answers) == 1 and not isinstance(route.filter, Sql):
            word, remedy = (
                ("every", "narrow it if that is not meant") if True in answers else ("no", "correct it")
            )
            yield Problem(path, f"{word} event passes this filter", remedy)


def _lint(filter: Filter, path: str) -> Iterator[Problem]:
    """What the expressions' own lint says, wherever they stand in the filter."""
    if isinstance(filter, Sql):
        # Only a contract with an expression pays for loading the language.
        from eventplane.cesql import lint

        for each in lint(filter.expression):
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
            _excerpt(filter),
        )
    elif types and isinstance(filter, Any):
        for part_path, part in _parts(filter, path):
            # What a part takes, the whole takes as well.
            yield from _never_matching(part, part_path, types_of(part, types))


def _excerpt(filter: Filter) -> str:
    return filter.expression.text if isinstance(filter, Sql) else ""


def _repeated_routes(contract: Contract) -> Iterator[Problem]:
    first: dict[tuple[Filter, str], Route] = {}
    for route in contract.routes:
        earlier = first.setdefault((route.filter, route.destination), route)
        if earlier is not route:
            yield Problem(
                f"routes.{route.name}",
                f"it says the same as {earlier.name}, so its reader gets each event twice",
                "remove one of the two",
            )


def _parts(filter: Filter, path: str) -> Iterator[tuple[str, Filter]]:
    if isinstance(filter, Not):
        yield f"{path}.not", filter.filter
    elif isinstance(filter, All | Any):
        dialect = type(filter).__name__.lower()
        for at, part in enumerate(filter.filters):
            yield f"{path}.{dialect}[{at}]", part


def lost_order(contract: Contract, takes: Takes) -> Iterator[Problem]:
    """Participants whose events an ordered inbox in the cloud gets in any order; `takes` is from `taken`.

    What a participant sends is known by its `sends`; of one that does not say, nothing is reported, but where
    nobody on the device says it.
    """
    for address in sorted({each.destination for each in contract.routes_at(Place.CLOUD)}):
        inbox = contract.channel(address)
        if inbox.ordering is not Ordering.SOURCE:
            continue
        led = [each for each in contract.routes_at(Place.CLOUD) if each.destination == address]
        for sender in contract.participants.values():
            types = sorted(
                each
                for each in _sent(contract, sender)
                if any(
                    each in takes[route.name]
                    if each in contract.event_types
                    else can_match(route.filter, of_type(each))
                    for route in led
                )
            )
            if types and (wrong := _problem(contract, sender, inbox.transport)):
                problem, remedy = wrong
                yield Problem(
                    f"participants.{inbox.participant}.inbox.ordering",
                    f"{problem}, so that {', '.join(types)} of {sender.name} come in any order",
                    remedy,
                )
        if inbox.transport is Transport.SQS and any(
            can_match(each.filter, of_type(DEAD_LETTER_TYPE)) for each in led
        ):
            yield Problem(
                f"participants.{inbox.participant}.inbox.ordering",
                "routers do not number their dead letters, so that these come in any order",
                "lead dead letters to another inbox, or count on no order among them",
            )


def _sent(contract: Contract, sender: Participant) -> set[str]:
    """The types that `sender` declares, and that come as far as the cloud's router."""
    if sender.kind is ParticipantKind.DEVICE and not any(
        each.sends is not None for each in contract.participants.values() if each.kind.is_on_device
    ):
        # Nobody on the device says what it sends: any of the types.
        types = set(contract.event_types)
    else:
        types = {each for each in contract.event_types if sender.may_send(each)}
    types |= {each for each in sender.sends or () if not each.endswith(".*")}
    types.discard(DEAD_LETTER_TYPE)
    if not sender.kind.is_on_device:
        return types
    uplink = contract.device.outbox.address
    up = [each.filter for each in contract.routes if each.destination == uplink]
    return {each for each in types if any(can_match(filter, of_type(each)) for filter in up)}


def _problem(contract: Contract, sender: Participant, transport: Transport | str) -> tuple[str, str] | None:
    """Why what `sender` sends has no order in an inbox of this `transport`, and what to do."""
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
    # A forwarder's own reports are stored whatever its outbox says.
    elif is_unreliable and sender.kind is not ParticipantKind.DEVICE:
        return (
            "senders do not number what a best-effort outbox may lose",
            "use `delivery_guarantee: at_least_once` for the outbox, or count on no order among them",
        )
    if sender.name in OWN_SERVICES:
        return (
            "the plane's own services do not number",
            "lead them to another inbox, or count on no order among them",
        )
    return None


def misnamed_sends(contract: Contract) -> Iterator[Problem]:
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


def unsent_types(contract: Contract) -> Iterator[Problem]:
    """Event types that nobody sends; nothing is said while a participant that sends does not say what."""
    participants = contract.participants.values()
    written = {route.destination for route in contract.routes}
    silent = [each for each in participants if each.sends is None]
    if len(silent) == len(participants) or any(_is_sender(each, written) for each in silent):
        return
    for name in contract.event_types:
        # Dead letters are the routers' own; everybody may reply.
        if name not in (DEAD_LETTER_TYPE, REPLY_TYPE) and not any(
            each.may_send(name) for each in participants
        ):
            yield Problem(
                f"event_types.{name}",
                "no participant declares that it sends it",
                "add it to the `sends` of who does, or remove the type",
            )


def idle_reaches(contract: Contract) -> Iterator[Problem]:
    """Participants that may address more than one device, and send nothing that goes down."""
    for each in contract.participants.values():
        if each.may_address is not Reach.ONE and each.sends is not None and not sends_down(contract, each):
            yield Problem(
                f"participants.{each.name}.may_address",
                "the participant sends nothing that a route leads down to devices",
                "remove it, or add what it sends to `sends` and to a route",
            )


def silent_senders(contract: Contract) -> Iterator[Problem]:
    """Participants whose outbox is in use and that do not say what they send.

    Nothing is said of a contract where nobody says it: it is of the time before `sends`.
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

    A device's outbox is the uplink, which routes write, whether the device has events of its own or not.
    """
    if participant.kind is ParticipantKind.DEVICE:
        return False
    return participant.inbox.address not in written or not is_default(participant.outbox, participant.kind)
