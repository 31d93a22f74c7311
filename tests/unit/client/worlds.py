"""The backends as one contract suite sees them: clients come, crash and come again; the plane stays."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time_ns
from typing import Any

from eventplane.envelope import Envelope, Sender, parse_event, write_event
from eventplane.sending import stamp_sender
from eventplane.sqs_binding import REDRIVEN
from eventplane.values import timestamp
from eventplane_aws.rules import SQS_RECEIVES
from eventplane_client import Client, Inbox
from eventplane_client.dynamodb_duplicates import PARTITION, SORT, DynamoDbFilter
from eventplane_client.memory import MemoryPlane, MemorySubscriptions, MemoryTransport
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.ports import MessageFilter, Transport
from eventplane_client.reader import Doubt
from eventplane_client.sqlite_duplicates import SqliteFilter
from eventplane_client.sqs import FIRST_VISIBILITY_S, SqsTransport
from eventplane_client.subscription import NoSubscriptions
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws

READER = "alarm-centre"
SENDER = "family-app"
HOME = {"senderdevice": "home-1", "senderservice": "voice-service"}
MAX_RECEIVES = 3
VISIBILITY_S = 3_600

_numbers = itertools.count(1)


def event(id: str | None = None, source: str = "/homes/1/voice", **attributes: str) -> Envelope:
    """An event that every world leads to the reader."""
    attributes = {"type": "org.eventplane.alarm.keyword.v1", **attributes}
    return write_event(
        {"id": id or f"event-{next(_numbers)}", "source": source, **attributes}, {"keyword": "help"}
    )


def numbered(number: int, reader: str = READER, **attributes: str) -> Envelope:
    """The event that a device counted as `number` of what goes to the reader's inbox."""
    positions = f"other/normal/0123abcd/{number + 7} {reader}/normal/0123abcd/{number}"
    return event(str(number), **{"orderin": positions, "deviceepoch": "one", **HOME, **attributes})


def lasting(id: str, lifetime_s: float) -> Envelope:
    """An event written now that expires after `lifetime_s` seconds."""
    now = datetime.now(UTC)
    return event(id, time=timestamp(now), expirytime=timestamp(now + timedelta(seconds=lifetime_s)))


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts the calls to whatever it wraps, and crashes before or after the one numbered `at`."""

    def __init__(self, at: int | None = None, *, after: bool = False) -> None:
        self.at = at
        self.after = after
        self.taken = 0

    def around(self, wrapped: Any) -> Any:
        return _Stepping(wrapped, self)


class _Stepping:
    def __init__(self, wrapped: Any, steps: Steps) -> None:
        self._wrapped = wrapped
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not callable(found) or name == "close":
            return found

        def step(*arguments: Any, **options: Any) -> Any:
            steps = self._steps
            steps.taken += 1
            if steps.taken == steps.at and not steps.after:
                raise Crash
            answer = found(*arguments, **options)
            if steps.taken == steps.at:
                raise Crash
            return answer

        return step


def memory_client(plane: MemoryPlane, participant: str, **options: Any) -> Client:
    """A client with a filter that forgets everything at its end."""
    transport, subscriptions = MemoryTransport(plane, participant), MemorySubscriptions(plane, participant)
    return Client(participant, transport, MemoryFilter, subscriptions, **options)


class MemoryWorld:
    """In memory; the filter is in memory too, or on the disk."""

    reader = READER
    sender = SENDER
    idle_s = 0.0

    def __init__(self, directory: Path | None = None, max_receives: int = MAX_RECEIVES) -> None:
        self._plane = MemoryPlane(visibility_s=VISIBILITY_S, max_receives=max_receives)
        self._memories: dict[str, Memory] = {}
        self._directory = directory
        self._open: list[SqliteFilter] = []
        self._now = 0.0
        self._plane.subscribe(READER, "contract", None)

    def client(self, participant: str, *, steps: Steps | None = None, **options: Any) -> Client:
        """A new client; its transport and filter take `steps`, and `options` are the client's."""
        around = steps.around if steps else lambda wrapped: wrapped
        transport: Transport = around(MemoryTransport(self._plane, participant))
        return Client(
            participant,
            transport,
            lambda: around(self._filter(participant)),
            MemorySubscriptions(self._plane, participant),
            **options,
        )

    def crash(self) -> None:
        """Every client's process ends, and what they had in hand comes again."""
        for each in self._open:
            each.close()  # what the system does for a process that ends
        self._open.clear()
        self._now += 2 * VISIBILITY_S  # the leases of what they had in hand have ended
        self.hurry()

    def hurry(self) -> None:
        """What waits to come again comes now; nobody crashed."""
        self._plane.expire()

    def deliver(self, body: Envelope | bytes) -> None:
        """To the reader, as a transport does that delivers twice."""
        self._plane.deliver_raw(READER, sent_by(SENDER, body))

    def pending(self) -> int:
        return self._plane.pending(READER)

    def taken_away(self) -> int:
        """Messages that the queue has given up, without the client's knowledge."""
        return 0

    def letters(self, least: int = 0) -> list[Envelope]:
        """The dead letters that were put, once there are `least`."""
        return [each for each in self._plane.events if each.type == "org.eventplane.deadletter.v1"]

    def close(self) -> None:
        self.crash()

    def _filter(self, participant: str) -> MessageFilter:
        if self._directory is None:
            memory = self._memories.setdefault(participant, Memory())
            return MemoryFilter(memory, lease=lambda: VISIBILITY_S, clock=lambda: self._now)
        found = SqliteFilter(self._directory / f"{participant}.db", on_notice=lambda _: None)
        self._open.append(found)
        return found


class SqsWorld:
    """Queues and a table in memory; the sender's outbox is the reader's inbox. Steps are calls.

    Like the plane's, the inbox takes away what is received oftener than its limit: `taken_away`.
    """

    reader = READER
    sender = SENDER
    idle_s = 0.0

    def __init__(self, max_receives: int = MAX_RECEIVES) -> None:
        aws = FakeAws()
        aws.clock.now_ms = time_ns() // 1_000_000  # clients have the machine's clock
        self._sqs, self._dynamodb = aws.sqs, aws.dynamodb
        self._table = "filters"
        self._max_receives = max_receives
        self._now = 1_700_000_000.0
        self._inbox, self._outbox, self._nowhere, self._dead = (
            self._sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": str(VISIBILITY_S)})[
                "QueueUrl"
            ]
            for name in ("inbox", "outbox", "nowhere", "dead")
        )
        self._sqs.set_queue_attributes(
            QueueUrl=self._inbox,
            Attributes={
                "RedrivePolicy": redrive(self._sqs, self._dead, min(max_receives + 1, SQS_RECEIVES.most))
            },
        )
        create_filter_table(self._dynamodb, self._table)

    def client(self, participant: str, *, steps: Steps | None = None, **options: Any) -> Client:
        around = steps.around if steps else lambda wrapped: wrapped
        sqs, dynamodb = around(self._sqs), around(self._dynamodb)
        is_reader = participant == self.reader
        transport = SqsTransport(
            participant,
            sqs,
            inbox=self._inbox if is_reader else self._nowhere,
            outbox=self._outbox if is_reader else self._inbox,
            visibility_s=VISIBILITY_S,
            max_receives=self._max_receives,
            first_visibility_s=FIRST_VISIBILITY_S,
        )
        return Client(
            participant,
            transport,
            lambda: DynamoDbFilter(
                dynamodb, self._table, participant, lease=lambda: VISIBILITY_S, clock=lambda: self._now
            ),
            NoSubscriptions("none here"),
            **options,
        )

    def crash(self) -> None:
        self._now += 2 * VISIBILITY_S  # the leases of what they had in hand have ended
        self.hurry()

    def hurry(self) -> None:
        for message in self._sqs.queue(self._inbox).messages:
            message.visible_ms = 0

    def deliver(self, body: Envelope | bytes, redrive: str | None = None) -> None:
        text = body.json if isinstance(body, Envelope) else body.decode()
        mark = {REDRIVEN: {"DataType": "String", "StringValue": redrive}} if redrive else {}
        self._sqs.send_message(QueueUrl=self._inbox, MessageBody=text, MessageAttributes=mark)

    def pending(self) -> int:
        return len(self._sqs.bodies(self._inbox))

    def taken_away(self) -> int:
        return len(self._sqs.bodies(self._dead))

    def letters(self, least: int = 0) -> list[Envelope]:
        return [parse_event(each) for each in self._sqs.bodies(self._outbox)]

    def close(self) -> None:
        pass


World = MemoryWorld | SqsWorld
"""A plane with a `reader` and a `sender`, whose events come there within `idle_s` seconds."""


@contextlib.contextmanager
def reading(world: World, *, on_doubt: Doubt | None = None, **options: Any) -> Iterator[Inbox]:
    """The inbox of a new client of the reader; both end with the block."""
    with world.client(world.reader, **options) as client, client.subscribe(on_doubt=on_doubt) as inbox:
        yield inbox


def put(world: World, sent: Envelope) -> None:
    """Put an event by a process of the sender that ends then."""
    with world.client(world.sender) as sender:
        sender.put(sent)


def sent_by(participant: str, body: Envelope | bytes) -> bytes:
    """What the plane delivers of an event that `participant` put, unless another sender is stamped on it."""
    if isinstance(body, bytes):
        return body
    stamped = body if str(body.sender) else stamp_sender(body, Sender(service=participant))
    return stamped.json.encode()


def redrive(sqs: Any, dead_letters: str, max_receives: int) -> str:
    """The redrive policy of a queue that may be received `max_receives` times."""
    attributes = sqs.get_queue_attributes(QueueUrl=dead_letters, AttributeNames=["QueueArn"])["Attributes"]
    return json.dumps({"deadLetterTargetArn": attributes["QueueArn"], "maxReceiveCount": max_receives})


def create_filter_table(dynamodb: Any, name: str) -> None:
    """The table as the stacks make it."""
    create_table(dynamodb, name, PARTITION, SORT)
