"""Subscriptions: routes that participants add to their own inboxes without another contract.

A table has an item for each (`eventplane.contract.subscription_table`). A router adds them to the contract in
force; the result has a version of its own, which the ledger names and the archive stores. Each route takes
only events that the participant may subscribe to, whoever wrote the item. docs/reference/client.md says what
is promised.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from eventplane.contract import Contract, Participant, ParticipantKind, Route
from eventplane.contract.canonical import ContractError, Problem, canonical_bytes
from eventplane.contract.compiler import compile_contract
from eventplane.contract.filter_reader import MixedLogic, read_filter
from eventplane.contract.possibilities import can_match, needed
from eventplane.filter_texts import steps, to_document
from eventplane.limits import MAX_CHEAP_STEPS, MAX_PARTICIPANT_STEPS
from eventplane.names import SUBSCRIBERS

IN_FORCE_S: Final = 30
"""How long after it was written a subscription is in force at the latest, seconds. Ours: a router that could
not read the subscriptions for so long gives back what is not urgent, until it has read them."""

MAX_FILTER_BYTES: Final = 8_192
"""Longest filter, bytes of canonical JSON. Ours: longer ones are lists, and belong in a contract."""

MAX_DOCUMENT_BYTES: Final = 8 * MAX_FILTER_BYTES
"""Longest document, bytes of canonical JSON. Ours: it has the filter in parts, and the sink."""

MAX_SUBSCRIPTIONS: Final = 1_000
"""Most subscriptions of a plane. Ours: a router reads them all each time, 1 MB at most."""

MAX_OWN: Final = 50
"""Most subscriptions of one participant. Ours: twenty participants can have so many each."""

MAX_NAME: Final = 64
"""Longest name of a subscription, characters. Ours: each record of the ledger has it."""

HTTP: Final = "HTTP"
SQS: Final = "SQS"
"""Protocols of a subscription's delivery: to an HTTPS endpoint, or into the participant's own inbox."""

_SUBSCRIBES: Final = "-subscribes-"
"""Separates participant and name in the name of a subscription's route."""

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Subscription:
    """The route `name` of `participant`; `filter` is canonical JSON, `created_at` RFC 3339.

    `document` is the API's request, as canonical JSON; '' where the participant wrote the item.
    `revision` counts its writes.
    """

    participant: str
    name: str
    filter: str
    created_at: str
    document: str = ""
    revision: int = field(default=0, compare=False)

    @property
    def route(self) -> str:
        """The name of its route in the contract."""
        return f"{self.participant}{_SUBSCRIBES}{self.name}"

    @property
    def properties(self) -> dict[str, Any]:
        """The members of `document`; none if it cannot be read."""
        try:
            document = json.loads(self.document or "{}")
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}

    @property
    def endpoint(self) -> str | None:
        """The URL that its events are posted to; None if they go to the participant's inbox."""
        properties = self.properties
        return str(properties.get("sink")) if properties.get("protocol") == HTTP else None

    @property
    def steps(self) -> int:
        """The most steps that its filter takes (`eventplane.filter_texts.steps`); 0 if it is malformed."""
        try:
            return steps(read_filter(_wanted(self), "filter", []))
        except ContractError:
            return 0

    @property
    def destination(self) -> str:
        """The address of the channel that its route leads to."""
        return f"{SUBSCRIBERS if self.endpoint else self.participant}.inbox"


def name_problem(name: str) -> Problem | None:
    """Return why a subscription cannot have the `name`, or None."""
    if len(name) > MAX_NAME:
        return Problem("name", f"it is longer than {MAX_NAME} characters", "shorten it")
    if not _NAME.fullmatch(name):
        remedy = "use lower-case letters, digits and single hyphens, a letter first"
        return Problem("name", f"{name!r} is not a name", remedy)
    return None


def new_subscription(
    participant: str, name: str, filter: object, created_at: str, document: str = ""
) -> Subscription:
    """Return a subscription that is valid by itself. Raises `ContractError` with all faults."""
    problems: list[Problem] = []
    if problem := name_problem(name):
        problems.append(problem)
    try:
        text = canonical_bytes(filter).decode()
    except (TypeError, ValueError, RecursionError) as error:
        text = ""
        problems.append(Problem("filter", f"not JSON: {error}", "use plain text"))
    if problem := _document_problem(document):
        problems.append(problem)
    # The length first: reading a filter takes far longer.
    if problem := _length_problem(text):
        problems.append(problem)
    else:
        read_filter(filter, "filter", problems)
    if problems:
        raise ContractError(f"subscription {name!r}", problems)
    return Subscription(participant, name, text, created_at, document)


def age(subscription: Subscription) -> tuple[str, str]:
    """Return the key to sort by, the oldest first: those are used where there are too many."""
    return subscription.created_at, subscription.route


def subscribed_routes(contract: Contract) -> tuple[Route, ...]:
    """Return the routes of `contract` that were made of subscriptions."""
    return tuple(each for each in contract.routes if _SUBSCRIBES in each.name)


def subscription_names(route: Route) -> tuple[str, str]:
    """Return the participant and the name of the subscription that `route` was made of."""
    participant, _, name = route.name.partition(_SUBSCRIBES)
    return participant, name


def subscribable(contract: Contract, participant: str) -> dict[str, Any] | None:
    """Return the filter of the events that `participant` may subscribe to, as a document; None for none.

    It is `may_subscribe`, or else the filters of the contract's own routes to the participant's inbox. Raises
    KeyError for a participant that the contract does not have.
    """
    subscriber = contract.participants[participant]
    if subscriber.may_subscribe is not None:
        return to_document(subscriber.may_subscribe)
    added = subscribed_routes(contract)
    filters = {
        canonical_bytes(to_document(each.filter))
        for each in contract.routes
        if each.destination == subscriber.inbox.address and each not in added
    }
    own = [json.loads(each) for each in sorted(filters)]
    return {"any": own} if len(own) > 1 else next(iter(own), None)


def granted_filter(contract: Contract, subscription: Subscription) -> dict[str, Any]:
    """Return the filter of the subscription's route: its own, limited to what its participant may.

    Raises `ContractError` if the participant may subscribe to nothing, or to none of what it asks for, and
    for a malformed filter.
    """
    wanted = _wanted(subscription)
    allowed = subscribable(contract, subscription.participant)
    problems: list[Problem] = []
    if allowed is None:
        problems.append(
            Problem(
                "participant",
                f"{subscription.participant!r} may subscribe to nothing: no route leads to it",
                "have `may_subscribe` added to it in the contract",
            )
        )
        granted: dict[str, Any] = {}
    else:
        # The right first, so that an event that is not allowed costs no more than that.
        granted = wanted if wanted == allowed else {"all": [allowed, wanted]}
        # The whole is nested one level deeper than each of the two.
        whole = read_filter(granted, "filter", problems)
        own = read_filter(wanted, "filter", problems)
        # The right of a contract that was compiled before it was refused; a new subscription is checked.
        problems = [each for each in problems if not isinstance(each, MixedLogic)]
        if not problems and can_match(own, needed(own)) and not can_match(whole, needed(whole)):
            problems.append(
                Problem(
                    "filter",
                    f"{subscription.participant!r} may subscribe to no such event",
                    "ask for others, or have `may_subscribe` widened in the contract",
                )
            )
    if problems:
        raise ContractError(f"subscription {subscription.name!r}", problems)
    return granted


def with_subscriptions(
    contract: Contract, subscriptions: Iterable[Subscription], queues: Collection[str] | None = None
) -> tuple[Contract, dict[Subscription, Problem]]:
    """Return `contract` with the routes of `subscriptions`, and the refused ones, each with its problem.

    Each route takes only what its participant may subscribe to (`granted_filter`). Of one participant only
    the oldest `MAX_OWN` are read, valid or not. A refused one does not affect the others. `queues` are the
    addresses of the channels that have a queue (None: unknown); a route to another one is refused. Without
    any the contract is returned as it is.
    """
    document = json.loads(contract.canonical)
    routes = document["routes"]
    refused: dict[Subscription, Problem] = {}
    own: Counter[str] = Counter()
    work: Counter[str] = Counter()
    added = 0
    for each in sorted(subscriptions, key=age):
        if added == MAX_SUBSCRIPTIONS:
            refused[each] = Problem(each.route, f"more than {MAX_SUBSCRIPTIONS}", "put it into the contract")
            continue
        if own[each.participant] == MAX_OWN:
            refused[each] = Problem(each.route, f"more than {MAX_OWN} of one participant", "delete one")
            continue
        # A refused one counts as well: reading it takes as long.
        own[each.participant] += 1
        if isinstance(granted := _granted(contract, each, routes), Problem):
            refused[each] = granted
        elif queues is not None and each.destination not in queues:
            refused[each] = Problem(each.route, f"{each.destination} has no queue", "deploy the contract")
        elif work[each.participant] + (cost := each.steps) > MAX_PARTICIPANT_STEPS:
            message = f"more than {MAX_PARTICIPANT_STEPS:,} steps for all of one participant"
            refused[each] = Problem(each.route, message, "delete or simplify one")
        else:
            work[each.participant] += cost
            routes[each.route] = {"filter": granted, "to": each.destination}
            added += 1
    if not added:
        return contract, refused
    origin = f"contract {contract.version} with {added} subscriptions"
    return _compiled(canonical_bytes(document), origin), refused


@lru_cache(maxsize=16)
def _compiled(document: bytes, origin: str) -> Contract:
    """Return the contract: what several look at, or what comes back, is compiled once in a process."""
    return compile_contract(json.loads(document), origin, is_derived=True)


def has_costly(contract: Contract) -> bool:
    """Return whether participants added filters that take more than `limits.MAX_CHEAP_STEPS`."""
    return bool(_costly_routes(contract) or _costly_interests(contract))


def without_costly(contract: Contract) -> Contract:
    """Return `contract` without the costly filters of subscriptions and announced interest.

    A router uses it for a message whose filters exceed their time.
    """
    document = json.loads(contract.canonical)
    for name in _costly_interests(contract):
        del document["routes"][name]["interest"]
    for name in _costly_routes(contract):
        del document["routes"][name]
    origin = f"contract {contract.version} without costly filters"
    return compile_contract(document, origin, is_derived=True)


def without_added(contract: Contract) -> Contract:
    """Return `contract` as it was published: without subscriptions and announced interest."""
    document = json.loads(contract.canonical)
    for each in subscribed_routes(contract):
        del document["routes"][each.name]
    for route in document["routes"].values():
        route.pop("interest", None)
    return _compiled(canonical_bytes(document), f"contract {contract.version} as it was published")


def _costly_routes(contract: Contract) -> list[str]:
    return [each.name for each in subscribed_routes(contract) if steps(each.filter) > MAX_CHEAP_STEPS]


def _costly_interests(contract: Contract) -> list[str]:
    return [each.name for each in contract.routes if each.interest and steps(each.interest) > MAX_CHEAP_STEPS]


def _granted(
    contract: Contract, subscription: Subscription, routes: dict[str, Any]
) -> dict[str, Any] | Problem:
    """Return the filter of its route, or why it cannot be added to `routes`."""
    if not _is_in_use(contract.participants.get(subscription.participant)):
        return Problem("participant", "it is no cloud service that is in use", "name one of the contract")
    if subscription.route in routes:
        return Problem("name", f"there is a route {subscription.route!r}", "use another name")
    if problem := _document_problem(subscription.document):
        return problem
    try:
        if subscription.endpoint and not _is_in_use(contract.participants.get(SUBSCRIBERS)):
            return Problem("protocol", f"there is no participant {SUBSCRIBERS!r}", "add it to the contract")
        _check_stored(subscription)
        return granted_filter(contract, subscription)
    except ContractError as error:
        return error.problems[0]
    except (ValueError, RecursionError) as error:
        return Problem("filter", f"it cannot be read: {error}", "subscribe again")


def _check_stored(subscription: Subscription) -> None:
    """Raise `ContractError` for a subscription in the table that is not valid by itself.

    It may mix AND, OR and XOR: it was valid when it was made, and its participant relies on it.
    """
    try:
        wanted = _wanted(subscription)
        new_subscription(subscription.participant, subscription.name, wanted, subscription.created_at)
    except ContractError as error:
        if any(not isinstance(each, MixedLogic) for each in error.problems):
            raise


def _wanted(subscription: Subscription) -> Any:
    """Return its filter as a document. Raises `ContractError` if the text is malformed or too long."""
    problem = _length_problem(subscription.filter)
    if problem is None:
        try:
            return json.loads(subscription.filter)
        except (ValueError, RecursionError) as error:
            problem = Problem("filter", f"not JSON: {error}", "subscribe again")
    raise ContractError(f"subscription {subscription.name!r}", [problem])


def _length_problem(text: str, path: str = "filter", most: int = MAX_FILTER_BYTES) -> Problem | None:
    if len(text) <= most and len(text.encode(errors="replace")) <= most:
        return None
    return Problem(path, f"it is longer than {most} bytes", "simplify it")


def _document_problem(document: str) -> Problem | None:
    return _length_problem(document, "document", MAX_DOCUMENT_BYTES)


def _is_in_use(participant: Participant | None) -> bool:
    """Return whether it is a cloud service whose inbox a route may lead to."""
    return (
        participant is not None
        and participant.kind is ParticipantKind.CLOUD_SERVICE
        and not participant.retired
    )
