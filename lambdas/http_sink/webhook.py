"""The entry of a webhook's function: posts the events of an inbox to an HTTPS endpoint, its consumer."""

from __future__ import annotations

import os
from typing import Final

from eventplane.function_settings import QueueSettings, WebhookSettings
from eventplane.settings import SettingsError, variable_of
from lambdas.common.archive import Archive
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.contracts import bundled_contract
from lambdas.common.letters import Letters
from lambdas.common.queue_function import QueueReader, queue_function
from lambdas.common.sqs import SqsSender
from lambdas.http_sink.delivery import Delivery, Pace
from lambdas.http_sink.endpoint import Endpoint
from lambdas.http_sink.service import Visibility, WebhookService
from lambdas.http_sink.signing import SigningKeys

LETTER_SOURCE: Final = "/eventplane/cloud/webhook/"
"""The prefix of the `source` of its dead letters; the participant's name follows."""


def service() -> QueueReader:
    """Return the reader of the webhook's inbox. Raises `SettingsError`."""
    settings = WebhookSettings.read(os.environ)
    contract = bundled_contract()
    channel = contract.channel(settings.source)
    webhook = channel.webhook
    if webhook is None:
        raise SettingsError(variable_of("source"), f"names {settings.source}, which is no webhook")
    sqs = client("sqs")
    sender = WebhookService(
        contract=contract,
        source=settings.source,
        webhook=webhook,
        delivery=Delivery(
            webhook=webhook,
            origin=settings.webhook_origin,
            endpoint=Endpoint(
                settings.webhook_url, timeout_s=webhook.timeout_s, clock=system_clock, reach=settings.reach
            ),
            keys=SigningKeys(client("secretsmanager"), settings.webhook_secret, system_clock),
            pace=Pace(webhook.requests_per_minute, settings.concurrency, system_clock),
            clock=system_clock,
        ),
        visibility=Visibility(sqs, QueueSettings.read(os.environ).source_queue),
        letters=Letters(
            source=f"{LETTER_SOURCE}{channel.participant}",
            contract=contract,
            channel=channel,
            sender=SqsSender(sqs),
            outbox=settings.outbox_queue,
            last_resort=settings.dead_letter_queue,
        ),
        archive=Archive(client("s3"), settings.archive_bucket),
        clock=system_clock,
    )
    return QueueReader(sender.process, wait=None)


handle = queue_function(service)
