"""A small world for the presence monitor: statements about devices, limits, and the AWS that moto plays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from eventplane.device_reports import HEARTBEAT, forwarder_source
from eventplane.envelope import write_event
from eventplane.function_settings import PresenceLimits
from eventplane.traffic import Quota, Traffic
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sqs import SqsSender
from lambdas.presence.judge import Judge
from lambdas.presence.parts import Parts
from lambdas.presence.reconciler import Reconciler
from lambdas.presence.recorder import Observation, Recorder, read_heartbeat, read_presence
from lambdas.presence.reports import Notices
from lambdas.presence.state import DeviceState, Heartbeat, Line, Sighting
from lambdas.presence.table import INDEX, PresenceTable
from lambdas.presence.timer_queue import TimerQueue
from lambdas.presence.timers import TimerReader
from lambdas.presence.watch import Watch

S = 1_000
MINUTE = 60 * S
HOUR = 60 * MINUTE
START = 1_767_225_600_000

LIMITS = PresenceLimits(
    disconnected_after_s=120,
    connected_after_s=60,
    quiet_after_heartbeats=3,
    oldest_urgent_s=60,
    oldest_normal_s=900,
    quota=Quota(window_s=300, frames=1_000, events=10_000, bytes=1_000_000),
)
WATCH = Watch(LIMITS, Notices())
CERTIFICATE = "a" * 64
TABLE = "presence"


def lifecycle(
    line: Line, at_ms: int, version: int = 0, *, device: str = "home-1", cause: str = "", **others: Any
) -> str:
    """A message as IoT Core writes it."""
    members = {
        "clientId": device,
        "timestamp": at_ms,
        "eventType": str(line),
        "sessionIdentifier": f"session-{version}",
        "principalIdentifier": CERTIFICATE,
        "versionNumber": version,
    }
    if line is Line.DISCONNECTED:
        members |= {"clientInitiatedDisconnect": False, "disconnectReason": cause or "CONNECTION_LOST"}
    return json.dumps(members | others)


def heartbeat(sequence: int = 1, *, device: str = "home-1", interval_s: Any = 300, **figures: Any) -> str:
    """A heartbeat as a forwarder writes it."""
    attributes = {
        "id": f"epoch-{sequence}",
        "source": forwarder_source(device),
        "senderdevice": device,
        "senderservice": "device",
        "type": HEARTBEAT,
        "deviceepoch": "epoch",
        "devicesequence": f"{sequence:012d}",
    }
    return write_event(attributes, {"interval_s": interval_s, "figures": figures}).json


def connected(at_ms: int, version: int = 0) -> Observation:
    return Observation("home-1", Sighting(Line.CONNECTED, at_ms, version, f"session-{version}"))


def disconnected(at_ms: int, version: int = 0, cause: str = "CONNECTION_LOST") -> Observation:
    return Observation("home-1", Sighting(Line.DISCONNECTED, at_ms, version, f"session-{version}", cause))


def beat(at_ms: int, **figures: float) -> Observation:
    return Observation("home-1", Heartbeat(at_ms, 300.0, **figures))


def sent(window: int, frames: int = 1_001, **others: int) -> Observation:
    """What the archive counted of a device in a window of five minutes, from `START` on."""
    return Observation("home-1", Traffic(START // (5 * MINUTE) + window, frames, **others))


@dataclass
class Home:
    """One device, without any AWS: what is observed and when it is judged makes `events`."""

    state: DeviceState = field(default_factory=lambda: DeviceState("home-1"))
    events: list[dict[str, Any]] = field(default_factory=list)

    def observe(self, *observations: Observation) -> None:
        for observation in observations:
            self.state = observation.apply(self.state)

    def judge(self, now_ms: int) -> list[dict[str, Any]]:
        """The events said at a moment, which are sent at once."""
        judged = WATCH.judge(self.state, now_ms)
        said = [json.loads(each) for each in judged.unsent]
        self.events += said
        self.state = replace(judged, unsent=(), revision=judged.revision + bool(said))
        return said

    def said(self, now_ms: int) -> list[str]:
        """The types of the events said at a moment, by their last word."""
        return [word(each) for each in self.judge(now_ms)]


def word(event: dict[str, Any]) -> str:
    """What an event says, in one word."""
    name: str = event["type"].split(".")[-2]
    return f"notice {event['data']['phase']}" if name == "carer" else name


@dataclass
class TimerSqs:
    """A queue of delayed messages in the time of a test; `refuses` as long as it takes none."""

    clock: Callable[[], int]
    waiting: list[QueueMessage] = field(default_factory=list)
    refuses: bool = False
    _numbers: Iterator[int] = field(default_factory=count)

    def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        """SQS's call; the queue's name has no part in it."""
        assert len(Entries) <= 10, QueueUrl
        assert all(0 <= each["DelaySeconds"] <= 900 for each in Entries)
        if self.refuses:
            return {"Failed": [{"Id": each["Id"], "Code": "InternalError"} for each in Entries]}
        for each in Entries:
            sent_ms = self.clock()
            due_ms = sent_ms + S * each["DelaySeconds"]
            name = f"t{next(self._numbers)}"
            self.waiting.append(QueueMessage(name, each["MessageBody"], sent_ms, 1, received_at_ms=due_ms))
        return {"Successful": [{"Id": each["Id"]} for each in Entries]}

    def take(self, now_ms: int, number: int = 10) -> list[QueueMessage]:
        """The messages whose delay is over."""
        taken = [each for each in self.waiting if (each.received_at_ms or 0) <= now_ms][:number]
        self.waiting = [each for each in self.waiting if each not in taken]
        return taken

    def redeliver(self, messages: Iterable[QueueMessage], at_ms: int) -> None:
        """Deliver messages again at a moment."""
        self.waiting += [replace(each, attempt=each.attempt + 1, received_at_ms=at_ms) for each in messages]

    @property
    def next_ms(self) -> int | None:
        """When the next message comes."""
        return min((each.received_at_ms or 0 for each in self.waiting), default=None)


class World:
    """The table and the outbox as moto plays them, and the functions around them at a moment, `now_ms`."""

    def __init__(self, dynamodb: Any, sqs: Any) -> None:
        self.dynamodb = dynamodb
        self.sqs = sqs
        self.now_ms = START
        self.timers = TimerSqs(self.clock)
        self.outbox = sqs.create_queue(QueueName="outbox")["QueueUrl"]
        dynamodb.create_table(
            TableName=TABLE,
            AttributeDefinitions=[
                {"AttributeName": "device", "AttributeType": "S"},
                {"AttributeName": "bucket", "AttributeType": "N"},
                {"AttributeName": "due_ms", "AttributeType": "N"},
            ],
            KeySchema=[{"AttributeName": "device", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            GlobalSecondaryIndexes=[
                {
                    "IndexName": INDEX,
                    "KeySchema": [
                        {"AttributeName": "bucket", "KeyType": "HASH"},
                        {"AttributeName": "due_ms", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
        )
        self.table = PresenceTable(dynamodb, TABLE)

    def record(
        self,
        *bodies: str,
        heartbeats: bool = False,
        attempt: int = 1,
        dynamodb: Any = None,
        remaining_ms: Callable[[], int] = lambda: 30_000,
    ) -> frozenset[str]:
        """Take down messages, named m0, m1, ...; the names of those that failed."""
        read = read_heartbeat if heartbeats else read_presence
        messages = [
            QueueMessage(id=f"m{at}", body=body, sent_at_ms=self.now_ms, attempt=attempt)
            for at, body in enumerate(bodies)
        ]
        recorder = Recorder(read, self.parts(dynamodb))
        return recorder.process(messages, Invocation("i", remaining_ms))

    def clock(self) -> int:
        return self.now_ms

    def parts(self, dynamodb: Any = None, sqs: Any = None) -> Parts:
        return Parts(
            table=PresenceTable(dynamodb or self.dynamodb, TABLE),
            watch=WATCH,
            timers=TimerQueue(SqsSender(self.timers), "timers"),
            sender=SqsSender(sqs or self.sqs),
            clock=self.clock,
        )

    def judge(self, *, dynamodb: Any = None, sqs: Any = None) -> Judge:
        return Judge(self.parts(dynamodb, sqs), self.outbox)

    def reader(self, *, dynamodb: Any = None, sqs: Any = None) -> TimerReader:
        return TimerReader(self.parts(dynamodb), self.judge(dynamodb=dynamodb, sqs=sqs))

    def reconciler(self, *, dynamodb: Any = None, sqs: Any = None) -> Reconciler:
        return Reconciler(self.parts(dynamodb), self.judge(dynamodb=dynamodb, sqs=sqs))

    def reconcile(self, now_ms: int | None = None, buckets: Sequence[int] = range(16), **clients: Any) -> Any:
        """Reconcile at a moment, whatever is due by then."""
        self.now_ms = self.now_ms if now_ms is None else now_ms
        return self.reconciler(**clients).reconcile(buckets, 0, lambda: 60_000)

    def fire(self, until_ms: int | None = None, *, failed_after_ms: int = 2 * S, **clients: Any) -> int:
        """Let time pass and timers fire, each at its moment; how many have fired.

        A message that fails comes again `failed_after_ms` later.
        """
        end_ms, fired = self.now_ms if until_ms is None else until_ms, 0
        while (next_ms := self.timers.next_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            messages = self.timers.take(self.now_ms)
            failed = self.reader(**clients).process(messages, Invocation("i", lambda: 30_000))
            again = [each for each in messages if each.id in failed]
            self.timers.redeliver(again, self.now_ms + failed_after_ms)
            fired += len(messages)
        self.now_ms = end_ms
        return fired

    def sent(self) -> list[dict[str, Any]]:
        """The events in the outbox that nobody took yet."""
        events: list[dict[str, Any]] = []
        while batch := self.sqs.receive_message(QueueUrl=self.outbox, MaxNumberOfMessages=10).get("Messages"):
            for message in batch:
                events.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=self.outbox, ReceiptHandle=message["ReceiptHandle"])
        return events

    def words(self) -> list[str]:
        """What the events in the outbox say, each in one word, sorted: a standard queue has no order."""
        return sorted(word(each) for each in self.sent())
