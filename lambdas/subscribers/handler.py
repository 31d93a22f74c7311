"""The subscribers' function's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

from eventplane.own_services import SUBSCRIBERS
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
from lambdas.common.subscription_table import SubscriptionTable
from lambdas.common.visibility import Visibility
from lambdas.subscribers.service import SubscriberService
from lambdas.subscribers.settings import read_settings
from lambdas.subscribers.sinks import Sinks
from lambdas.webhook.keys import SigningKeys

LETTER_SOURCE: Final = "/eventplane/cloud/subscribers"
"""The `source` of the letters; their `route` says whose sink it was."""

_BATCH: Final = 10
"""Most messages of a batch, so most sinks at a time."""


@cache
def service() -> SubscriberService:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    contract = load_contract(settings.root)
    channel = contract.participants[SUBSCRIBERS].inbox
    sqs = client("sqs")
    archive = Archive(client("s3"), settings.archive_bucket)

    def letters(route: str) -> Letters:
        return Letters(
            # An event may fail at several sinks: each has a letter of its own.
            source=f"{LETTER_SOURCE}/{route}",
            contract=contract,
            channel=channel,
            sender=SqsSender(sqs),
            outbox=settings.outbox,
            last_resort=settings.last_resort,
            route=route,
        )

    sinks = Sinks(
        table=SubscriptionTable(client("dynamodb"), settings.table),
        contract=contract,
        channel=channel,
        origin=settings.origin,
        keys=SigningKeys(client("secretsmanager"), settings.secret, system_clock),
        processes=settings.concurrency,
        reach=settings.sinks,
        visibility=Visibility(sqs, settings.source_queue),
        letters=letters,
        archive=archive,
        clock=system_clock,
    )
    return SubscriberService(sinks=sinks, threads=_BATCH)


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
