"""The cloud: one AWS account with queues, tables, the archive, IoT Core and the functions of the plane."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any, Final

from eventplane import presence
from eventplane.contract import Channel, Contract, ParticipantKind, Priority, subscription_table
from eventplane.contract import publication as publications
from eventplane.contract.publication import cloud_destinations
from eventplane.contract.schedules import most_receives
from eventplane.device_record import REGISTRY, Device, LifecycleState
from eventplane.downlink import table as downlink_table
from eventplane.downlink.desired import Desired, Phase
from eventplane.interest import table as interest_table
from eventplane.reasons import REPLAY
from eventplane.records import Records
from eventplane.resource_names import (
    FIFO_SUFFIX,
    RECEIPTS_SUFFIX,
    channel_queue,
    dead_letter_queue,
    is_fifo,
    queue_name,
)
from eventplane.retries import ROUTINE
from eventplane_aws.rules import SQS_RETENTION
from eventplane_aws.tables import DynamoDbTables
from lab.histories.endpoints import EndpointModel
from lab.histories.engine import Engine
from lab.histories.iot_core import IotCore
from lab.histories.queues import Queues
from lab.histories.story import ENDPOINTS
from lab.histories.wires import CurrentFaults, Wire
from lambdas.common.aws import PATIENT, Timeouts
from lambdas.common.system import Clock
from parts.fleet.lifecycle import made
from parts.replay.order import MAX_ORDER_RECEIVES
from parts.webhooks.endpoint_state import ENDPOINT
from stacks.config import environment
from stacks.settings import ROTATION_SIZE
from tests.dynamodb import create_desired_table, create_table
from tests.fakes.aws import FakeSecrets
from tests.fakes.client import ACCOUNT, REGION, FakeClient
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.s3 import FakeS3
from tests.fakes.sqs import FakeQueue

BUCKET: Final = "archive"
ENVIRONMENT: Final = "histories"
KEYS: Final = "webhook"
PLANE: Final = environment("dev")
"""The sizes of the simulated queues and functions, which are those that the stacks deploy."""


def inbox_arn(participant: str) -> str:
    """Return the ARN of a participant's inbox."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue_name(ENVIRONMENT, f'{participant}-inbox')}"


class CloudModel:
    """The plane of `contract` in one account."""

    def __init__(
        self, engine: Engine, contract: Contract, weather: CurrentFaults, devices: Sequence[str]
    ) -> None:
        self.engine = engine
        self.contract = contract
        self.weather = weather
        self.clock: Clock = lambda: engine.now_ms
        self.sqs = Queues(engine, self.clock, weather.share)
        self.dynamodb = FakeDynamoDb()
        self.s3 = FakeS3(self.clock)
        self.numbers = count(1)
        self.executions = 0
        """Of all functions at the moment."""
        self.is_ending = False
        """Whether no window of a function waits for more any longer."""
        self.secrets = FakeSecrets()
        self.iot = IotCore(self)
        clients: tuple[FakeClient, ...] = (
            *(self.sqs, self.dynamodb, self.s3, self.secrets),
            self.iot.certificates,
        )
        for each in clients:
            each.checks = False  # slow; the unit tests check the requests
        self.secrets.create_secret(Name=KEYS, SecretString=base64.b64encode(bytes(32)).decode())
        self.endpoints = {each: EndpointModel(engine, weather, each) for each in ENDPOINTS}
        self._models = {
            "sqs": self.sqs,
            "dynamodb": self.dynamodb,
            "s3": self.s3,
            "secretsmanager": self.secrets,
            "iot": self.iot.certificates,
            "iot-data": self.iot,
        }
        self.s3.create_bucket(Bucket=BUCKET)
        self._queues()
        self._tables(devices)

    def queue(self, name: str) -> FakeQueue:
        """Return the queue with this name in the environment."""
        full = queue_name(ENVIRONMENT, name)
        return self.sqs.queues.get(full) or self.sqs.queues[full + FIFO_SUFFIX]

    def client(self, program: str, service: str, patience: Timeouts = PATIENT) -> Any:
        """Return a client of `service` for `program`."""
        return Wire(self.weather, program, service, self._models[service], patience)

    def _channel(
        self, channel: Channel, visibility_s: int, name: str = "", priority: Priority = Priority.NORMAL
    ) -> str:
        return self._queue(
            name or channel_queue(channel),
            visibility_s,
            most_receives(channel, priority),
            fifo=is_fifo(channel),
            retention_s=channel.retention_s,
        )

    def _queue(
        self,
        name: str,
        visibility_s: int,
        receives: int = ROUTINE.most_receives,
        *,
        fifo: bool = False,
        retention_s: int = SQS_RETENTION.most,
    ) -> str:
        name = queue_name(ENVIRONMENT, name, is_fifo=fifo)
        letters = dead_letter_queue(name)
        kind = {"FifoQueue": "true", "DeduplicationScope": "messageGroup"} if fifo else {}
        self.sqs.create_queue(
            QueueName=letters, Attributes={"MessageRetentionPeriod": str(SQS_RETENTION.most), **kind}
        )
        policy = {
            "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{letters}",
            "maxReceiveCount": receives,
        }
        attributes = {
            "VisibilityTimeout": str(visibility_s),
            "RedrivePolicy": json.dumps(policy),
            "MessageRetentionPeriod": str(retention_s),
            **kind,
        }
        return str(self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def _queues(self) -> None:
        contract = self.contract
        self.inboxes = {
            each.address: self._channel(each, PLANE.visibility_s_of(contract.participants[each.participant]))
            for each in cloud_destinations(contract)
        }
        self.outboxes = {
            each.name: self._channel(each.outbox, PLANE.router.visibility_s, priority=each.outbox.priority)
            for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)
        }
        uplink = contract.device.outbox
        self.ingest = self._channel(uplink, PLANE.device_router.visibility_s, "ingest")
        self.urgent = self._channel(uplink, PLANE.urgent_router.visibility_s, "urgent", Priority.URGENT)
        self.tap = self._queue("tap", PLANE.archive_writer.visibility_s)
        self.ledger = self._queue("ledger", PLANE.ledger_writer.visibility_s)
        self.receipts = {
            each.address: self._queue(
                f"{each.participant}{RECEIPTS_SUFFIX}", PLANE.ledger_writer.visibility_s
            )
            for each in contract.channels
            if each.asks_for_receipts
        }
        self.lifecycle = self._queue("lifecycle", PLANE.presence.recorder.visibility_s)
        self.timers = self._queue("timers", PLANE.presence.timers.visibility_s)
        self.work = self._queue("work", PLANE.downlink.reader.visibility_s)
        self.connections = self._queue("connections", ROTATION_SIZE.visibility_s)
        self.last_resort = str(
            self.sqs.create_queue(QueueName=queue_name(ENVIRONMENT, "last-resort"))["QueueUrl"]
        )
        self.replay = self._queue(REPLAY, PLANE.replay.visibility_s, MAX_ORDER_RECEIVES)

    def _tables(self, devices: Sequence[str]) -> None:
        db = self.dynamodb
        create_desired_table(db, "desired")
        create_table(db, "contracts", publications.KEY)
        for name, of in {"subscriptions": subscription_table, "interest": interest_table}.items():
            create_table(db, name, of.PARTITION, of.SORT)
        create_table(
            db,
            "presence",
            "device",
            numbers=chain(*presence.INDEXES.values()),
            global_indexes=presence.INDEXES,
        )
        create_table(db, "fleet", *REGISTRY.key)
        create_table(db, "claims", "reader", "event")
        create_table(db, "endpoints", *ENDPOINT.key)
        for each in devices:
            self.registry.write(replace(made(each, self.engine.now_ms), state=LifecycleState.PROVISIONED))

    @property
    def registry(self) -> Records[Device]:
        """The fleet's registry, at once and without a fault."""
        return Records(DynamoDbTables(self.dynamodb, self.weather.draw), "fleet", REGISTRY)

    def tables(self, program: str) -> DynamoDbTables:
        return DynamoDbTables(self.client(program, "dynamodb"), self.weather.draw)

    def unacknowledged(self) -> list[Desired]:
        """Return desired states and commands that were not acknowledged."""
        desired = Records(DynamoDbTables(self.dynamodb, self.weather.draw), "desired", downlink_table.DESIRED)
        return [each for each in desired.all() if each.state in (Phase.PENDING, Phase.SENDING, Phase.PARKED)]
