"""The ingest-errors function's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery
from lambdas.common.sqs import SqsSender
from lambdas.ingest_errors.service import IngestErrorsService
from lambdas.ingest_errors.settings import read_settings


@dataclass(frozen=True, slots=True)
class Wired:
    """What lasts as long as the process."""

    errors: IngestErrorsService
    redelivery: Redelivery


@cache
def service() -> Wired:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    sqs = client("sqs")
    errors = IngestErrorsService(
        ways_in=settings.ways_in,
        letters_to=settings.letters_to,
        channel=settings.channel,
        contract_version=settings.contract_version,
        sender=SqsSender(sqs),
        clock=system_clock,
    )
    return Wired(errors, Redelivery(sqs, settings.source_queue))


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> PartialResponse:
    """Handle one batch of the ingest-error queue."""
    messages = read_messages(event)
    count(Metric.MESSAGES, len(messages))
    wired = service()
    failed = wired.errors.process(messages, remaining_ms=context.get_remaining_time_in_millis)
    return wired.redelivery.answer(messages, failed, context.get_remaining_time_in_millis)
