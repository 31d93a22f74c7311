"""The archive writer's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from lambdas.archive_writer.service import ArchiveWriterService
from lambdas.archive_writer.settings import read_settings
from lambdas.common.archive import Archive
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.queue import Context, partial_response, read_messages


@cache
def service() -> ArchiveWriterService:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    return ArchiveWriterService(archive=Archive(client("s3"), settings.archive_bucket), clock=system_clock)


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> PartialItemFailureResponse:
    """Archive one batch of the tap queue."""
    return partial_response(event, context, service().process(read_messages(event)))
