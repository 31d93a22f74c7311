"""A share of a large fleet goes: what is deployed pages within minutes, and carers get one notice."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from eventplane.names import NOTICE, NOTICE_OF_MANY
from eventplane.presence import PRESENCE, Line, PresenceItem, Sighting
from eventplane.records import Records
from lambdas.common.metrics import metrics
from lambdas.common.queue import Invocation, QueueMessage
from parts.presence.judge import PresenceJudge
from parts.presence.outage import FleetWatch
from parts.presence.recorder import Recorder, read_presence
from parts.presence.settings import PresenceJudgeSettings
from parts.presence.timers import TimerReader
from parts.presence.wiring import parts_of
from tests.fakes.aws import FakeAws
from tests.fakes.tables import MemoryTables
from tests.infrastructure.alarm_model import AlarmModel
from tests.infrastructure.templates import Templates
from tests.infrastructure.test_alarms import model
from tests.parts.presence.world import lifecycle

FLEET, LOST = 10_000, 500
METRIC_LATE_S = 30
"""From a log line to its metric: CloudWatch says none; some seconds are usual."""


class Fleet:
    """Presence with the settings that are deployed, second by second."""

    def __init__(self, aws: FakeAws, settings: PresenceJudgeSettings) -> None:
        self.clock, self.sqs = aws.clock, aws.sqs
        self.outbox, self.timers = (aws.sqs.create_queue(QueueName=each)["QueueUrl"] for each in ("o", "t"))
        tables = MemoryTables()
        settings = replace(settings, presence_table="presence", timer_queue=self.timers)
        self.parts = parts_of(settings, aws.sqs, tables, aws.clock)
        self.watch = FleetWatch(self.parts, settings.presence_limits, self.outbox)
        self.began_ms = aws.clock()
        self.figures: dict[float, float] = {}
        """`FleetOutage` by the second in which it was written."""
        records = Records(tables, "presence", PRESENCE)
        for number in range(FLEET):
            seen = Sighting(Line.CONNECTED, self.began_ms, 1, "session-1")
            records.write(
                PresenceItem(f"home-{number}", sighting=seen, reported=Line.CONNECTED, reported_ms=seen.at_ms)
            )

    def record(self, line: Line, version: int, numbers: range) -> None:
        bodies = (lifecycle(line, self.clock(), version, device=f"home-{number}") for number in numbers)
        messages = [QueueMessage(str(at), body, self.clock(), 1) for at, body in enumerate(bodies)]
        assert not Recorder(read_presence, self.parts).process(messages, Invocation("i", lambda: 30_000))

    def second(self, looks: bool) -> None:
        """Let a second pass: timers fire, and the schedule looks at the fleet."""
        self.clock.now_ms += 1_000
        reader, batch = TimerReader(self.parts, PresenceJudge(self.parts, self.outbox)), list[QueueMessage]()
        while found := self.sqs.receive_message(QueueUrl=self.timers, MaxNumberOfMessages=10).get("Messages"):
            for each in found:
                batch.append(QueueMessage(each["MessageId"], each["Body"], self.clock(), 1))
                self.sqs.delete_message(QueueUrl=self.timers, ReceiptHandle=each["ReceiptHandle"])
        if batch:
            assert not reader.process(batch, Invocation("i", lambda: 30_000))
        if looks:
            self.watch.look(lambda: 55_000)
        if written := metrics.provider.metric_set.get("FleetOutage"):
            self.figures[self.clock() / 1_000] = max(written["Value"])
        metrics.clear_metrics()

    def is_paged(self, alarm: AlarmModel) -> bool:
        now_s = self.clock() / 1_000
        seen = {at_s: value for at_s, value in self.figures.items() if at_s + METRIC_LATE_S <= now_s}
        return alarm.is_on(seen, now_s)

    def notices(self) -> Iterator[tuple[str, str]]:
        """Take the events; the phase and the device, once for each time that a carer is told."""
        for body in self.sqs.take(self.outbox):
            event = json.loads(body)
            if event["type"] in (NOTICE, NOTICE_OF_MANY):
                for of in event["data"].get("devices", [event["data"]]):
                    yield event["data"]["phase"], of["device"]


@pytest.mark.parametrize("looks_at_s", [0, 29])
@pytest.mark.parametrize("within_s", [1, 60])
def test_an_outage_pages_in_three_minutes(prod: Templates, within_s: int, looks_at_s: int) -> None:
    settings = prod.functions["presence-timers"].settings(PresenceJudgeSettings)
    alarm = model(prod, "fleet-outage")
    fleet = Fleet(FakeAws(), settings)
    paged_s = None
    for second in range(480):
        if second < within_s:
            each = LOST // within_s
            fleet.record(Line.DISCONNECTED, 1, range(second * each, (second + 1) * each))
        fleet.second(second % 60 == looks_at_s)
        if paged_s is None and fleet.is_paged(alarm):
            paged_s = second
    assert paged_s is not None
    assert paged_s <= 180
    assert fleet.is_paged(alarm), "until they are back"
    told = Counter(fleet.notices())
    gone = LOST // within_s * within_s
    assert told == {("opened", f"home-{number}"): 1 for number in range(gone)}

    fleet.record(Line.CONNECTED, 2, range(gone))
    for second in range(240):
        fleet.second(second % 60 == looks_at_s)
    assert Counter(fleet.notices()) == {("over", f"home-{number}"): 1 for number in range(gone)}
    assert not fleet.is_paged(alarm)
