"""The webhook function's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

from eventplane.settings import SettingsError
from lambdas.common.archive import Archive
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.contracts import load_contract
from lambdas.common.letters import Letters
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, partial_response
from lambdas.common.sqs import SqsSender
from lambdas.common.visibility import Visibility
from lambdas.webhook.delivery import Delivery
from lambdas.webhook.endpoint import Endpoint
from lambdas.webhook.keys import SigningKeys
from lambdas.webhook.pace import Pace
from lambdas.webhook.service import WebhookService
from lambdas.webhook.settings import read_settings

LETTER_SOURCE: Final = "/eventplane/cloud/webhook/"
"""What the `source` of the letters starts with; the service's name follows."""


@cache
def service() -> WebhookService:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    contract = load_contract(settings.root)
    channel = contract.channel(settings.source)
    webhook = channel.webhook
    if webhook is None:
        raise SettingsError("EVENTPLANE_SOURCE", f"names {settings.source}, which is no webhook")
    sqs = client("sqs")
    return WebhookService(
        contract=contract,
        source=settings.source,
        webhook=webhook,
        delivery=Delivery(
            webhook=webhook,
            origin=settings.origin,
            endpoint=Endpoint(
                settings.url, timeout_s=webhook.timeout_s, clock=system_clock, reach=settings.reach
            ),
            keys=SigningKeys(client("secretsmanager"), settings.secret, system_clock),
            pace=Pace(webhook.requests_per_minute, settings.concurrency, system_clock),
            clock=system_clock,
        ),
        visibility=Visibility(sqs, settings.source_queue),
        letters=Letters(
            source=f"{LETTER_SOURCE}{channel.participant}",
            contract=contract,
            channel=channel,
            sender=SqsSender(sqs),
            outbox=settings.outbox,
            last_resort=settings.last_resort,
        ),
        archive=Archive(client("s3"), settings.archive_bucket),
        clock=system_clock,
    )


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> PartialResponse:
    """Deliver one batch of the inbox; the answer names the messages that the queue shall keep."""
    messages = read_messages(event)
    count(Metric.MESSAGES, len(messages))
    failed = service().process(
        messages,
        invocation_id=context.aws_request_id,
        remaining_ms=context.get_remaining_time_in_millis,
    )
    count(Metric.RETRIED, len(failed))
    return partial_response(messages, failed)
