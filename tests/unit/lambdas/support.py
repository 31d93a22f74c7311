"""What the tests of the functions share: messages as Lambda hands them over, and the AWS behind them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, compile_contract, contract_document, subscription_table
from eventplane.contract.publication import KEY, cloud_destinations
from eventplane.envelope import Envelope, write_event
from eventplane.interest import table as interest_table
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from lambdas.archive.ledger import LedgerWriter
from lambdas.common.archive import Archive
from lambdas.common.ledger import Ledger
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sqs import SqsSender
from tests.dynamodb import create_table
from tests.unit.queues import create_queue

Run = Callable[..., frozenset[str]]
"""Has the router process messages; see the fixture `run`."""

NOW_MS = 1_767_225_600_000
BUCKET = "archive"
TABLE = "contracts"
SUBSCRIPTIONS = "subscriptions"
INTEREST = "interest"
ALARM = "org.eventplane.alarm.keyword.v1"
READING = "org.eventplane.health.reading.v1"
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
    document = json.loads(contract.canonical)
    document["participants"][participant]["sends"] = list(types)
    return compile_contract(document, "test")


def frame(payload: bytes) -> str:
    return json.dumps(
        {
            "data": base64.b64encode(payload).decode(),
            "topic": "devices/home-1/outbox",
            "clientid": "home-1",
            "principal": "certificate",
            "timestamp": NOW_MS - 1_000,
        }
    )


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
                "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:queue",
                "awsRegion": "us-east-1",
            }
            for each in messages
        ]
    }


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

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


@dataclass
class Cloud:
    """Queues for every inbox of the contract, archive bucket and table of contracts, as moto plays them."""

    sqs: Any
    s3: Any
    dynamodb: Any
    source: str = ""
    ledger: str = ""
    queues: dict[str, str] = field(default_factory=dict)

    def create(self, contract: Contract) -> None:
        for inbox in cloud_destinations(contract):
            self.queues[inbox.address] = create_queue(inbox.participant)
        self.source = create_queue("source")
        self.ledger = create_queue("ledger")
        self.s3.create_bucket(Bucket=BUCKET)
        create_table(self.dynamodb, TABLE, KEY)
        for table, of in {SUBSCRIPTIONS: subscription_table, INTEREST: interest_table}.items():
            create_table(self.dynamodb, table, of.PARTITION, of.SORT)

    def received(self, address: str) -> list[dict[str, Any]]:
        """All messages of an inbox."""
        messages: list[dict[str, Any]] = []
        while batch := self.sqs.receive_message(
            QueueUrl=self.queues[address], MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            messages += batch
        return messages

    def write_ledger(self) -> None:
        """Have the ledger writer archive what routers sent."""
        writer = LedgerWriter(archive=Archive(self.s3, BUCKET), clock=lambda: NOW_MS)
        while found := self._messages(self.ledger):
            batch = [message(each["MessageId"], each["Body"]) for each in found]
            assert writer.process(batch, invocation()) == frozenset()

    def _messages(self, queue_url: str) -> list[dict[str, Any]]:
        """Up to ten messages of a queue, deleted."""
        found: list[dict[str, Any]] = self.sqs.receive_message(
            QueueUrl=queue_url, MaxNumberOfMessages=10
        ).get("Messages", [])
        for each in found:
            self.sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=each["ReceiptHandle"])
        return found

    def keys(self, prefix: str) -> list[str]:
        listing = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return sorted(each["Key"] for each in listing)

    def outcomes(self) -> list[tuple[str, str | None, str]]:
        """What the ledger says: event id, destination, outcome."""
        return sorted((line["id"], line["destination"], line["outcome"]) for line in self.decisions())

    def decisions(self) -> list[dict[str, Any]]:
        """The records of the ledger."""
        self.write_ledger()
        return self.lines("ledger/")

    def lines(self, prefix: str) -> list[dict[str, Any]]:
        """The records of all objects under `prefix`."""
        bodies = (self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in self.keys(prefix))
        return [json.loads(line) for body in bodies for line in gzip.decompress(body).splitlines()]


def ledger_of(cloud: Cloud, *, sqs: Any = None, s3: Any = None) -> Ledger:
    """The ledger as a router has it; `sqs` and `s3` stand for AWS where it fails."""
    archive = Archive(s3 or cloud.s3, BUCKET)
    return Ledger(sender=SqsSender(sqs or cloud.sqs), queue_url=cloud.ledger, archive=archive)


def with_packs(contract: Contract, most: int) -> Contract:
    """`contract` with up to `most` events a message in the inboxes of `PACKED`."""
    document = contract_document(contract)
    for name in PACKED:
        document["participants"][name]["inbox"]["events_per_message"] = most
    return compile_contract(document, "test")


class Unwilling:
    """A client whose `method` fails, for all calls or for those on one of `queue_urls`, until the `end`."""

    def __init__(
        self, client: Any, method: str, *, queue_urls: Collection[str] = (), code: str = "Throttling"
    ) -> None:
        self._client = client
        self._method = method
        self._queue_urls = queue_urls
        self._code = code
        self._is_over = False

    def end(self) -> None:
        """Let all calls succeed from now on."""
        self._is_over = True

    def __getattr__(self, name: str) -> Any:
        willing = getattr(self._client, name)
        if name != self._method:
            return willing

        def call(*arguments: Any, **named: Any) -> Any:
            if not self._is_over and (not self._queue_urls or named["QueueUrl"] in self._queue_urls):
                raise ClientError({"Error": {"Code": self._code, "Message": "no"}}, name)
            return willing(*arguments, **named)

        return call
