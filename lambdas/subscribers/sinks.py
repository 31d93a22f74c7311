"""The endpoints that are subscribed: each with a delivery of its own, so that none waits for another."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Channel, Contract, Webhook, WebhookMode
from eventplane.contract.subscription import Subscription
from eventplane.subscription_table import SubscriptionTable
from lambdas.common.archive import Archive
from lambdas.common.clock import Clock
from lambdas.common.letters import Letters
from lambdas.common.log import logger
from lambdas.common.sink_reach import SinkReach
from lambdas.common.subscriber_keys import subscription_key
from lambdas.common.visibility import Visibility
from lambdas.subscribers.breaker import Breaker
from lambdas.webhook.delivery import Delivery
from lambdas.webhook.endpoint import Endpoint
from lambdas.webhook.keys import Keys
from lambdas.webhook.pace import Pace
from lambdas.webhook.service import WebhookService

TIMEOUT_S: Final = 5
"""How long an attempt may take, seconds."""

GIVE_UP_AFTER_S: Final = 3_600
"""How long a failing event is tried, seconds; then it is a dead letter."""

REFRESH_MS: Final = 30_000
"""How old the knowledge of the table may become, milliseconds."""


class _OwnKeys:
    """The keys of one subscription."""

    def __init__(self, keys: Keys, route: str) -> None:
        self._keys = keys
        self._route = route

    def get(self) -> tuple[bytes, ...]:
        return tuple(subscription_key(each, self._route) for each in self._keys.get())


class Sinks:
    """Those of `table`, looked up by their routes. `letters` makes the letters of a route."""

    def __init__(
        self,
        *,
        table: SubscriptionTable,
        contract: Contract,
        channel: Channel,
        origin: str,
        keys: Keys,
        processes: int,
        reach: SinkReach,
        visibility: Visibility,
        letters: Callable[[str], Letters],
        archive: Archive,
        clock: Clock,
    ) -> None:
        self._table = table
        self._contract = contract
        self._channel = channel
        self._origin = origin
        self._keys = keys
        self._processes = processes
        self._reach = reach
        self._visibility = visibility
        self._letters = letters
        self._archive = archive
        self._clock = clock
        self._tls = ssl.create_default_context()
        self._known: Mapping[str, Subscription] = {}
        self._read_at_ms: int | None = None
        self._services: dict[str, tuple[str, WebhookService, Endpoint]] = {}

    def refresh(self, routes: frozenset[str]) -> None:
        """Look again, if that was long ago or one of `routes` is not known; idle connections are closed.

        Raises what botocore raises, where one of `routes` is still not known.
        """
        # A plane may have more subscriptions than a process may have open files.
        for _, _, endpoint in self._services.values():
            endpoint.close_if_idle()
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
        for route in self._services.keys() - self._known.keys():
            self._services.pop(route)[2].close()

    def service(self, route: str) -> WebhookService | None:
        """What delivers for `route`; None where nobody subscribes by it any more."""
        subscription = self._known.get(route)
        if subscription is None:
            return None
        known = self._services.get(route)
        if known is None or known[0] != subscription.document:
            if known is not None:
                known[2].close()
            known = self._services[route] = self._made(subscription)
        return known[1]

    def close(self) -> None:
        """Let go of all connections."""
        for _, _, endpoint in self._services.values():
            endpoint.close()

    def _made(self, subscription: Subscription) -> tuple[str, WebhookService, Endpoint]:
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
            give_up_after_s=GIVE_UP_AFTER_S,
            requests_per_minute=rate if isinstance(rate, int) and rate > 0 else None,
        )
        endpoint = Endpoint(url, timeout_s=TIMEOUT_S, clock=self._clock, reach=self._reach, tls=self._tls)
        delivery = Delivery(
            webhook=webhook,
            origin=self._origin,
            endpoint=endpoint,
            keys=_OwnKeys(self._keys, route),
            pace=Pace(webhook.requests_per_minute, self._processes, self._clock),
            clock=self._clock,
        )
        service = WebhookService(
            contract=self._contract,
            source=self._channel.address,
            webhook=webhook,
            delivery=Breaker(delivery, self._clock),
            visibility=self._visibility,
            letters=self._letters(route),
            archive=self._archive,
            clock=self._clock,
        )
        return subscription.document, service, endpoint
