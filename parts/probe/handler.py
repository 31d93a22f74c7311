"""The canary: sends an alarm as a device does, awaits it in an inbox and measures the time; looks at queues.

Its schedules, or whoever invokes it, say which.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.names import CANARY_ALARM, CANARY_CLIENT, CANARY_SOURCE
from eventplane.randomness import RandomBytes
from eventplane.values import timestamp_of_ms
from eventplane_mqtt.endpoint import MqttError
from lambdas.common.aws import client
from lambdas.common.clock import Clock, system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import Delay, Gauge, measure, metrics
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from lambdas.common.system import random_bytes, threads
from parts.probe.canary_device import CanaryDevice
from parts.probe.queues import MOST_CALLS, Queues
from parts.probe.settings import CanarySettings

_POLL_S: Final = 1
"""How long one receive waits for a message, seconds: less than a client waits for an answer."""

_HIDDEN_S: Final = 2
"""How long a received message is hidden, seconds: it is seen again soon if the receive's answer is lost."""

_RESERVE_MS: Final = 5_000
"""Kept for the answer of the last receive and what follows it, milliseconds."""


@dataclass(frozen=True, slots=True)
class Report:
    """One alarm: why IoT Core did not take it (`problem`), or the milliseconds until it was in the inbox.

    `delay_ms` is None where it did not arrive while the canary waited: a later invocation measures it then.
    `late` counts earlier ones that arrived in the meantime.
    """

    id: str
    problem: str | None
    delay_ms: int | None
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """Sends alarms by `publish`, and waits for them in the inbox at `inbox_url` by a boto3 SQS client.

    One that takes longer than `late_ms`, milliseconds, is missed.
    """

    publish: Callable[[bytes], None]
    sqs: Any
    inbox_url: str
    late_ms: int
    clock: Clock
    random_bytes: RandomBytes

    def send(self, remaining_ms: Callable[[], int]) -> Report:
        """Send one alarm and wait until it is in the inbox, or the time is up."""
        alarm = self._alarm()
        problem = None
        try:
            self.publish(alarm.json.encode("utf-8"))
        except (MqttError, BotoCoreError, ClientError) as error:
            problem = str(error)
            logger.error("the canary's alarm was not taken", problem=problem)
        seen: dict[str, int] = {}
        while alarm.id not in seen:
            # What was not sent does not come; what is late all the same is not missed.
            wait_s = 0 if problem else _POLL_S
            found = self._receive(wait_s)
            for id, delay_ms in found.items():
                if id not in seen:
                    measure(Delay.CANARY, delay_ms)
            seen |= found
            if problem or remaining_ms() < _RESERVE_MS:
                break
        if not problem and alarm.id not in seen:
            logger.error("the canary's alarm is not in its inbox", event_id=alarm.id)
        took_ms = seen.get(alarm.id)
        measure(Gauge.CANARY_MISSED, int(took_ms is None or took_ms > self.late_ms))
        return Report(alarm.id, problem, took_ms, len(seen.keys() - {alarm.id}))

    def _alarm(self) -> Envelope:
        now_ms = self.clock()
        attributes = {
            "id": f"{now_ms}-{self.random_bytes(6).hex()}",
            "source": CANARY_SOURCE,
            "type": CANARY_ALARM,
            "time": timestamp_of_ms(now_ms),
        }
        return write_event(attributes, {"sent_at_ms": now_ms})

    def _receive(self, wait_s: int) -> dict[str, int]:
        """The ids of alarms that are in the inbox, with the milliseconds each took; they are deleted."""
        answer = self.sqs.receive_message(
            QueueUrl=self.inbox_url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=_HIDDEN_S,
            AttributeNames=["SentTimestamp"],
        )
        arrived: dict[str, int] = {}
        for message in answer.get("Messages", []):
            if sent := _sent(message["Body"]):
                id, sent_at_ms = sent
                arrived[id] = max(0, int(message["Attributes"]["SentTimestamp"]) - sent_at_ms)
            else:
                logger.warning("no alarm of the canary's in its inbox", message_id=message["MessageId"])
            self.sqs.delete_message(QueueUrl=self.inbox_url, ReceiptHandle=message["ReceiptHandle"])
        return arrived


def _sent(body: str) -> tuple[str, int] | None:
    """The id of an alarm, and when it was sent; None for what the canary did not send."""
    try:
        event = parse_event(body)
        if event.type != CANARY_ALARM or event.sender.device != CANARY_CLIENT:
            return None
        return event.id, int(event.data()["sent_at_ms"])
    except (EnvelopeError, ValueError, LookupError, TypeError):
        return None


ALARM: Final = "alarm"
QUEUES: Final = "queues"


@dataclass(frozen=True, slots=True)
class Services:
    """What the function can do."""

    canary: Canary
    queues: Queues


def wire() -> Services:
    """Return the services that the environment describes. Raises `SettingsError`."""
    settings = CanarySettings.read(os.environ)
    sqs = client("sqs")
    device = CanaryDevice(
        iot=client("iot"),
        secrets=client("secretsmanager"),
        secret=settings.identity_secret,
        policy=settings.device_policy,
        rule=settings.ingest_rule,
        folder=Path(gettempdir()),
        endpoint=settings.device_endpoint,
        ca=settings.device_ca,
    )
    return Services(
        Canary(
            publish=device.publish,
            sqs=sqs,
            inbox_url=settings.inbox_queue,
            late_ms=settings.late_ms,
            clock=system_clock,
            random_bytes=random_bytes,
        ),
        Queues(sqs=sqs, prefix=settings.queue_prefix, clock=system_clock, pool=threads.pool(MOST_CALLS)),
    )


services = at_init(wire)


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Send an alarm and return what became of it (`do`: `alarm`), or look at all queues (`do`: `queues`)."""
    if event.get("do") == QUEUES:
        return asdict(services().queues.look())
    return asdict(services().canary.send(context.get_remaining_time_in_millis))
