"""Alarms by CloudWatch's rules and a model of them: each with odd data, and all in a large outage.

Sources: Amazon CloudWatch guide, "Alarm evaluation", "Configuring how CloudWatch alarms treat missing data",
"Using metric math" (FILL).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from operator import gt, lt
from typing import Final

import pytest

from eventplane.names import NOTICE, NOTICE_OF_MANY
from eventplane.presence import PRESENCE, Line, PresenceItem, Sighting
from eventplane.records import Records
from lab.chaos.alarms import Metrics, read_alarms
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
from tests.infrastructure.templates import Resource, Templates
from tests.infrastructure.test_monitoring import plane_alarms
from tests.parts.presence.world import lifecycle

MORE_PERIODS: Final = 2
"""Periods that CloudWatch looks at besides those asked for. The guide's examples have two, and no number."""

DAY_S: Final = 86_400
_STATISTICS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "Maximum": max, "Sum": sum, "SampleCount": len,
}  # fmt: skip


@dataclass(frozen=True)
class AlarmModel:
    """One alarm. `fill` is what stands for a period without data, None where nothing does."""

    period_s: int
    periods: int
    threshold: float
    is_breaching: Callable[[float, float], bool]
    is_silence_breaching: bool
    statistic: str
    fill: float | None

    @classmethod
    def of(cls, alarm: Resource) -> AlarmModel:
        """Read the alarm of a template."""
        metrics = alarm.find("Metrics") or []
        expression = next((each["Expression"] for each in metrics if "Expression" in each), "")
        filled = re.fullmatch(r"FILL\(m, (-?\d+)\)", expression)
        # Of several metrics a period without data has no value, as of one.
        assert filled or re.fullmatch(r"|SELECT .+|(MAX|SUM)\(METRICS\(\)\)", expression)
        stat = next((each["MetricStat"] for each in metrics if "MetricStat" in each), alarm.properties)
        assert alarm.find("DatapointsToAlarm") in (None, alarm.find("EvaluationPeriods"))
        return cls(
            # A query has its period beside it.
            period_s=stat.get("Period") or metrics[0]["Period"],
            periods=alarm.find("EvaluationPeriods"),
            threshold=alarm.find("Threshold"),
            is_breaching={"GreaterThanThreshold": gt, "LessThanThreshold": lt}[
                alarm.find("ComparisonOperator")
            ],
            is_silence_breaching=alarm.find("TreatMissingData") == "breaching",
            statistic=stat.get("Stat") or stat.get("Statistic") or "Sum",
            fill=float(filled[1]) if filled else None,
        )

    @property
    def window_s(self) -> int:
        """The time that is asked for, seconds."""
        return self.period_s * self.periods

    @property
    def every_s(self) -> int:
        """How often it is evaluated, seconds; its periods end then."""
        return 3_600 if self.window_s > DAY_S else 60

    def is_on(self, data: Mapping[float, float], now_s: float) -> bool:
        """Return whether it is in ALARM at `now_s`, with the metric's values by their times, seconds."""
        end_s = now_s // self.every_s * self.every_s
        points = [self._point(data, end_s - at * self.period_s) for at in range(self.periods + MORE_PERIODS)]
        real = [each for each in points if each is not None][: self.periods]
        states = [self.is_breaching(each, self.threshold) for each in real]
        # Missing data is made up only where there is too little in all that was looked at.
        states += [self.is_silence_breaching] * (self.periods - len(real))
        return all(states)

    def _point(self, data: Mapping[float, float], end_s: float) -> float | None:
        values = [value for at_s, value in data.items() if end_s - self.period_s <= at_s < end_s]
        return float(_STATISTICS[self.statistic](values)) if values else self.fill


HOUR_S = 3_600
START_S = 20_000 * DAY_S
SILENT = {
    "local": set[str](),
    "dev": {"canary", "dead-letters", "audit-missing", "compaction-missing"},
    "prod": {"canary", "dead-letters", "audit-missing", "compaction-missing"},
}
"""The alarms that no data raises, besides those on calls; docs/reference/alarms.md names them as well."""


def model(templates: Templates, name: str) -> AlarmModel:
    (alarm,) = (each for each in plane_alarms(templates) if each.name == name)
    return AlarmModel.of(alarm)


def raised_s(alarm: AlarmModel, data: dict[float, float], from_s: float, until_s: float) -> float | None:
    """When it is in ALARM first, between two times."""
    looks = takewhile(lambda at: at <= until_s, count(from_s, alarm.every_s))
    return next((at for at in looks if alarm.is_on(data, at)), None)


@pytest.mark.parametrize(
    ("points", "missing", "is_on"),
    [
        # From the guide's table: newest last, X breaches, - is missing; the alarm asks for 3 of 3.
        ("0-X-X", "breaching", False),
        ("00X-X", "breaching", False),
        ("-----", "breaching", True),
        ("-----", "notBreaching", False),
        ("0XXX-", "notBreaching", True),
        ("--XX-", "breaching", True),
        ("--XX-", "notBreaching", False),
        # More periods than asked: the old value hides that the last two are missing.
        ("0-0--", "breaching", False),
    ],
)
def test_the_model_decides_as_the_guide_does(points: str, missing: str, is_on: bool) -> None:
    properties = {
        "Period": 60, "EvaluationPeriods": 3, "Threshold": 0, "Statistic": "Maximum",
        "ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": missing,
    }  # fmt: skip
    alarm = AlarmModel.of(Resource("", "", "", properties, {}))
    data = {60.0 * at: float(each == "X") for at, each in enumerate(points) if each != "-"}
    assert alarm.is_on(data, 60 * len(points)) is is_on


def test_every_alarm_says_what_missing_data_means(templates: Templates) -> None:
    for each in plane_alarms(templates):
        alarm, name = AlarmModel.of(each), each.name
        is_least = each.find("ComparisonOperator") == "LessThanThreshold"
        well = alarm.threshold
        bad = alarm.threshold + (-1 if is_least else 1)
        is_silent = name in SILENT[templates.environment.name] or name.endswith("-calls")
        gap_s = START_S + 3 * alarm.window_s
        regular = {START_S + at: well for at in range(30, 3 * alarm.window_s, alarm.period_s)}
        # It is noticed as soon as the periods that the alarm asks for are empty, and not before.
        soon_s = gap_s + alarm.window_s + alarm.period_s
        late_s = gap_s + 5 * alarm.window_s

        assert alarm.is_on({}, START_S) is is_silent, f"{name} without data"
        raised = raised_s(alarm, regular, START_S + alarm.window_s, soon_s)
        assert (raised is not None) is is_silent, f"{name} with a gap"
        assert raised is None or raised >= gap_s + alarm.window_s - alarm.period_s, name
        assert alarm.is_on(regular, late_s) is is_silent, f"{name} long after"
        if not is_silent:
            raised = raised_s(alarm, {gap_s: bad}, gap_s, late_s)
            assert (raised is not None) is (alarm.periods == 1), f"{name} with one value"
            assert not alarm.is_on({gap_s: bad}, late_s), f"{name} after one value"


def test_each_metric_raises_its_alarm(prod: Templates) -> None:
    combined = 0
    for alarm in read_alarms(prod.directory):
        keys = [each.key for each in alarm.terms.values() if each.key]
        combined += len(keys) > 1
        for namespace, name, dimensions in keys if len(keys) > 1 else ():
            metrics = Metrics()
            assert not alarm.is_breached(metrics, 0, alarm.period_s)
            metrics.add(namespace, name, dict(dimensions), 1, alarm.threshold + 1)
            assert alarm.is_breached(metrics, 0, alarm.period_s), (alarm.name, name, dimensions)
    assert combined > 20


@pytest.mark.parametrize("job", ["audit", "compaction"])
def test_a_dead_job_is_ticketed_in_26_hours(released: Templates, job: str) -> None:
    alarm = model(released, f"{job}-missing")
    # Each night it ends at another time.
    ended = [START_S + day * DAY_S + 2 * HOUR_S + 60 * minute for day, minute in enumerate((31, 59, 5, 119))]
    data = dict.fromkeys(map(float, ended), 0.0)
    dead_s = raised_s(alarm, data, ended[0] + HOUR_S, ended[-1] + 2 * DAY_S)
    assert dead_s is not None
    assert 24 * HOUR_S < dead_s - ended[-1] <= 26 * HOUR_S


@pytest.mark.parametrize("name", ["audit-findings", "audit-incomplete", "compaction-failed"])
def test_a_bad_result_is_ticketed_at_once(released: Templates, name: str) -> None:
    alarm, now_s = model(released, name), START_S + 5 * DAY_S
    data = {float(now_s - DAY_S): 0.0, float(now_s): 2.0}
    raised = raised_s(alarm, data, now_s, now_s + HOUR_S)
    assert raised is not None
    assert raised - now_s <= 120


def test_a_canary_that_is_not_called_pages_within_minutes(prod: Templates) -> None:
    alarm = model(prod, "canary")
    data = {START_S + 60.0 * minute: 0.0 for minute in range(60)}
    raised = raised_s(alarm, data, START_S + HOUR_S / 2, START_S + 2 * HOUR_S)
    assert raised is not None
    assert raised - max(data) <= 4 * 60


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
