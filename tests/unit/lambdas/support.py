"""What the tests of the functions share: messages as Lambda delivers them, and the plane in memory."""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import urandom
from typing import Any

import pytest

from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, subscription_table
from eventplane.contract.publication import KEY, ContractTable, Head, cloud_destinations, head_id, published
from eventplane.contract.subscription import new_subscription
from eventplane.envelope import Envelope, Sender, parse_event, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.interest import table as interest_table
from eventplane.sending import stamp_sender
from eventplane.settings import written
from eventplane_aws.tables import DynamoDbTables
from lambdas.archive.ledger import LedgerWriter
from lambdas.common import system
from lambdas.common.archive import Archiver
from lambdas.common.contracts import CONTRACT_FILE
from lambdas.common.ledger import Ledger
from lambdas.common.log import log_foreign
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sqs import SqsSender
from lambdas.router.active_contract import ActiveContract, Unseen
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import RoutingEngine, build_engine
from lambdas.router.service import RouterService
from parts.tracing.recorder import OtlpRecorder
from parts.webhooks.endpoint_state import ENDPOINT
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws
from tests.fakes.clock import START_MS
from tests.small_contract import with_changes

NOW_MS = START_MS
INTERVAL_MS = 10_000
"""How old the contract in force may become, milliseconds."""
DAWN = "2026-01-01T00:00:00Z"
BUCKET = "archive"
TABLE = "contracts"
SUBSCRIPTIONS = "subscriptions"
INTEREST = "interest"
ENDPOINTS = "endpoints"
TABLES = {
    "CONTRACTS_TABLE": TABLE,
    "SUBSCRIPTIONS_TABLE": SUBSCRIPTIONS,
    "INTEREST_TABLE": INTEREST,
    "CONTRACT_REFRESH_S": "30",
}
"""The settings by which a function finds the contract in force."""
ALARM = "org.eventplane.alarm.keyword.v1"
READING = "org.eventplane.health.reading.v1"
LETTERS = "operations.inbox"
PACKED = ("care-analytics", "family-app")
"""Cloud services of the shipped contract with packed inboxes."""
READ = {"quantity": "heart-rate", "value": 72, "unit": "/min"}
DATA = {"org.eventplane.home.message.v1": {"text": "Hello"}}
"""What events have as their data by type, where a schema asks for it; all others have what a reading has."""


def event(id: str, type: str = READING, **attributes: AttributeValue) -> Envelope:
    return write_event({"id": id, "source": "/homes/1", "type": type, **attributes}, DATA.get(type, READ))


def stamped(event: Envelope, sender: Sender | None = None) -> Envelope:
    """The event as a router delivers it: by default that of the device whose frames `frame` makes."""
    return stamp_sender(event, sender or Sender("home-1"))


def with_sends(contract: Contract, participant: str, *types: str) -> Contract:
    """The contract in which `participant` may send these types."""
    return with_changes(contract, {f"participants/{participant}/sends": [*types]})


def with_route(
    contract: Contract, name: str, to: str = "family-app.inbox", type: str | None = None
) -> Contract:
    """The contract with one more route, called `name`, as is the type that it takes unless one is given."""
    route = {"filter": {"exact": {"type": type or name}}, "to": to}
    return with_changes(contract, {f"routes/{name}": route})


def with_packs(contract: Contract, most: int) -> Contract:
    """`contract` with up to `most` events a message in the inboxes of `PACKED`."""
    return with_changes(contract, {f"participants/{each}/inbox/events_per_message": most for each in PACKED})


def frame(payload: bytes | Envelope) -> str:
    """Return what the ingest rule writes of a publish."""
    payload = payload.json.encode() if isinstance(payload, Envelope) else payload
    return frame_text(IngestFrame(payload, "devices/home-1/outbox", "home-1", "certificate", NOW_MS - 1_000))


def message(id: str, body: str, attempt: int = 1) -> QueueMessage:
    return QueueMessage(id=id, body=body, sent_at_ms=NOW_MS - 500, attempt=attempt)


def invocation(remaining_ms: int = 30_000, id: str = "invocation-1") -> Invocation:
    return Invocation(id, lambda: remaining_ms)


def sqs_event(*messages: QueueMessage) -> dict[str, Any]:
    """The messages as Lambda's event source mapping delivers them."""
    return {
        "Records": [
            {
                "messageId": each.id,
                "receiptHandle": f"handle-{each.id}",
                "body": each.body,
                "attributes": {
                    "ApproximateReceiveCount": str(each.attempt),
                    "SentTimestamp": str(each.sent_at_ms),
                },
                "messageAttributes": {"route": {"stringValue": each.route}} if each.route else {},
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:us-east-1:000000000000:{each.queue or 'queue'}",
                "awsRegion": "us-east-1",
            }
            for each in messages
        ]
    }


def deliver(
    sqs: Any,
    url: str,
    process: Callable[..., Any],
    *,
    wait_s: int = 2,
    remaining_ms: Callable[[], int] = lambda: 60_000,
    most: int = 10,
) -> tuple[int, frozenset[str]]:
    """Have a function read up to `most` messages of a queue; return their number and the redelivered bodies.

    Those are visible again after `wait_s` seconds, as are all when the function is killed.
    """
    names = ["SentTimestamp", "ApproximateReceiveCount"]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, MessageSystemAttributeNames=names)
    messages = [
        QueueMessage(each["MessageId"], each["Body"], *(int(each["Attributes"][name]) for name in names))
        for each in found.get("Messages", [])
    ]
    again = {each.id for each in messages}
    try:
        again = set(process(messages, Invocation("i", remaining_ms))) if messages else again
    finally:
        for each in found.get("Messages", []):
            handle = {"QueueUrl": url, "ReceiptHandle": each["ReceiptHandle"]}
            if each["MessageId"] in again:
                sqs.change_message_visibility(**handle, VisibilityTimeout=wait_s)
            else:
                sqs.delete_message(**handle)
    return len(messages), frozenset(each.body for each in messages if each.id in again)


def failures(*ids: str) -> dict[str, Any]:
    """The response by which a queue delivers these messages again."""
    return {"batchItemFailures": [{"itemIdentifier": id} for id in ids]}


def figures(output: str) -> dict[str, float]:
    """The figures of the one invocation that printed `output`."""
    lines = [json.loads(line) for line in output.splitlines()]
    (embedded,) = (line for line in lines if "_aws" in line)
    return {name: sum(value) for name, value in embedded.items() if isinstance(value, list)}


@dataclass
class LambdaContext:
    """What Lambda passes beside the event."""

    aws_request_id: str = "request-1"
    function_name: str = "function"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:function"
    remaining_ms: int = 30_000

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


class Cloud:
    """The plane of `contract`: a queue for every inbox, the archive, the tables; and its router.

    `queues` are the inboxes' URLs by address.
    """

    def __init__(self, aws: FakeAws, contract: Contract) -> None:
        self.aws = aws
        self.contract = contract
        self.clock, self.sqs, self.s3, self.dynamodb = aws.clock, aws.sqs, aws.s3, aws.dynamodb
        self.queues = {each.address: self.queue(each.participant) for each in cloud_destinations(contract)}
        self.source, self.ledger = self.queue("source"), self.queue("ledger")
        self.s3.create_bucket(Bucket=BUCKET)
        create_table(self.dynamodb, TABLE, KEY)
        for table, of in {SUBSCRIPTIONS: subscription_table, INTEREST: interest_table}.items():
            create_table(self.dynamodb, table, of.PARTITION, of.SORT)
        create_table(self.dynamodb, ENDPOINTS, *ENDPOINT.key)
        self.tables = DynamoDbTables(self.dynamodb, urandom)
        self.contracts = ContractTable(self.tables, TABLE)
        self.subscriptions = subscription_table.SubscriptionTable(self.tables, SUBSCRIPTIONS)
        self._previous: str | None = None

    def queue(self, name: str) -> str:
        """Create a queue; its URL."""
        return str(self.sqs.create_queue(QueueName=name)["QueueUrl"])

    # The router.

    def ledger_of(self, *, sqs: Any = None, s3: Any = None) -> Ledger:
        """The ledger as a router has it; `sqs` and `s3` stand for AWS where it fails."""
        archive = Archiver(s3 or self.s3, BUCKET, urandom)
        return Ledger(sender=SqsSender(sqs or self.sqs), queue_url=self.ledger, archive=archive)

    def engine(self, contract: Contract | None = None, source: str = "device.outbox") -> RoutingEngine:
        """The engine of the router that `source` feeds."""
        return build_engine(contract or self.contract, [source], self.queues, cpu_time=system.cpu_time)

    def router(
        self,
        plane: Contract | None = None,
        *,
        source: str = "device.outbox",
        engine: Callable[[], Any] | None = None,
        sqs: Any = None,
        ledger_sqs: Any = None,
        s3: Any = None,
        spans: OtlpRecorder | None = None,
    ) -> RouterService:
        """A router's process; `sqs`, `ledger_sqs` and `s3` stand for AWS where it fails."""
        built = self.engine(plane, source)
        return RouterService(
            engine=engine or (lambda: built),
            dispatch=Dispatch(SqsSender(sqs or self.sqs), self.queues, system.threads),
            ledger=self.ledger_of(sqs=ledger_sqs, s3=s3),
            clock=self.clock,
            spans=spans,
        )

    def route(
        self,
        *messages: QueueMessage,
        plane: Contract | None = None,
        remaining_ms: Callable[[], int] = lambda: 30_000,
        id: str = "invocation-1",
        **options: Any,
    ) -> frozenset[str]:
        """Route `messages` in a new process; return the ids of those that are redelivered."""
        return self.router(plane, **options).process(messages, Invocation(id, remaining_ms))

    # Results.

    def received(self, address: str) -> list[dict[str, Any]]:
        """All messages of an inbox that were not received yet."""
        messages: list[dict[str, Any]] = []
        while batch := self.sqs.receive_message(
            QueueUrl=self.queues[address], MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            messages += batch
        return messages

    def bodies(self, address: str) -> list[str]:
        return [each["Body"] for each in self.received(address)]

    def copies(self) -> dict[str, int]:
        """How many messages each inbox has got that were not received yet; none of those without."""
        return {address: len(found) for address in self.queues if (found := self.received(address))}

    def letters(self) -> list[dict[str, Any]]:
        """The data of the dead letters that operations has got."""
        return [parse_event(body).data() for body in self.bodies(LETTERS)]

    def decisions(self) -> list[dict[str, Any]]:
        """The records of the ledger, which its writer archives first."""
        writer = LedgerWriter(archive=Archiver(self.s3, BUCKET, urandom), clock=self.clock)
        queue = self.sqs.queue(self.ledger)
        batch = [message(each.id, each.body) for each in queue.messages]
        queue.messages.clear()
        assert writer.process(batch, invocation()) == frozenset()
        return self.lines("ledger/")

    def ledger_rows(self, *names: str) -> list[tuple[Any, ...]]:
        """These members of the ledger's records, sorted."""
        return sorted(tuple(line[name] for name in names) for line in self.decisions())

    def outcomes(self) -> list[tuple[Any, ...]]:
        """Return the ledger's event ids, destinations and outcomes."""
        return self.ledger_rows("id", "destination", "outcome")

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(key for key in self.s3.buckets[BUCKET] if key.startswith(prefix))

    def read(self, key: str) -> bytes:
        """The object of the archive that is called so."""
        return self.s3.buckets[BUCKET][key].body

    def lines(self, prefix: str) -> list[dict[str, Any]]:
        """The records of all objects under `prefix`."""
        bodies = map(self.read, self.keys(prefix))
        return [json.loads(line) for body in bodies for line in gzip.decompress(body).splitlines()]

    # The tables that the contract in force is read from.

    def publish(self, contract: Contract) -> None:
        """Publish without the checks that the command makes."""
        self.contracts.contracts.force(published(contract))
        self.name(contract.version)

    def offer(self, contract: Contract) -> None:
        """Have the head name the candidate `contract`."""
        self.contracts.contracts.force(published(contract))
        base = self.contract.version
        self.contracts.heads.force(Head(base, base, None, DAWN, contract.version))

    def name(self, version: str) -> None:
        """Have the head name `version`."""
        head = Head(self.contract.version, version, self._previous, DAWN)
        self.contracts.heads.force(head)
        self._previous = version

    def withdraw(self) -> None:
        self.contracts.heads.discard(head_id(self.contract.version))

    def subscribe(self, name: str, type: str, participant: str = "family-app") -> None:
        subscription = new_subscription(participant, name, {"exact": {"type": type}}, DAWN)
        assert self.subscriptions.write(subscription)

    def unsubscribe(self, name: str, participant: str = "family-app") -> None:
        if found := self.subscriptions.get(participant, name):
            assert self.subscriptions.remove(found)

    def in_force(
        self,
        dynamodb: Any = None,
        *,
        source: str = "device.outbox",
        delivers: bool = True,
    ) -> ActiveContract[RoutingEngine]:
        """The contract in force of a function that has just started, and which reads through `dynamodb`.

        A router `delivers` events by it.
        """
        tables = DynamoDbTables(dynamodb, urandom) if dynamodb else self.tables
        return ActiveContract(
            bundled=self.contract,
            build=lambda contract: self.engine(contract, source),
            table=ContractTable(tables, TABLE),
            subscriptions=subscription_table.SubscriptionTable(tables, SUBSCRIPTIONS, log_foreign),
            interest=interest_table.InterestTable(tables, INTEREST, log_foreign),
            refresh_ms=INTERVAL_MS,
            clock=self.clock,
            queues=self.queues if delivers else None,
            under=RoutingEngine.under,
        )


def seen(in_force: ActiveContract[RoutingEngine]) -> Contract:
    """The contract in force, which is known."""
    engine = in_force.engine()
    assert in_force.is_seen
    assert not isinstance(engine, Unseen)
    return engine.contract


def unseen(in_force: ActiveContract[RoutingEngine]) -> Contract:
    """The contract that is known while the one in force is not."""
    engine = in_force.engine()
    assert not in_force.is_seen
    assert isinstance(engine, Unseen)
    return engine.engine.contract


def deploy(
    monkeypatch: pytest.MonkeyPatch, folder: Any, contract: Contract | None, settings: Mapping[str, Any]
) -> None:
    """Set the environment that the stacks give a function: its `settings` without their prefix, its asset."""
    if contract is not None:
        (folder / CONTRACT_FILE).write_bytes(contract.canonical)
    for name, value in {"LAMBDA_TASK_ROOT": folder, "POWERTOOLS_SERVICE_NAME": "function"}.items():
        monkeypatch.setenv(name, str(value))
    for name, value in settings.items():
        monkeypatch.setenv(f"EVENTPLANE_{name}", written(value))
