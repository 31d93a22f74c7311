"""The presence monitor in memory: observations of devices, limits, and the functions."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from os import urandom
from typing import Any

import pytest

from eventplane.device_reports import HEARTBEAT, forwarder_source
from eventplane.envelope import write_event
from eventplane.presence import INDEXES, PRESENCE, Heartbeat, Line, PresenceItem, PresenceLimits, Sighting
from eventplane.records import Records
from eventplane.traffic import Quota, Traffic
from eventplane_aws.tables import DynamoDbTables
from lambdas.common.metrics import metrics
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sqs import SqsSender
from parts.presence import wiring
from parts.presence.judge import PresenceJudge
from parts.presence.outage import FleetWatch
from parts.presence.reconciler import Sweeper
from parts.presence.recorder import Observation, Recorder, read_heartbeat, read_presence
from parts.presence.settings import PresenceJudgeSettings
from parts.presence.table import PresenceTable
from parts.presence.timer_queue import TimerQueue
from parts.presence.timers import TimerReader
from parts.presence.watch import Watcher
from parts.presence.wiring import PresenceParts
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws
from tests.fakes.clock import START_MS
from tests.fakes.sqs import FakeMessage
from tests.unit.lambdas.support import deliver

S = 1_000
MINUTE = 60 * S
HOUR = 60 * MINUTE
START = START_MS

LIMITS = PresenceLimits(
    disconnected_after_s=120,
    connected_after_s=60,
    quiet_after_heartbeats=3,
    oldest_urgent_s=60,
    oldest_normal_s=900,
    quota=Quota(window_s=300, frames=1_000, events=10_000, bytes=1_000_000),
)
WATCH = Watcher(LIMITS)
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
    """One device without AWS: `events` result from observations and the times of judgement."""

    state: PresenceItem = field(default_factory=lambda: PresenceItem("home-1"))
    events: list[dict[str, Any]] = field(default_factory=list)

    def observe(self, *observations: Observation) -> None:
        for observation in observations:
            self.state = observation.apply(self.state)

    def judge(self, now_ms: int) -> list[dict[str, Any]]:
        """Judge at a moment; return the new events, which are sent at once."""
        judged = WATCH.judge(self.state, now_ms)
        said = [json.loads(each) for each in judged.unsent]
        self.events += said
        self.state = replace(judged, unsent=(), revision=judged.revision + bool(said))
        return said

    def said(self, now_ms: int) -> list[str]:
        """Judge at a moment; return the new events in one word each."""
        return [word(each) for each in self.judge(now_ms)]


def word(event: dict[str, Any]) -> str:
    """Return an event's type or phase in one word."""
    name: str = event["type"].split(".")[-2]
    return f"notice {event['data']['phase']}" if name == "carer" else name


class World:
    """The functions by their own wiring, around a table and queues in memory."""

    def __init__(self, aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wiring, "system_clock", aws.clock)
        self.clock, self.dynamodb, self.sqs = aws.clock, aws.dynamodb, aws.sqs
        self.timer_sqs: Any = aws.sqs
        self.hops: dict[str, int] = {}
        self.outbox, self.timers = (
            aws.sqs.create_queue(QueueName=each)["QueueUrl"] for each in ("outbox", "timers")
        )
        self.settings = PresenceJudgeSettings(
            presence_table=TABLE,
            presence_limits=LIMITS,
            timer_queue=self.timers,
            outbox_queue=self.outbox,
        )
        create_presence_table(aws.dynamodb)
        self.table = PresenceTable(records_of(aws.dynamodb))

    def parts(self, dynamodb: Any = None, sqs: Any = None) -> PresenceParts:
        """The functions' parts; `dynamodb` and `sqs`, which sends reports, stand for AWS where it fails."""
        wired = wiring.parts_of(
            self.settings, self.sqs, DynamoDbTables(dynamodb or self.dynamodb, urandom), self.clock
        )
        return replace(
            wired,
            sender=SqsSender(sqs) if sqs else wired.sender,
            timers=TimerQueue(SqsSender(self.timer_sqs), self.timers),
        )

    def record(
        self,
        *bodies: str,
        heartbeats: bool = False,
        attempt: int = 1,
        remaining_ms: Callable[[], int] = lambda: 30_000,
        **clients: Any,
    ) -> frozenset[str]:
        """Record messages, named m0, m1, ...; the names of those that failed."""
        messages = [
            QueueMessage(id=f"m{at}", body=body, sent_at_ms=self.clock(), attempt=attempt)
            for at, body in enumerate(bodies)
        ]
        recorder = Recorder(read_heartbeat if heartbeats else read_presence, self.parts(**clients))
        return recorder.process(messages, Invocation("i", remaining_ms))

    def reconciler(self, **clients: Any) -> Sweeper:
        made = self.parts(**clients)
        return Sweeper(made, PresenceJudge(made, self.outbox))

    def reconcile(self, now_ms: int | None = None, buckets: Sequence[int] = range(16), **clients: Any) -> Any:
        """Reconcile at a moment everything that is due by then."""
        self.clock.now_ms = self.clock() if now_ms is None else now_ms
        return self.reconciler(**clients).reconcile(buckets, 0, lambda: 60_000)

    def look(self, now_ms: int | None = None, left_ms: int = 55_000, **clients: Any) -> dict[str, float]:
        """Look at the fleet at a moment; the figures that are written."""
        self.clock.now_ms = self.clock() if now_ms is None else now_ms
        FleetWatch(self.parts(**clients), LIMITS, self.outbox).look(lambda: left_ms)
        written = {name: each["Value"][-1] for name, each in metrics.provider.metric_set.items()}
        metrics.clear_metrics()
        return written

    def fire(self, until_ms: int | None = None, **clients: Any) -> int:
        """Let time pass and timers fire, each at its moment; how many have fired.

        A timer that another one led to is one `hops` further from what was observed.
        """
        end_ms, fired = self.clock() if until_ms is None else until_ms, 0
        while self.waiting and (next_ms := min(each.visible_ms for each in self.waiting)) <= end_ms:
            self.clock.now_ms = max(self.clock(), next_ms)
            made = self.parts(**clients)
            reader = TimerReader(made, PresenceJudge(made, self.outbox))
            before = {each.id: each.receives for each in self.waiting}
            fired += deliver(self.sqs, self.timers, reader.process, most=1)[0]
            now = {each.id: each.receives for each in self.waiting}
            hops = 1 + max(self.hops.get(id, 0) for id in before if now.get(id) != before[id])
            self.hops |= dict.fromkeys(now.keys() - before.keys(), hops)
        self.clock.now_ms = end_ms
        return fired

    def cut(self) -> None:
        """Have a device that was reported as connected lose its connection, an hour after `START`."""
        self.record(lifecycle(Line.CONNECTED, START))
        self.fire(START + HOUR)
        assert self.words() == ["connected"]
        self.record(lifecycle(Line.DISCONNECTED, self.clock()))

    def arm(self, body: str) -> None:
        """Put a timer into the queue, due now."""
        self.sqs.send_message(QueueUrl=self.timers, MessageBody=body)

    @property
    def waiting(self) -> list[FakeMessage]:
        """The timers in the queue."""
        return self.sqs.queue(self.timers).messages

    def state(self, device: str = "home-1") -> PresenceItem:
        return self.table.read([device])[device]

    def sent(self) -> list[dict[str, Any]]:
        """Take the events in the outbox."""
        return [json.loads(body) for body in self.sqs.take(self.outbox)]

    def words(self) -> list[str]:
        """Take the events in the outbox; return them in one word each, sorted."""
        return sorted(word(each) for each in self.sent())


def create_presence_table(dynamodb: Any) -> None:
    """As the stacks make it."""
    create_table(dynamodb, TABLE, "device", numbers=chain(*INDEXES.values()), global_indexes=INDEXES)


def records_of(dynamodb: Any) -> Records[PresenceItem]:
    """The records in the table."""
    return Records(DynamoDbTables(dynamodb, urandom), TABLE, PRESENCE)
