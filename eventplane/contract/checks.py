"""What is allowed in a contract and was hardly meant: the warnings of `make contract`.

A warning never stops a deploy. What the checks cannot know, they leave alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from eventplane.contract.channel_reader import is_default
from eventplane.contract.errors import Problem
from eventplane.contract.loops import relay_loops, service_loops
from eventplane.contract.model import Contract, Route
from eventplane.contract.order import lost_order
from eventplane.contract.paths import taken, types_of
from eventplane.contract.possibilities import Takes, can_match, of_type, possible
from eventplane.contract.replies import reply_routes
from eventplane.contract.sending import idle_reaches, misnamed_sends, silent_senders, unsent_types
from eventplane.contract.vocabulary import (
    DeliveryGuarantee,
    Ordering,
    ParticipantKind,
    Place,
    Priority,
    Transport,
)
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
