"""Reports that somebody besides a device may hold a key in its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eventplane.envelope import Envelope, write_event
from eventplane.names import MONITOR, SUSPECTED
from eventplane.sqs_binding import to_message
from eventplane.values import timestamp_of_ms
from lambdas.common.aws import client
from lambdas.common.clock import Clock, system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import mark
from lambdas.common.sqs import SqsSender, send_all

SOURCE: Final = f"/eventplane/cloud/{MONITOR}"
"""The `source` of the reports, which go out by the outbox of the presence monitor."""


class Suspicion(StrEnum):
    """What shows that a key may be in two hands."""

    EARLY_RENEWAL = "early_renewal"
    TWO_HOLDERS = "two_holders"
    CONDEMNED_CERTIFICATE = "condemned_certificate"
    DECOMMISSIONED_DEVICE = "decommissioned_device"


@dataclass(frozen=True, slots=True)
class SuspicionReporter:
    """Reports suspicions to the log, a metric with an alarm, and operations by `send`; None: not to them."""

    send: Callable[[Envelope], bool] | None
    clock: Clock

    def report(self, thing: str, suspicion: Suspicion, certificate: str) -> None:
        """Report a suspicion about `certificate`, which names the device in its place."""
        logger.warning("a key may be stolen", thing=thing, suspicion=suspicion, certificate=certificate)
        mark("KeySuspected")
        now_ms = self.clock()
        event = write_event(
            {
                "id": f"{thing}.{now_ms}.{suspicion}",
                "source": SOURCE,
                "type": SUSPECTED,
                "subject": thing,
                "time": timestamp_of_ms(now_ms),
                "partitionkey": thing,
            },
            {"device": thing, "suspicion": suspicion, "certificate": certificate},
        )
        if self.send is not None and not self.send(event):
            # The alarm is raised; a device must not wait for its registration because of this.
            logger.error("operations were not told", thing=thing)


def reporter(outbox_queue: str | None) -> SuspicionReporter:
    """Return the reporter that sends to `outbox_queue`."""
    if outbox_queue is None:
        return SuspicionReporter(None, system_clock)
    sender = SqsSender(client("sqs"))
    return SuspicionReporter(
        lambda event: all(send_all(sender, outbox_queue, [to_message(event)])), system_clock
    )
