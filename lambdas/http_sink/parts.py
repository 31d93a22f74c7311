"""What the functions that post to HTTPS endpoints share, by the settings that they share."""

from __future__ import annotations

import ssl

from eventplane.contract import Channel, Contract, Webhook
from eventplane.endpoints import ENDPOINT, endpoint_key
from eventplane.function_settings import HttpSinkSettings
from eventplane.records import Records
from lambdas.common.archive import Archive
from lambdas.common.aws import QUICK, client, tables
from lambdas.common.clock import system_clock
from lambdas.common.dead_letters import DeadLetterWriter
from lambdas.common.sqs import SqsSender
from lambdas.common.system import random_bytes, sleep, uniform
from lambdas.http_sink.delivery import CircuitBreaker, Delivery, Pace
from lambdas.http_sink.endpoint import Endpoint
from lambdas.http_sink.service import WebhookService
from lambdas.http_sink.signing import Keys, SigningKeys


class Parts:
    """Makes services for the events of `channel` by `settings`; `signing_keys` are the environment's."""

    def __init__(self, settings: HttpSinkSettings, contract: Contract, channel: Channel) -> None:
        self._settings = settings
        self._contract = contract
        self._channel = channel
        self._sender = SqsSender(client("sqs"))
        self._archive = Archive(client("s3"), settings.archive_bucket, random_bytes)
        self._endpoints = Records(tables(QUICK), settings.endpoints_table, ENDPOINT)
        self._tls = ssl.create_default_context()
        self.signing_keys: Keys = SigningKeys(
            client("secretsmanager"), settings.webhook_secret, system_clock
        ).get

    def service(
        self, url: str, webhook: Webhook, keys: Keys, letter_source: str, route: str | None = None
    ) -> WebhookService:
        """Return what delivers to the endpoint at `url`, of one `route` or of all."""
        delivery = Delivery(
            webhook=webhook,
            origin=self._settings.webhook_origin,
            endpoint=Endpoint(
                url,
                timeout_s=webhook.timeout_s,
                clock=system_clock,
                reach=self._settings.reach,
                tls=self._tls,
            ),
            keys=keys,
            pace=Pace(webhook.requests_per_minute, self._settings.concurrency, system_clock),
            breaker=CircuitBreaker(
                self._endpoints,
                endpoint_key(self._channel.participant, url),
                system_clock,
                1_000 * webhook.timeout_s + QUICK.worst_call_ms,
            ),
            clock=system_clock,
            sleep=sleep,
        )
        letters = DeadLetterWriter(
            source=letter_source,
            contract=self._contract,
            channel=self._channel,
            sender=self._sender,
            outbox=self._settings.outbox_queue,
            last_resort=self._settings.dead_letter_queue,
            clock=system_clock,
            route=route,
        )
        return WebhookService(
            webhook=webhook,
            delivery=delivery,
            letters=letters,
            archive=self._archive,
            clock=system_clock,
            uniform=uniform,
        )
