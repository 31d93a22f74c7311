"""The archive writer's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from lambdas.archive_writer.service import ArchiveWriterService, TrafficReport
from lambdas.archive_writer.settings import read_settings
from lambdas.common.archive import Archive
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery
from lambdas.common.sqs import SqsSender


@dataclass(frozen=True, slots=True)
class Wired:
    """What lasts as long as the process."""

    writer: ArchiveWriterService
    redelivery: Redelivery


@cache
def service() -> Wired:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    archive = Archive(client("s3"), settings.archive_bucket)
    sqs = client("sqs")
    traffic = None
    if settings.traffic_queue and settings.quota:
        traffic = TrafficReport(SqsSender(sqs), settings.traffic_queue, settings.quota)
    writer = ArchiveWriterService(archive=archive, clock=system_clock, traffic=traffic)
    return Wired(writer, Redelivery(sqs, settings.source_queue))


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> PartialResponse:
    """Archive one batch of the tap queue."""
    messages = read_messages(event)
    count(Metric.MESSAGES, len(messages))
    wired = service()
    remaining_ms = context.get_remaining_time_in_millis
    failed = wired.writer.process(messages, remaining_ms=remaining_ms)
    return wired.redelivery.answer(messages, failed, remaining_ms)
