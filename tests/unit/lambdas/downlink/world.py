"""The downlink in memory: a fleet, its presence, devices' inboxes, and the functions."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import urandom
from typing import Any

import pytest
from botocore.exceptions import ClientError

from eventplane import presence
from eventplane.attributes import AttributeValue
from eventplane.contract import Contract
from eventplane.device_record import REGISTRY
from eventplane.device_reports import ACKNOWLEDGED, STARTED, forwarder_source
from eventplane.downlink import table as keys
from eventplane.downlink.desired import Desired
from eventplane.downlink.device import Acknowledgement, stored, to_data
from eventplane.downlink.wire import Incoming, received
from eventplane.envelope import parse_event, write_event
from eventplane.function_settings import DownlinkFunctionSettings
from eventplane.records import Records
from eventplane.topics import device_topic
from eventplane_aws.tables import DynamoDbTables
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.downlink import parts
from lambdas.downlink.answers import AckReader
from lambdas.downlink.desired import DesiredStateWriter
from lambdas.downlink.due import DueWork
from lambdas.downlink.parts import DownlinkParts
from lambdas.downlink.reconciler import Reconciled, Reconciler
from parts.fleet.lifecycle import decommissioned, grouped, made
from tests.dynamodb import create_desired_table, records
from tests.fakes.aws import FakeAws
from tests.fakes.client import ScriptedClient
from tests.fakes.clock import START_MS

START = START_MS
S = 1_000
HOUR = 3_600 * S
STATE = "org.eventplane.home.threshold.v1"
COMMAND = "org.eventplane.home.message.v1"
KEY_OF_PULSE = "threshold/home/pulse"
DESIRED, PRESENCE, FLEET = "desired", "presence", "fleet"
QUEUES = ("inbox", "work", "outbox", "last-resort")


class World:
    """The functions by their own wiring; `sent` is what was published to devices, `delays` those of work.

    `calls` is how often a function was called in the longest chain of messages of the last work; AWS Lambda
    ends one at 16.
    """

    def __init__(self, aws: FakeAws, contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contract = contract
        self.clock, self.dynamodb, self.sqs = aws.clock, aws.dynamodb, aws.sqs
        self.sent: list[tuple[str, Incoming]] = []
        self.delays: list[int] = []
        self.calls = 0
        self.is_iot_up = True
        self.queues = {name: aws.sqs.create_queue(QueueName=name)["QueueUrl"] for name in QUEUES}
        self.presence = records(aws.dynamodb, PRESENCE, presence.PRESENCE)
        create_desired_table(aws.dynamodb, DESIRED)
        self.table = Records(DynamoDbTables(aws.dynamodb, urandom), DESIRED, keys.DESIRED)
        self.fleet = records(aws.dynamodb, FLEET, REGISTRY)
        self._numbers = 0
        aws.others["iot-data"] = ScriptedClient("iot-data", self)
        settings = DownlinkFunctionSettings(
            desired_table=DESIRED,
            presence_table=PRESENCE,
            fleet_table=FLEET,
            work_queue=self.queues["work"],
            outbox_queue=self.queues["outbox"],
            dead_letter_queue=self.queues["last-resort"],
        )
        for name, value in settings.variables().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(parts, "bundled_contract", lambda: self.contract)
        monkeypatch.setattr(parts, "system_clock", aws.clock)
        monkeypatch.setattr(aws.sqs, "send_message", self._noting(aws.sqs.send_message))

    @property
    def parts(self) -> DownlinkParts:
        """The parts by the contract of the moment."""
        return parts.wired()

    def publish(self, *, topic: str, qos: int, payload: bytes) -> dict[str, Any]:
        """IoT Core's data plane."""
        if not self.is_iot_up:
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "no"}}, "Publish")
        thing = topic.split("/")[1]
        assert (topic, qos) == (device_topic(thing, "inbox"), 1)
        self.sent.append((thing, received(parse_event(payload))))
        return {}

    def _noting(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """`send`, whose delays are noted."""

        def send_message(**request: Any) -> Any:
            if "DelaySeconds" in request:
                self.delays.append(request["DelaySeconds"])
            return send(**request)

        return send_message

    # The fleet.

    def make(self, *things: str, groups: frozenset[str] = frozenset(), is_gone: bool = False) -> None:
        for thing in things:
            device = grouped(self.fleet.read(thing) or made(thing, START), groups, START)
            assert self.fleet.write(decommissioned(device, "", START) if is_gone else device)

    def line(self, thing: str, line: str) -> None:
        """What the presence monitor took down last."""
        state = self.presence.read(thing) or presence.PresenceItem(thing)
        sighting = presence.Sighting(presence.Line(line), START, 1, "s")
        assert self.presence.write(replace(state, sighting=sighting))

    # The functions.

    def desire(self, *bodies: str, remaining_ms: Callable[[], int] = lambda: 60_000) -> frozenset[str]:
        """Process messages of the devices' inbox, and those that they leave there."""
        writer = DesiredStateWriter(self.parts, self.queues["inbox"])
        return self._call(writer.process, "inbox", bodies, remaining_ms)

    def answer(self, thing: str, *answers: Acknowledgement, epoch: str = "life-1") -> frozenset[str]:
        """The device acknowledges; return the ids of redelivered messages."""
        return self.say(thing, ACKNOWLEDGED, to_data(answers, epoch))

    def store(self, thing: str, epoch: str = "life-1") -> frozenset[str]:
        """The device stores and acknowledges all that was published since."""
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
        answers = AckReader(self.parts)
        return answers.process(self._messages(bodies), Invocation("i", lambda: 60_000))

    def subscribed(self, thing: str) -> None:
        self.do_work({"subscribed": thing})

    def check(self) -> None:
        """Look at the pulse of home-1 now, and do all other work."""
        self.parts.work.check("home-1", f"s#{KEY_OF_PULSE}", 0)
        self.do_work()

    def do_work(
        self, *orders: dict[str, Any] | str, remaining_ms: Callable[[], int] = lambda: 60_000
    ) -> frozenset[str]:
        """Put `orders` into the queue of work and work it off, delayed messages too; checks that are too
        early do nothing."""
        for order in orders:
            body = order if isinstance(order, str) else json.dumps(order)
            self.sqs.send_message(QueueUrl=self.queues["work"], MessageBody=body)
        return self._call(DueWork(self.parts).process, "work", self.taken("work"), remaining_ms)

    def reconcile(self, remaining_ms: Callable[[], int] = lambda: 60_000) -> Reconciled:
        reconciler = Reconciler(self.parts)
        return reconciler.reconcile(range(16), remaining_ms)

    # Results.

    def item(self, thing: str = "home-1", sk: str = f"s#{KEY_OF_PULSE}") -> Desired:
        item = self.table.read(thing, sk)
        assert item is not None
        return replace(item, revision=0)

    def versions(self, thing: str = "home-1") -> list[int]:
        """The versions published to a device, in order."""
        return [incoming.version for to, incoming in self.sent if to == thing]

    def things(self, table: str = DESIRED) -> list[str]:
        """The devices with items in the table, one for each item."""
        return [each["thing"]["S"] for each in self.dynamodb.items(table)]

    def letters(self) -> list[dict[str, Any]]:
        """The data of the dead letters since this was asked last."""
        return [parse_event(body).data() for body in self.taken("outbox")]

    def reasons(self) -> list[str]:
        """Why there are dead letters, since this was asked last."""
        return [each["reason"] for each in self.letters()]

    def taken(self, queue: str) -> list[str]:
        """All messages of a queue, deleted."""
        return self.sqs.take(self.queues[queue])

    def _call(
        self,
        function: Callable[[Sequence[QueueMessage], Invocation], frozenset[str]],
        queue: str,
        bodies: Sequence[str],
        remaining_ms: Callable[[], int],
    ) -> frozenset[str]:
        """Process `bodies`, and what the function leaves in its own queue."""
        failed: frozenset[str] = frozenset()
        self.calls = 0
        while bodies:
            failed |= function(self._messages(bodies), Invocation("i", remaining_ms))
            self.calls += 1
            bodies = self.taken(queue)
        return failed

    def _messages(self, bodies: Sequence[str]) -> list[QueueMessage]:
        return [
            QueueMessage(id=f"m{at}", body=body, sent_at_ms=self.clock(), attempt=1)
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
