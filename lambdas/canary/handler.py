"""The entry of the canary: its schedules, or whoever invokes it, say what it does."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any, Final

import botocore.session

from eventplane.canary import CANARY_CLIENT
from eventplane.function_settings import CanarySettings
from lambdas.canary.mqtt import MqttPublisher, data_endpoint
from lambdas.canary.queues import Queues
from lambdas.canary.service import Canary
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import metrics
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init

ALARM: Final = "alarm"
QUEUES: Final = "queues"

_TIMEOUT_S: Final = 5.0
"""Longest for one step of the connection to IoT Core, seconds."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the function can do."""

    canary: Canary
    queues: Queues


def wire() -> Services:
    """Return the services that the environment describes. Raises `SettingsError`."""
    settings = CanarySettings.read(os.environ)
    sqs, region = client("sqs"), os.environ["AWS_REGION"]
    publisher = MqttPublisher(
        endpoint=cache(lambda: data_endpoint(client("iot"), client("iot-data").meta.endpoint_url)),
        credentials=botocore.session.get_session().get_credentials(),
        region=region,
        client_id=CANARY_CLIENT,
        timeout_s=_TIMEOUT_S,
    )
    return Services(
        Canary(
            publish=partial(publisher.publish, settings.ingest_topic),
            sqs=sqs,
            inbox_url=settings.inbox_queue,
            clock=system_clock,
        ),
        Queues(sqs=sqs, prefix=settings.queue_prefix, clock=system_clock),
    )


services = at_init(wire)


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Send an alarm and return what became of it (`do`: `alarm`), or look at all queues (`do`: `queues`)."""
    if event.get("do") == QUEUES:
        return asdict(services().queues.look())
    return asdict(services().canary.send(context.get_remaining_time_in_millis))
