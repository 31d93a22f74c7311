"""The cloud: one AWS account with queues, tables, the archive, IoT Core and the functions of the plane."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

from eventplane import presence
from eventplane.contract import Contract, ParticipantKind, Priority, subscription_table
from eventplane.contract import publication as publications
from eventplane.contract.publication import cloud_destinations
from eventplane.downlink import table as downlink_table
from eventplane.downlink.desired import Desired, State
from eventplane.endpoints import ENDPOINT
from eventplane.fleet import REGISTRY, LifecycleState, made
from eventplane.interest import table as interest_table
from eventplane.records import Records
from eventplane.replay import MAX_ORDER_RECEIVES, REPLAY
from eventplane.resource_names import dead_letter_queue, queue_name
from eventplane_aws.tables import DynamoDbTables
from lambdas.common.clock import Clock
from local.histories.endpoints import EndpointModel
from local.histories.engine import Engine
from local.histories.iot_core import IotCore
from local.histories.queues import Queues
from local.histories.story import ENDPOINTS
from local.histories.tables import TablesClient
from local.histories.wires import Weather, Wire
from tests.dynamodb import create_table
from tests.fakes.client import ACCOUNT, REGION, FakeClient
from tests.fakes.s3 import FakeS3
from tests.fakes.secrets import FakeSecrets
from tests.fakes.sqs import FakeQueue

BUCKET: Final = "archive"
ENVIRONMENT: Final = "histories"
KEYS: Final = "webhook"
VISIBILITY_S: Final = 120
INBOX_VISIBILITY_S: Final = 60


def inbox_arn(participant: str) -> str:
    """Return the ARN of a participant's inbox."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue_name(ENVIRONMENT, f'{participant}-inbox')}"


class Cloud:
    """The plane of `contract` in one account."""

    def __init__(self, engine: Engine, contract: Contract, weather: Weather, devices: Sequence[str]) -> None:
        self.engine = engine
        self.contract = contract
        self.weather = weather
        self.clock: Clock = lambda: engine.now_ms
        self.sqs = Queues(engine, self.clock)
        self.dynamodb = TablesClient()
        self.s3 = FakeS3(self.clock)  # type: ignore[arg-type]
        self.numbers = count(1)
        self.secrets = FakeSecrets()
        clients: tuple[FakeClient, ...] = (self.sqs, self.dynamodb, self.s3, self.secrets)
        for each in clients:
            each.checks = False  # slow; the unit tests check the requests
        self.secrets.create_secret(Name=KEYS, SecretString=base64.b64encode(bytes(32)).decode())
        self.endpoints = {each: EndpointModel(engine, weather, each) for each in ENDPOINTS}
        self.iot = IotCore(self)
        self._models = {
            "sqs": self.sqs,
            "dynamodb": self.dynamodb,
            "s3": self.s3,
            "secretsmanager": self.secrets,
            "iot-data": self.iot,
        }
        self.s3.create_bucket(Bucket=BUCKET)
        self._queues()
        self._tables(devices)

    def queue(self, name: str) -> FakeQueue:
        """Return the queue with this name in the environment."""
        return self.sqs.queues[queue_name(ENVIRONMENT, name)]

    def client(self, program: str, service: str) -> Any:
        """Return a client of `service` for `program`."""
        return Wire(self.weather, program, service, self._models[service])

    def _queue(
        self, name: str, *, receives: int = 5, visibility_s: int = VISIBILITY_S, fifo: bool = False
    ) -> str:
        more = {"FifoQueue": "true"} if fifo else {}
        name = queue_name(ENVIRONMENT, name, is_fifo=fifo)
        letters = dead_letter_queue(name)
        self.sqs.create_queue(QueueName=letters, Attributes=more)
        policy = {
            "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{letters}",
            "maxReceiveCount": receives,
        }
        attributes = {"VisibilityTimeout": str(visibility_s), "RedrivePolicy": json.dumps(policy), **more}
        return str(self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def _queues(self) -> None:
        contract = self.contract
        self.inboxes = {
            each.address: self._queue(
                each.address.replace(".", "-"),
                receives=each.max_receives,
                visibility_s=INBOX_VISIBILITY_S,
                fifo=bool(each.ordering and each.ordering.value != "none"),
            )
            for each in cloud_destinations(contract)
        }
        self.outboxes = {
            each.name: self._queue(
                f"{each.name}-outbox", receives=contract.channel(f"{each.name}.outbox").max_receives
            )
            for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)
        }
        uplink = contract.device.outbox
        self.ingest, self.tap = (
            self._queue(each, receives=uplink.max_receives) for each in ("ingest", "tap")
        )
        self.urgent = self._queue("urgent", receives=uplink.receives_at(Priority.URGENT))
        self.ledger, self.lifecycle, self.timers, self.work = (
            self._queue(each) for each in ("ledger", "lifecycle", "timers", "work")
        )
        self.last_resort = str(
            self.sqs.create_queue(QueueName=queue_name(ENVIRONMENT, "last-resort"))["QueueUrl"]
        )
        self.replay = self._queue(REPLAY, receives=MAX_ORDER_RECEIVES)

    def _tables(self, devices: Sequence[str]) -> None:
        db = self.dynamodb
        create_table(db, "contracts", publications.KEY)
        for name, of in {"subscriptions": subscription_table, "interest": interest_table}.items():
            create_table(db, name, of.PARTITION, of.SORT)
        create_table(
            db,
            "presence",
            "device",
            numbers=presence.INDEX_KEYS,
            global_indexes={presence.INDEX: presence.INDEX_KEYS},
        )
        create_table(
            db,
            "desired",
            downlink_table.PARTITION_KEY,
            downlink_table.SORT_KEY,
            numbers=(downlink_table.INDEX_KEY, downlink_table.INDEX_SORT_KEY),
            global_indexes={downlink_table.INDEX: (downlink_table.INDEX_KEY, downlink_table.INDEX_SORT_KEY)},
            local_indexes={
                downlink_table.PENDING_INDEX: (downlink_table.PARTITION_KEY, downlink_table.INDEX_SORT_KEY)
            },
        )
        create_table(db, "fleet", *REGISTRY.key)
        create_table(db, "claims", "reader", "event")
        create_table(db, "endpoints", *ENDPOINT.key)
        fleet = Records(DynamoDbTables(db, self.weather.draw), "fleet", REGISTRY)
        for each in devices:
            fleet.write(replace(made(each, self.engine.now_ms), state=LifecycleState.PROVISIONED))

    def tables(self, program: str) -> DynamoDbTables:
        return DynamoDbTables(self.client(program, "dynamodb"), self.weather.draw)

    def unacknowledged(self) -> list[Desired]:
        """Return desired states and commands that were not acknowledged."""
        desired = Records(DynamoDbTables(self.dynamodb, self.weather.draw), "desired", downlink_table.DESIRED)
        return [each for each in desired.all() if each.state in (State.PENDING, State.SENDING, State.PARKED)]
