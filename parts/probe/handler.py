"""The canary: sends an alarm as a device does, awaits it in an inbox and measures the time; looks at queues.

Its schedules, or whoever invokes it, say which.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final

import botocore
from botocore.exceptions import BotoCoreError, ClientError

from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.names import CANARY_ALARM, CANARY_CLIENT, CANARY_SOURCE
from eventplane.resource_names import REPLIES_SUFFIX, source_queue
from eventplane.values import RandomBytes, timestamp_of_ms
from eventplane_mqtt import TlsFiles
from eventplane_mqtt.endpoint import MqttError
from lambdas.common.aws import client
from lambdas.common.log import logger
from lambdas.common.metrics import Delay, Gauge, measure, metrics
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from lambdas.common.system import Clock, Pool, random_bytes, system_clock, threads
from parts.probe.connection import MQTT_PORT, DeviceProbe
from parts.probe.settings import CanarySettings

_TIMEOUT_S: Final = 5.0
"""Longest for one step of the connection to IoT Core, seconds."""

_TRUSTED: Final = Path(botocore.__file__).with_name("cacert.pem")
"""Whom the AWS SDK trusts, Amazon's own authorities among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDevice:
    """Publishes as the thing `CANARY_CLIENT`, by boto3 clients of AWS IoT and Secrets Manager.

    Key and certificate are in `secret`; where they are not, it gets others with the policy `policy`. `rule`
    is the ingest rule. `endpoint` is HOST or HOST:PORT, None for the account's; `ca` a file of authorities,
    None for those of the AWS SDK. `folder` gets the file with key and certificate.
    """

    iot: Any
    secrets: Any
    secret: str
    policy: str
    rule: str
    folder: Path
    endpoint: str | None = None
    ca: str | None = None

    def publish(self, payload: bytes) -> None:
        """Publish to the urgent rule over a connection of its own, so that each exercises the whole way in.

        Raises `MqttError`, botocore's errors.
        """
        account = {"endpointType": "iot:Data-ATS"}
        address = self.endpoint or self.iot.describe_endpoint(**account)["endpointAddress"]
        host, _, port = str(address).partition(":")
        pair = self._pair()
        tls = TlsFiles(Path(self.ca) if self.ca else _TRUSTED, pair, pair)
        to = host, int(port or MQTT_PORT), CANARY_CLIENT, tls, self.rule, _TIMEOUT_S
        with closing(DeviceProbe(*to, reads_inbox=False)) as probe:
            probe.wait_connected()
            probe.report(payload, is_urgent=True)

    def _pair(self) -> Path:
        """The file with key and certificate, which only this function may read."""
        file = self.folder / "canary.pem"
        text = self._stored() or self._made()
        file.touch(0o600)
        file.write_text(text, encoding="ascii")
        return file

    def _stored(self) -> str | None:
        """What is in the secret; None before the first certificate, and where somebody wants another."""
        text = self.secrets.get_secret_value(SecretId=self.secret)["SecretString"]
        return str(text) if text.startswith("-----BEGIN ") else None

    def _made(self) -> str:
        """Make a certificate, the only one of the thing.

        Where an answer is lost, what the first request made is inactive, and of no use.
        """
        self.iot.create_thing(thingName=CANARY_CLIENT)
        for each in self.iot.list_thing_principals(thingName=CANARY_CLIENT)["principals"]:
            # A request whose answer was lost may have detached it.
            with suppress(self.iot.exceptions.ResourceNotFoundException):
                self.iot.detach_thing_principal(thingName=CANARY_CLIENT, principal=each)
        made = self.iot.create_keys_and_certificate(setAsActive=False)
        arn = made["certificateArn"]
        self.iot.update_certificate(certificateId=made["certificateId"], newStatus="ACTIVE")
        self.iot.attach_policy(policyName=self.policy, target=arn)
        self.iot.attach_thing_principal(thingName=CANARY_CLIENT, principal=arn)
        text = made["keyPair"]["PrivateKey"] + made["certificatePem"]
        self.secrets.put_secret_value(SecretId=self.secret, SecretString=text)
        logger.info("the canary has another certificate", certificate=made["certificateId"])
        return str(text)


MOST_CALLS: Final = 8
"""Queues that are looked at at a time."""

_PAGE: Final = 1_000
"""Queues in one answer. Without it SQS answers with as many and gives no token for the others."""

_VISIBLE: Final = "ApproximateNumberOfMessages"


@dataclass(frozen=True, slots=True)
class Look:
    """Messages in dead-letter queues, by queue, and for how many seconds a queue has not been empty."""

    dead_letters: dict[str, int]
    backlog_s: dict[str, int]


class Backlogs:
    """Looks at the queues whose names begin with `prefix`, through a boto3 SQS client.

    SQS reports the age of a message to CloudWatch only, for a price by queue. What is seen here is how long a
    queue has had a message in each look of this process: a new process begins anew.
    """

    def __init__(self, *, sqs: Any, prefix: str, clock: Clock, pool: Pool) -> None:
        self._sqs = sqs
        self._prefix = prefix
        self._clock = clock
        self._pool = pool
        self._since_ms: dict[str, int] = {}

    def look(self) -> Look:
        """Count what waits, and write it as metrics. Raises botocore's errors."""
        now_ms, urls = self._clock(), list(self._urls())
        calls = {_name(each): self._pool.submit(self._count, each) for each in urls}
        counts = {name: call.result() for name, call in calls.items()}
        dead = {name: number for name, number in counts.items() if number and source_queue(name)}
        waiting = [name for name, number in counts.items() if number and name not in dead]
        self._since_ms = {name: self._since_ms.get(name, now_ms) for name in waiting}
        backlog = {name: (now_ms - since) // 1_000 for name, since in self._since_ms.items()}
        measure(Gauge.DEAD_LETTERS, sum(dead.values()))
        measure(Gauge.BACKLOG, max(backlog.values(), default=0))
        if dead:
            logger.warning("dead-letter queues have messages", queues=dead)
        return Look(dead, backlog)

    def _urls(self) -> Iterator[str]:
        """All queues but those for replies, which may stay unread."""
        pages = self._sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix=self._prefix, PaginationConfig={"PageSize": _PAGE}
        )
        for page in pages:
            yield from (
                each for each in page.get("QueueUrls", []) if not _name(each).endswith(REPLIES_SUFFIX)
            )

    def _count(self, url: str) -> int:
        try:
            answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[_VISIBLE])
        except self._sqs.exceptions.QueueDoesNotExist:
            return 0  # SQS lists a deleted queue for up to a minute
        return int(answer["Attributes"][_VISIBLE])


def _name(url: str) -> str:
    return url.rpartition("/")[2]


_POLL_S: Final = 1
"""How long one receive waits for a message, seconds: less than a client waits for an answer."""

_HIDDEN_S: Final = 2
"""How long a received message is hidden, seconds: it is seen again soon if the receive's answer is lost."""

_RESERVE_MS: Final = 5_000
"""Kept for the answer of the last receive and what follows it, milliseconds."""


@dataclass(frozen=True, slots=True)
class CanaryReport:
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

    def send(self, remaining_ms: Callable[[], int]) -> CanaryReport:
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
        return CanaryReport(alarm.id, problem, took_ms, len(seen.keys() - {alarm.id}))

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
    """The operations of the function."""

    canary: Canary
    queues: Backlogs


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
        Backlogs(sqs=sqs, prefix=settings.queue_prefix, clock=system_clock, pool=threads.pool(MOST_CALLS)),
    )


services = at_init(wire)


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Send an alarm and return what became of it (`do`: `alarm`), or look at all queues (`do`: `queues`)."""
    if event.get("do") == QUEUES:
        return asdict(services().queues.look())
    return asdict(services().canary.send(context.get_remaining_time_in_millis))
