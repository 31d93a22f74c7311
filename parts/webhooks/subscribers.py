"""The entry of the subscribers' function: posts events to the endpoints that participants subscribed.

Each endpoint has a delivery of its own, and all of a batch are served at the same time, so that none waits
for another.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Webhook, WebhookMode
from eventplane.contract.subscription import Subscription
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.names import SUBSCRIBERS
from eventplane.sinks import SinkReach
from lambdas.common.aws import tables
from lambdas.common.contracts import bundled_contract
from lambdas.common.log import log_foreign, logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, queue_function
from lambdas.common.system import Clock, Pool, monotonic, system_clock, threads
from parts.webhooks.delivery import RESERVE_MS
from parts.webhooks.service import WebhookService, correlation
from parts.webhooks.settings import SubscribersSettings
from parts.webhooks.signing import subscription_key
from parts.webhooks.wiring import Parts, own_machine

LETTER_SOURCE: Final = "/eventplane/cloud/subscribers"
"""The prefix of the `source` of its dead letters; the route of the subscription follows."""

MAX_ENDPOINTS: Final = 10
"""Most endpoints served at a time: a batch has at most as many messages."""

ENDPOINT_MS: Final = 15_000
"""How long one endpoint may keep an invocation, milliseconds; the rest comes again."""

TIMEOUT_S: Final = 5
"""How long an attempt may take, seconds."""

REFRESH_MS: Final = 30_000
"""How old the knowledge of the table may become, milliseconds."""


class SubscriptionEndpoints:
    """The endpoints in `table`, within `reach`, by the routes of their subscriptions."""

    def __init__(self, *, parts: Parts, table: SubscriptionTable, reach: SinkReach, clock: Clock) -> None:
        self._parts = parts
        self._table = table
        self._reach = reach
        self._clock = clock
        self._known: Mapping[str, Subscription] = {}
        self._read_at_ms: int | None = None
        self._services: dict[str, tuple[str, WebhookService]] = {}

    def refresh(self, routes: frozenset[str]) -> None:
        """Look again, if that was long ago or one of `routes` is not known; idle connections are closed.

        Raises what botocore raises, where one of `routes` is still not known.
        """
        # A plane may have more subscriptions than a process may have open files.
        for _, service in self._services.values():
            service.delivery.endpoint.close_if_idle()
        now_ms = self._clock()
        is_due = self._read_at_ms is None or now_ms - self._read_at_ms >= REFRESH_MS
        if not is_due and routes <= self._known.keys():
            return
        try:
            self._known = {each.route: each for each in self._table.all() if each.endpoint}
        except (ClientError, BotoCoreError) as error:
            # Of a route that is not known nobody can say that its subscription has ended.
            if self._read_at_ms is None or not routes <= self._known.keys():
                raise
            logger.warning("the table of subscriptions could not be read", error=str(error))
            return
        self._read_at_ms = now_ms
        for route in [each for each in self._services if each not in self._known]:
            self._services.pop(route)[1].delivery.endpoint.close()

    def service(self, route: str) -> WebhookService | None:
        """Return the delivery service of `route`; None where nobody subscribes by it any more."""
        subscription = self._known.get(route)
        if subscription is None:
            return None
        known = self._services.get(route)
        if known is None or known[0] != subscription.document:
            if known is not None:
                known[1].delivery.endpoint.close()
            known = self._services[route] = subscription.document, self._made(subscription)
        return known[1]

    def close(self) -> None:
        """Let go of all connections."""
        for _, service in self._services.values():
            service.delivery.endpoint.close()

    def _made(self, subscription: Subscription) -> WebhookService:
        url, route = str(subscription.endpoint), subscription.route
        if problem := self._reach.url_problem(url):
            # The API lets none in; a participant who writes the table himself may.
            logger.error("a sink is never asked", route=route, problem=problem)
            url = "https://sink.invalid/"
        settings = subscription.properties.get("protocolsettings", {})
        rate = settings.get("requests_per_minute") if isinstance(settings, dict) else None
        webhook = Webhook(
            mode=WebhookMode.STRUCTURED,
            timeout_s=TIMEOUT_S,
            requests_per_minute=rate if isinstance(rate, int) and rate > 0 else None,
        )

        def keys() -> tuple[bytes, ...]:
            return tuple(subscription_key(each, route) for each in self._parts.signing_keys())

        # An event may fail at several endpoints: each has a letter of its own.
        return self._parts.service(url, webhook, keys, f"{LETTER_SOURCE}/{route}", route)


class SubscriberService:
    """Delivers what is in the inbox to `endpoints`, several at a time."""

    def __init__(self, endpoints: SubscriptionEndpoints, pool: Pool, monotonic: Callable[[], float]) -> None:
        self._endpoints = endpoints
        self._pool = pool
        self._monotonic = monotonic

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> Collection[str]:
        """Deliver `messages`; return the ids of those that have to come again, and in how many seconds."""
        by_route: defaultdict[str, list[QueueMessage]] = defaultdict(list)
        for message in messages:
            by_route[message.route or ""].append(message)
        try:
            self._endpoints.refresh(frozenset(by_route))
        except (ClientError, BotoCoreError):
            logger.exception("nothing is known of some subscription")
            return frozenset(each.id for each in messages)
        ended = self._monotonic() + (ENDPOINT_MS + RESERVE_MS) / 1_000

        def left_ms() -> int:
            return min(invocation.remaining_ms(), round(1_000 * (ended - self._monotonic())))

        def deliver(at: int, route: str, service: WebhookService | None) -> dict[str, int]:
            if service is None:
                self._drop(by_route[route])
                return {}
            # A name of its own for the records of each: the archive has one object a name.
            return service.process(by_route[route], Invocation(f"{invocation.id}-{at}", left_ms))

        waiting = [
            self._pool.submit(deliver, at, route, self._endpoints.service(route))
            for at, route in enumerate(by_route)
        ]
        return {id: wait_s for each in waiting for id, wait_s in each.result().items()}

    def _drop(self, messages: Sequence[QueueMessage]) -> None:
        # Not a handover: the audit has no word for it, and the events were delivered to where the route led.
        for message in messages:
            known = correlation(message, _event(message))
            logger.warning("dropped: its subscription has ended", **known, reason="subscription_ended")
        count(Count.DROPPED, len(messages))


def _event(message: QueueMessage) -> Envelope | None:
    try:
        return parse_event(message.body)
    except EnvelopeError:
        return None


def service() -> QueueReader:
    """Return the reader of the subscribers' inbox. Raises `SettingsError`."""
    settings = SubscribersSettings.read(os.environ)
    contract = bundled_contract()
    channel = contract.participants[SUBSCRIBERS].inbox
    endpoints = SubscriptionEndpoints(
        parts=Parts(settings, contract, channel, own_machine(settings.reach)),
        table=SubscriptionTable(tables(), settings.subscriptions_table, log_foreign),
        reach=settings.reach,
        clock=system_clock,
    )
    return QueueReader(SubscriberService(endpoints, threads.pool(MAX_ENDPOINTS), monotonic).process)


handle = queue_function(service)
