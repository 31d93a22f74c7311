"""The router function's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from lambdas.common.archive import Archive
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.contracts import load_contract
from lambdas.common.log import logger
from lambdas.common.queue import Context, partial_response, read_messages
from lambdas.common.sqs import SqsSender
from lambdas.router.service import RouterService
from lambdas.router.settings import read_settings


@cache
def service() -> RouterService:
    """The service as the environment describes it. Raises `SettingsError`, `UnsupportedDestinationError`."""
    settings = read_settings(os.environ)
    return RouterService(
        contract=load_contract(settings.root),
        source=settings.source,
        queues=settings.queues,
        sender=SqsSender(client("sqs")),
        archive=Archive(client("s3"), settings.archive_bucket),
        clock=system_clock,
    )


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> PartialItemFailureResponse:
    """Route one batch of the source queue."""
    failed = service().process(
        read_messages(event),
        invocation_id=context.aws_request_id,
        remaining_ms=context.get_remaining_time_in_millis,
    )
    return partial_response(event, context, failed)
