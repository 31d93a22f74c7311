"""A small world for the downlink: a fleet, its presence, devices' inboxes, and the AWS that moto plays."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
from botocore.exceptions import ClientError

from eventplane.attributes import AttributeValue
from eventplane.contract import Channel, Contract
from eventplane.device_reports import ACKNOWLEDGED, STARTED, forwarder_source
from eventplane.downlink import table as keys
from eventplane.downlink.desired import Desired
from eventplane.downlink.device import Acknowledgement, stored, to_data
from eventplane.downlink.wire import Incoming, received
from eventplane.envelope import parse_event, write_event
from eventplane.fleet import FLEET_KEY, Device, FleetTable, decommissioned, grouped, made
from eventplane.topics import device_topic
from lambdas.common.dead_letters import DeadLetterWriter
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sqs import SqsSender
from lambdas.downlink.answers import Answers
from lambdas.downlink.desired import DesiredStateWriter
from lambdas.downlink.devices import Fleet, Presence
from lambdas.downlink.due import DueWork
from lambdas.downlink.items import DesiredTable, Items, WorkQueue
from lambdas.downlink.parts import Parts
from lambdas.downlink.reconciler import Reconciled, Reconciler
from lambdas.presence.state import Line, Sighting
from lambdas.presence.table import PresenceTable
from tests.dynamodb import create_table
from tests.unit.queues import create_queue

START = 1_767_225_600_000
S = 1_000
HOUR = 3_600 * S
STATE = "org.eventplane.home.threshold.v1"
COMMAND = "org.eventplane.home.message.v1"
KEY_OF_PULSE = "threshold/home/pulse"
TABLES = ("desired", "presence", "fleet")
QUEUES = ("inbox", "work", "outbox", "last-resort")


@dataclass
class World:
    """`now_ms` is everybody's clock; `sent` is what was published to devices."""

    contract: Contract
    now_ms: int = START
    sent: list[tuple[str, Incoming]] = field(default_factory=list)
    is_iot_up: bool = True
    dynamodb: Any = None
    sqs: Any = None
    queues: dict[str, str] = field(default_factory=dict)
    delays: list[int] = field(default_factory=list)
    _numbers: int = 0

    def __post_init__(self) -> None:
        self.dynamodb, self.sqs = boto3.client("dynamodb"), boto3.client("sqs")
        self.queues = {name: create_queue(name) for name in QUEUES}
        create_table(self.dynamodb, "presence", "device")
        create_table(self.dynamodb, "fleet", FLEET_KEY)
        key, sort, index, due = (
            keys.PARTITION_KEY,
            keys.SORT_KEY,
            keys.INDEX_KEY,
            keys.INDEX_SORT_KEY,
        )
        self.dynamodb.create_table(
            TableName="desired",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": kind}
                for name, kind in ((key, "S"), (sort, "S"), (index, "N"), (due, "N"))
            ],
            KeySchema=_schema(key, sort),
            GlobalSecondaryIndexes=[_index(keys.INDEX, index, due)],
            LocalSecondaryIndexes=[_index(keys.PENDING_INDEX, key, due)],
        )
        self.table = DesiredTable(self.dynamodb, "desired")
        self.work = WorkQueue(self._delayed(), self.queues["work"])
        self.presence = Presence(self.dynamodb, "presence")
        self.fleet = Fleet(self.dynamodb, "fleet")
        self.items = Items(
            table=self.table,
            data=self,
            work=self.work,
            letters=self.letters(self.contract.device.inbox),
            clock=self.clock,
        )

    @property
    def parts(self) -> Parts:
        """The parts by the contract of the moment."""
        return Parts(
            contract=self.contract,
            table=self.table,
            items=self.items,
            presence=self.presence,
            fleet=self.fleet,
            work=self.work,
            letters=self.letters,
            clock=self.clock,
            sqs=self.sqs,
        )

    def letters(self, channel: Channel) -> DeadLetterWriter:
        return DeadLetterWriter(
            source="/eventplane/cloud/downlink",
            contract=self.contract,
            channel=channel,
            sender=SqsSender(self.sqs),
            outbox=self.queues["outbox"],
            last_resort=self.queues["last-resort"],
            clock=self.clock,
        )

    def clock(self) -> int:
        return self.now_ms

    # What boto3's clients do, as far as moto does not.

    def publish(self, *, topic: str, qos: int, payload: bytes) -> None:
        """IoT Core's data plane."""
        if not self.is_iot_up:
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "no"}}, "Publish")
        thing = topic.split("/")[1]
        assert (topic, qos) == (device_topic(thing, "inbox"), 1)
        self.sent.append((thing, received(parse_event(payload))))

    def _delayed(self) -> Any:
        """An SQS client whose delays are noted, and over at once."""
        world = self

        class Client:
            def send_message(self, *, DelaySeconds: int, **arguments: Any) -> Any:  # noqa: N803 - boto3's word
                world.delays.append(DelaySeconds)
                return world.sqs.send_message(**arguments)

        return Client()

    # The fleet.

    def make(self, *things: str, groups: frozenset[str] = frozenset(), is_gone: bool = False) -> None:
        registry = FleetTable(self.dynamodb, "fleet")
        for thing in things:
            device: Device = grouped(registry.read(thing) or made(thing, START), groups, START)
            assert registry.write(decommissioned(device, "", START) if is_gone else device)

    def line(self, thing: str, line: str) -> None:
        """What the presence monitor took down last."""
        # By the monitor's own hand: the downlink reads what that writes.
        table = PresenceTable(self.dynamodb, "presence")
        state = table.read([thing])[thing]
        assert table.write(replace(state, sighting=Sighting(Line(line), START, 1, "s")), None)

    # The functions.

    def desire(self, *bodies: str, remaining_ms: Callable[[], int] = lambda: 60_000) -> frozenset[str]:
        """Take in messages of the devices' inbox, and what they leave there."""
        writer = DesiredStateWriter(self.parts, self.queues["inbox"])
        failed = writer.process(self._messages(bodies), Invocation("i", remaining_ms))
        while rest := self.taken("inbox"):
            failed |= writer.process(self._messages(rest), Invocation("i", remaining_ms))
        return failed

    def answer(self, thing: str, *answers: Acknowledgement, epoch: str = "life-1") -> frozenset[str]:
        """The device acknowledges; the ids of messages that come again."""
        return self.say(thing, ACKNOWLEDGED, to_data(answers, epoch))

    def store(self, thing: str, epoch: str = "life-1") -> frozenset[str]:
        """The device stores all that was published since, and says so."""
        mine = [incoming for to, incoming in self.sent if to == thing]
        self.sent = [each for each in self.sent if each[0] != thing]
        return self.answer(thing, *map(stored, mine), epoch=epoch)

    def start(self, thing: str, epoch: str) -> frozenset[str]:
        return self.say(thing, STARTED, {"epoch": epoch})

    def say(self, thing: str, type: str, data: Any) -> frozenset[str]:
        self._numbers += 1
        attributes = {
            "id": f"r{self._numbers}",
            "source": forwarder_source(thing),
            "type": type,
            "senderdevice": thing,
            "senderservice": self.contract.device.name,
        }
        return self.tell(write_event(attributes, data).json)

    def tell(self, *bodies: str) -> frozenset[str]:
        answers = Answers(self.parts)
        return answers.process(self._messages(bodies), Invocation("i", lambda: 60_000))

    def subscribed(self, thing: str) -> None:
        self.sqs.send_message(QueueUrl=self.queues["work"], MessageBody=json.dumps({"subscribed": thing}))
        self.do_work()

    def do_work(self, remaining_ms: Callable[[], int] = lambda: 60_000) -> frozenset[str]:
        """Work off the queue of work until it is empty; checks that are too early do nothing."""
        due = DueWork(self.parts)
        failed: frozenset[str] = frozenset()
        while bodies := self.taken("work"):
            failed |= due.process(self._messages(bodies), Invocation("i", remaining_ms))
        return failed

    def reconcile(self, remaining_ms: Callable[[], int] = lambda: 60_000) -> Reconciled:
        reconciler = Reconciler(self.parts)
        return reconciler.reconcile(range(16), remaining_ms)

    # What came of it.

    def item(self, thing: str = "home-1", sk: str = f"s#{KEY_OF_PULSE}") -> Desired:
        item = self.table.read(thing, sk)
        assert item is not None
        return replace(item, revision=0)

    def versions(self, thing: str = "home-1") -> list[int]:
        """The versions published to a device, in order."""
        return [incoming.version for to, incoming in self.sent if to == thing]

    def count(self) -> int:
        """Items in the table."""
        number: int = self.dynamodb.scan(TableName="desired")["Count"]
        return number

    def reasons(self) -> list[str]:
        """Why there are dead letters, since this was asked last."""
        return [parse_event(body).data()["reason"] for body in self.taken("outbox")]

    def taken(self, queue: str) -> list[str]:
        """All messages of a queue, deleted."""
        url, bodies = self.queues[queue], []
        while messages := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                bodies.append(message["Body"])
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bodies

    def _messages(self, bodies: Any) -> list[QueueMessage]:
        return [
            QueueMessage(id=f"m{at}", body=body, sent_at_ms=self.now_ms, attempt=1)
            for at, body in enumerate(bodies)
        ]


def state(version: int, device: str = "home-1", **attributes: AttributeValue) -> str:
    """A threshold for a home, as the router writes it to the devices' inbox."""
    return write_event(
        {
            "id": f"v{version}",
            "source": "/carers",
            "senderservice": "carers",
            "type": STATE,
            "todevice": device,
            "statekey": KEY_OF_PULSE,
            "stateversion": str(version),
            **attributes,
        },
        {"reading": "pulse", "high": version},
    ).json


def command(number: int, device: str = "home-1", **attributes: AttributeValue) -> str:
    """A carer's message."""
    names = {"id": f"c{number}", "source": "/carers", "senderservice": "carers", "type": COMMAND}
    version = {"todevice": device, "stateversion": str(number)}
    return write_event({**names, **version, **attributes}, {"text": f"message {number}"}).json


def group(version: int, name: str) -> str:
    """A threshold for a group of homes."""
    event = json.loads(state(version))
    del event["todevice"]
    return json.dumps(event | {"togroup": name})


def _schema(*names: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=False)
    ]


def _index(name: str, *attributes: str) -> dict[str, Any]:
    projection = {"ProjectionType": "KEYS_ONLY"}
    return {"IndexName": name, "KeySchema": _schema(*attributes), "Projection": projection}
