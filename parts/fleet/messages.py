"""The functions' messages: orders to end certificates later, for `rotation`, and reports of stolen keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from eventplane.envelope import write_event
from eventplane.names import MONITOR, SUSPECTED
from eventplane.sqs_binding import to_message
from eventplane.values import timestamp_of_ms
from lambdas.common.aws import client
from lambdas.common.log import logger
from lambdas.common.metrics import mark
from lambdas.common.sqs import SqsSender, send_all
from lambdas.common.system import system_clock

EndLater = Callable[[str, Iterable[str]], object]
"""Ends certificates of a device that are among its `replaced` by then."""


def ender(sqs: Any, queue: str, delay_s: int) -> EndLater:
    """Return what has the rotation, whose `queue` it is, end certificates in `delay_s` seconds.

    It raises botocore's errors. `sqs` is a boto3 client.
    """

    def end_later(thing: str, certificates: Iterable[str]) -> None:
        body = json.dumps({"thing": thing, "retire": sorted(certificates)})
        sqs.send_message(QueueUrl=queue, MessageBody=body, DelaySeconds=delay_s)

    return end_later


class Suspicion(StrEnum):
    """The evidence that a key may be in two hands."""

    EARLY_RENEWAL = "early_renewal"
    TWO_HOLDERS = "two_holders"
    CONDEMNED_CERTIFICATE = "condemned_certificate"
    DECOMMISSIONED_DEVICE = "decommissioned_device"


Report = Callable[[str, Suspicion, str], None]
"""Reports of a device what shows that its key may be stolen, and with which certificate."""


def reporter(outbox_queue: str | None) -> Report:
    """Return what reports to the log, a metric with an alarm, and by `outbox_queue`, the presence monitor's,
    to operations."""
    sender = SqsSender(client("sqs"))

    def report(thing: str, suspicion: Suspicion, certificate: str) -> None:
        logger.warning("a key may be stolen", thing=thing, suspicion=suspicion, certificate=certificate)
        mark("KeySuspected")
        now_ms = system_clock()
        attributes = {
            "id": f"{thing}.{now_ms}.{suspicion}",
            "source": f"/eventplane/cloud/{MONITOR}",
            "type": SUSPECTED,
            "subject": thing,
            "time": timestamp_of_ms(now_ms),
            "partitionkey": thing,
        }
        data = {"device": thing, "suspicion": suspicion, "certificate": certificate}
        message = to_message(write_event(attributes, data))
        # The alarm is raised: a device does not wait for its registration because of an event.
        if outbox_queue and send_all(sender, outbox_queue, [message]) != [True]:
            logger.error("operations were not told", thing=thing)

    return report
