"""The router function's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from lambdas.common.archive import Archive
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery
from lambdas.router.dispatch import Dispatch
from lambdas.router.drawing import drawing_of
from lambdas.router.senders import Senders
from lambdas.router.service import RouterService
from lambdas.router.settings import read_settings
from lambdas.router.wiring import engine_in_force, wait_by


@dataclass(frozen=True, slots=True)
class Wired:
    """What lasts as long as the process."""

    router: RouterService
    redelivery: Redelivery


@cache
def service() -> Wired:
    """The service as the environment describes it.

    Raises `SettingsError`, and what `build_engine` raises of the contract that came with the code.
    """
    settings = read_settings(os.environ)
    sqs = client("sqs")
    in_force = engine_in_force(settings, client("dynamodb"))
    router = RouterService(
        engine=in_force.engine,
        dispatch=Dispatch(Senders.of(settings.queues.values()), settings.queues),
        archive=Archive(client("s3"), settings.archive_bucket),
        clock=system_clock,
        drawing=drawing_of(settings.tracing),
    )
    max_receives = in_force.bundled.channel(settings.source).max_receives
    return Wired(router, Redelivery(sqs, settings.source_queue, wait=wait_by(in_force, max_receives)))


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> PartialResponse:
    """Route one batch of the source queue."""
    messages = read_messages(event)
    count(Metric.MESSAGES, len(messages))
    wired = service()
    remaining_ms = context.get_remaining_time_in_millis
    failed = wired.router.process(messages, invocation_id=context.aws_request_id, remaining_ms=remaining_ms)
    return wired.redelivery.answer(messages, failed, remaining_ms)
