"""The keeper's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from lambdas.certificate_keeper.certificates import Certificates
from lambdas.certificate_keeper.grace import Grace
from lambdas.certificate_keeper.service import KeeperService
from lambdas.certificate_keeper.settings import read_settings
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.queue import Context, partial_response, read_messages
from lambdas.common.registry import Registry


@cache
def service() -> KeeperService:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    return KeeperService(
        store=Registry(client("dynamodb"), settings.table),
        certificates=Certificates(client("iot"), settings.certificate_arns),
        grace=Grace(client("sqs"), settings.queue, settings.grace_s),
        clock=system_clock,
    )


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> PartialItemFailureResponse:
    """Handle one batch of connections and ends of grace."""
    failed = service().process(read_messages(event), remaining_ms=context.get_remaining_time_in_millis)
    return partial_response(event, context, failed)
