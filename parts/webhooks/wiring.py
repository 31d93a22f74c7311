"""Shared by the functions that post to HTTPS endpoints, from the settings that they share."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from eventplane.contract import Channel, Contract, Webhook
from eventplane.records import Records, Tables
from eventplane.sinks import SinkReach
from eventplane.values import RandomBytes
from lambdas.common.archive import Archiver
from lambdas.common.aws import QUICK, client, tables
from lambdas.common.dead_letters import DeadLetterWriter
from lambdas.common.sqs import SqsSender
from lambdas.common.system import Clock, random_bytes, sleep, system_clock, uniform
from parts.webhooks.delivery import Breaker, Posting, Rate
from parts.webhooks.endpoint import HttpSink
from parts.webhooks.endpoint_state import ENDPOINT, endpoint_key
from parts.webhooks.service import Uniform, WebhookService
from parts.webhooks.settings import HttpSinkSettings
from parts.webhooks.signing import Keys, SigningKeys


class Machine(NamedTuple):
    """The dependencies of a function; `connect` takes a URL and a timeout in seconds."""

    client: Callable[[str], Any]
    tables: Tables
    connect: Callable[[str, float], HttpSink]
    clock: Clock
    random_bytes: RandomBytes
    uniform: Uniform
    sleep: Callable[[float], None]


def own_machine(reach: SinkReach) -> Machine:
    """Return the function's own account, network and clock; endpoints have to be within `reach`."""
    tls = ssl.create_default_context()

    def connect(url: str, timeout_s: float) -> HttpSink:
        return HttpSink(url, timeout_s=timeout_s, clock=system_clock, reach=reach, tls=tls)

    return Machine(client, tables(QUICK), connect, system_clock, random_bytes, uniform, sleep)


class Parts:
    """Makes services for the events of `channel` by `settings`; `signing_keys` are the environment's."""

    def __init__(
        self, settings: HttpSinkSettings, contract: Contract, channel: Channel, machine: Machine
    ) -> None:
        self._settings = settings
        self._contract = contract
        self._channel = channel
        self._machine = machine
        self._sender = SqsSender(machine.client("sqs"))
        self._archive = Archiver(machine.client("s3"), settings.archive_bucket, machine.random_bytes)
        self._endpoints = Records(machine.tables, settings.endpoints_table, ENDPOINT)
        self.signing_keys: Keys = SigningKeys(
            machine.client("secretsmanager"), settings.webhook_secret, machine.clock
        ).get

    def service(
        self, url: str, webhook: Webhook, keys: Keys, letter_source: str, route: str | None = None
    ) -> WebhookService:
        """Return what delivers to the endpoint at `url`, of one `route` or of all."""
        machine = self._machine
        delivery = Posting(
            webhook=webhook,
            origin=self._settings.webhook_origin,
            endpoint=machine.connect(url, webhook.timeout_s),
            keys=keys,
            pace=Rate(webhook.requests_per_minute, self._settings.concurrency, machine.clock),
            breaker=Breaker(
                self._endpoints,
                endpoint_key(self._channel.participant, url),
                machine.clock,
                1_000 * webhook.timeout_s + QUICK.worst_call_ms,
            ),
            clock=machine.clock,
            sleep=machine.sleep,
        )
        letters = DeadLetterWriter(
            source=letter_source,
            contract=self._contract,
            channel=self._channel,
            sender=self._sender,
            outbox=self._settings.outbox_queue,
            last_resort=self._settings.dead_letter_queue,
            clock=machine.clock,
            route=route,
        )
        return WebhookService(
            delivery=delivery,
            letters=letters,
            archive=self._archive,
            clock=machine.clock,
            uniform=machine.uniform,
        )
