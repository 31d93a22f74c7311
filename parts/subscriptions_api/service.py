"""The operations on a participant's subscriptions: create, retrieve, query, update, delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

from eventplane.contract import Contract, ContractError, Problem
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.subscription import (
    MAX_OWN,
    MAX_SUBSCRIPTIONS,
    Subscription,
    granted_filter,
    name_problem,
    new_subscription,
)
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.limits import MAX_PARTICIPANT_STEPS
from eventplane.sinks import SinkReach
from eventplane.values import RandomBytes, timestamp_of_ms
from lambdas.common.http_api import if_match_names, if_none_match_names, tag_of
from lambdas.common.system import Clock
from parts.subscriptions_api.document import Proposal, read_proposal, written
from parts.subscriptions_api.errors import (
    InvalidError,
    LimitError,
    NotFoundError,
    PreconditionError,
    TakenError,
)
from parts.webhooks.endpoint import ForbiddenTargetError, HttpSink, UnreachableError
from parts.webhooks.handshake import ask_consent

AsksConsent = Callable[[str, int | None], int | None]
"""Asks the endpoint at a URL for consent to so many requests a minute (None: no limit); how many it allows.

Raises `InvalidError` where it does not consent.
"""

CONSENT_TIMEOUT_S: Final = 5
"""How long a sink may take to answer, seconds."""

ATTEMPTS: Final = 5
"""How often a writer without a condition tries again; writers of one subscription are rare."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """If-Match and If-None-Match of a request, '' where it has none; entity tags, or an asterisk."""

    match: str = ""
    none_match: str = ""

    def check(self, tag: str | None) -> None:
        """Raises `PreconditionError` unless what is there, with the entity `tag`, is as the request wants."""
        if self.match and not if_match_names(self.match, tag):
            raise PreconditionError("it is not what If-Match names; retrieve it again")
        if self.none_match and if_none_match_names(self.none_match, tag):
            raise PreconditionError("it is what If-None-Match names; choose another id, or drop the header")


@dataclass(frozen=True, slots=True)
class Entity:
    """A subscription as callers read it, with the entity `tag` of just this content."""

    document: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.document["id"])

    @property
    def tag(self) -> str:
        return tag_of(canonical_bytes(self.document))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionService:
    """The subscriptions in `table`; `inboxes` has the ARN of the inbox of each participant that may
    subscribe.

    Endpoints may be as far as `reach` says. Before events go to a new one, its `consent` is asked for.
    What a participant may subscribe to, the `contract` in force says.
    """

    table: SubscriptionTable
    inboxes: Mapping[str, str]
    contract: Callable[[], Contract]
    consent: AsksConsent
    reach: SinkReach
    clock: Clock
    random_bytes: RandomBytes

    def _new_id(self) -> str:
        return f"s{self.random_bytes(8).hex()}"

    def create(self, participant: str, proposed: object) -> Entity:
        """A new subscription under an id of the plane's choice; an `id` in `proposed` is ignored.

        Raises `InvalidError`, `NotFoundError`, `LimitError`, `TakenError`.
        """
        proposal = self._proposal(participant, proposed)
        # Before anybody is asked for consent: what cannot be compiled, and whether there is room.
        self._check_quota(self._new(participant, self._new_id(), proposal))
        proposal = self._consented(proposal)
        for _ in range(ATTEMPTS):
            subscription = self._new(participant, self._new_id(), proposal)
            if stored := self._add(subscription):
                return self._found(stored)
        raise TakenError("no id was free; try again")

    def retrieve(self, participant: str, id: str) -> Entity:
        """Raises `NotFoundError`."""
        self._inbox(participant)
        return self._found(self._get(participant, id))

    def query(self, participant: str) -> list[Entity]:
        """All of `participant`, by id. Raises `NotFoundError`."""
        self._inbox(participant)
        return [self._found(each) for each in self.table.of(participant)]

    def update(
        self, participant: str, id: str, proposed: object, conditions: Conditions
    ) -> tuple[Entity, bool]:
        """Make the subscription `id` what is `proposed`, a new one if there is none; and whether it is new.

        Raises `InvalidError`, `NotFoundError`, `LimitError`, `TakenError`, `PreconditionError`.
        """
        proposal = self._proposal(participant, proposed)
        if isinstance(proposed, dict) and proposed.get("id", id) != id:
            raise InvalidError(f"`id` in the body is not {id!r} of the path; leave it out")
        # Before anybody is asked for consent: what is no name, and what cannot be compiled.
        wanted = self._new(participant, id, proposal)
        is_consented = False
        for _ in range(ATTEMPTS):
            before = self.table.get(participant, id)
            conditions.check(self._found(before).tag if before else None)
            self._check_quota(wanted)
            if before and before.endpoint is not None and proposal.endpoint is None:
                raise InvalidError(
                    f"what waits for the sink of {id!r} would be dropped; create a subscription under "
                    "another `id`, and delete this one once its sink has all"
                )
            if not is_consented and not (before and proposal.has_consent_of(before)):
                proposal, is_consented = self._consented(proposal), True
            if before is None:
                subscription = self._new(participant, id, proposal)
                if stored := self._add(subscription):
                    return self._found(stored), True
            else:
                subscription = self._new(participant, id, proposal, created_at=before.created_at)
                if stored := self.table.write(replace(subscription, revision=before.revision)):
                    return self._found(stored), False
        raise _contended(id)

    def delete(self, participant: str, id: str, conditions: Conditions) -> Entity:
        """End the subscription `id`; what it was. Raises `NotFoundError`, `PreconditionError`."""
        self._inbox(participant)
        for _ in range(ATTEMPTS):
            before = self._get(participant, id)
            found = self._found(before)
            conditions.check(found.tag)
            if self.table.remove(before):
                return found
        raise _contended(id)

    def signed_route(self, participant: str, id: str) -> str:
        """The route of the subscription `id`, which its key is drawn from.

        Raises `NotFoundError`, also for one whose events are not posted.
        """
        self._inbox(participant)
        subscription = self._get(participant, id)
        if subscription.endpoint is None:
            raise NotFoundError(f"{id!r} is not posted anywhere, so nothing is signed")
        return subscription.route

    def _proposal(self, participant: str, proposed: object) -> Proposal:
        return read_proposal(proposed, self._inbox(participant), self.reach)

    def _consented(self, proposal: Proposal) -> Proposal:
        """What the sink agrees to, if it is an endpoint. Raises `InvalidError`."""
        if proposal.endpoint is None:
            return proposal
        return proposal.at_most(self.consent(proposal.endpoint, proposal.rate))

    def _inbox(self, participant: str) -> str:
        try:
            return self.inboxes[participant]
        except KeyError:
            raise NotFoundError(
                f"{participant!r} is no cloud service that is in use; name one of the contract"
            ) from None

    def _get(self, participant: str, id: str) -> Subscription:
        # What is no name is in no table, and may be longer than a key can be.
        found = None if name_problem(id) else self.table.get(participant, id)
        if found is None:
            raise NotFoundError(f"{participant} has no subscription {id!r}; query which there are")
        return found

    def _new(
        self, participant: str, id: str, proposal: Proposal, created_at: str | None = None
    ) -> Subscription:
        now = timestamp_of_ms(self.clock())
        try:
            new = new_subscription(participant, id, proposal.filter, created_at or now, proposal.text)
            granted_filter(self.contract(), new)
        except ContractError as error:
            raise InvalidError("the subscription is not valid; see `problems`", error.problems) from error
        return new

    def _check_quota(self, wanted: Subscription) -> None:
        """Raises `LimitError` where there may not be this one beside the others."""
        key = wanted.participant, wanted.name
        existing = [each for each in self.table.all() if (each.participant, each.name) != key]
        others = [each for each in existing if each.participant == wanted.participant]
        if len(others) >= MAX_OWN:
            raise _full(wanted.participant)
        # Two at once may pass; routers then leave out the younger one.
        if len(existing) >= MAX_SUBSCRIPTIONS:
            raise LimitError(
                f"the plane has {MAX_SUBSCRIPTIONS:,} subscriptions; have the route put into the contract"
            )
        work = sum(each.steps for each in (*others, wanted))
        if work > MAX_PARTICIPANT_STEPS:
            raise LimitError(
                f"with it the filters of {wanted.participant} can take {work:,} steps for one event, more "
                f"than {MAX_PARTICIPANT_STEPS:,}; simplify it ({wanted.steps:,}) or delete another"
            )

    def _add(self, subscription: Subscription) -> Subscription | None:
        """Write it and return what is stored; None if its id is taken. Raises `LimitError`."""
        if not (stored := self.table.write(subscription)):
            return None
        # Others may have counted at the same time. Whoever sees too many withdraws: there are never more, and
        # the oldest count for routers meanwhile.
        if len(self.table.of(subscription.participant)) > MAX_OWN:
            self.table.remove(stored)
            raise _full(subscription.participant)
        return stored

    def _found(self, subscription: Subscription) -> Entity:
        try:
            granted = granted_filter(self.contract(), subscription)
        except ContractError:
            # Written by the participant itself, or the contract has changed: routers take none of its events.
            granted = None
        return Entity(written(subscription, self.inboxes[subscription.participant], granted))


def _full(participant: str) -> LimitError:
    return LimitError(f"{participant} has {MAX_OWN} subscriptions; delete one first")


def _contended(id: str) -> TakenError:
    return TakenError(f"others keep changing {id!r}; try again")


class Consents:
    """Asks endpoints in the name of `origin`; `connect` takes a URL and a timeout in seconds."""

    def __init__(self, origin: str, connect: Callable[[str, float], HttpSink]) -> None:
        self._origin = origin
        self._connect = connect

    def ask(self, url: str, rate: int | None) -> int | None:
        """Ask the sink at `url` how many requests a minute it allows, None without a limit; `rate` are
        wanted.

        Raises `InvalidError` where it does not answer or does not consent.
        """
        with closing(self._connect(url, CONSENT_TIMEOUT_S)) as endpoint:
            try:
                consent = ask_consent(endpoint, self._origin, rate)
            except UnreachableError as error:
                raise _no_consent(f"it does not answer: {error.detail}") from error
            except ForbiddenTargetError as error:
                problem = Problem("sink", error.detail, "use a host whose addresses are all public")
                raise InvalidError("the sink cannot be posted to; see `problems`", [problem]) from error
        if not consent.is_given:
            raise _no_consent(
                f"it answers {consent.status} without WebHook-Allowed-Origin for {self._origin}"
            )
        if consent.requests_per_minute == 0:
            raise _no_consent("it allows no requests")
        return consent.requests_per_minute


def _no_consent(message: str) -> InvalidError:
    remedy = "let the endpoint answer OPTIONS as parts/subscriptions_api/reference.md says"
    return InvalidError("the sink does not consent; see `problems`", [Problem("sink", message, remedy)])
