"""The replay function's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from eventplane.replay import MAX_RECEIVES
from lambdas.common.archive import Archive
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery
from lambdas.replay.orders import Orders
from lambdas.replay.planners import Planners
from lambdas.replay.service import ReplayService
from lambdas.replay.tap_file import TapFiles
from lambdas.router.dispatch import Dispatch
from lambdas.router.senders import Senders
from lambdas.router.settings import read_settings
from lambdas.router.wiring import engine_in_force, wait_by


@dataclass(frozen=True, slots=True)
class Wired:
    """What lasts as long as the process."""

    replay: ReplayService
    redelivery: Redelivery


@cache
def service() -> Wired:
    """The service as the environment describes it; the settings are those of a router of the devices' outbox.

    Raises `SettingsError`, and what `build_engine` raises of the contract that came with the code.
    """
    settings = read_settings(os.environ)
    sqs, s3 = client("sqs"), client("s3")
    in_force = engine_in_force(settings, client("dynamodb"))
    bucket = settings.archive_bucket
    replay = ReplayService(
        engine=in_force.engine,
        orders=Orders(TapFiles(s3, bucket), Planners(s3, bucket, settings.source)),
        dispatch=Dispatch(Senders.of(settings.queues.values()), settings.queues),
        inboxes=settings.queues,
        archive=Archive(s3, bucket),
        clock=system_clock,
    )
    return Wired(replay, Redelivery(sqs, settings.source_queue, wait=wait_by(in_force, MAX_RECEIVES)))


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> PartialResponse:
    """Carry out one batch of orders."""
    messages = read_messages(event)
    count(Metric.MESSAGES, len(messages))
    wired = service()
    remaining_ms = context.get_remaining_time_in_millis
    failed = wired.replay.process(messages, invocation_id=context.aws_request_id, remaining_ms=remaining_ms)
    return wired.redelivery.answer(messages, failed, remaining_ms)
