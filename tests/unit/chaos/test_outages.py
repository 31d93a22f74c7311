"""The effect of an outage follows from what was sent and arrived, from copies, and from the alarms."""

from collections import Counter

import pytest

from lab.chaos.alarms import AGE, Alarm, Metrics, Term, Watched
from lab.chaos.faults import InjectedFault
from lab.chaos.outages import COPIES, HELD, MOST_COPIES, UNSEEN, Outages, judge_outages
from lab.oracle import Key

RETRIED = ("EventPlane", "Retried", frozenset({("service", "router")}))
OLDEST = ("AWS/SQS", AGE, frozenset({("QueueName", "ingest")}))


def alarm(name: str, key: tuple[str, str, frozenset[tuple[str, str]]], threshold: float) -> Alarm:
    terms = {"metric": Term("metric", key, "Maximum")}
    return Alarm(name, terms, "metric", "GreaterThanThreshold", threshold, "missing", 60.0)


def struck(kind: str, began: float, ended: float) -> InjectedFault:
    return InjectedFault(kind, "home-1", began, ended)


def key(number: int) -> Key:
    return "/homes/home-1/voice-service", str(number)


def judged(
    *faults: InjectedFault,
    sent: dict[Key, float] | None = None,
    arrived: dict[Key, float] | None = None,
    again: Counter[Key] | None = None,
    metrics: Metrics | None = None,
    alarms: tuple[Alarm, ...] = (alarm("retried", RETRIED, 0), alarm("age", OLDEST, 900)),
) -> Outages:
    return judge_outages(
        faults, Watched(alarms, metrics or Metrics()), sent or {}, arrived or {}, [again or Counter()]
    )


def test_urgent_events_are_held_since_sent() -> None:
    sent = {key(0): 9.0, key(1): 10.0, key(2): 14.0, key(3): 20.0, key(4): 31.0, key(5): 12.0}
    arrived = {key(0): 9.5, key(1): 11.0, key(2): 22.0, key(3): 20.5, key(4): 31.2}  # the last one is lost
    outages = judged(struck("s3-stalled", 10, 20), struck("iot-late", 30, 40), sent=sent, arrived=arrived)
    first, _ = outages.rows
    assert first["urgent_during"] == {"number": 2, "p50_ms": 4_500, "p99_ms": 8_000, "max_ms": 8_000}
    assert (first["urgent_held"], first["urgent_latest_s"]) == (1, 2.0)
    assert outages.wrong[HELD] == 1
    held = judged(struck("sqs-stalled", 10, 20), sent={key(1): 11.0}, arrived={key(1): 21.0})
    assert (held.rows[0]["urgent_held"], held.wrong[HELD]) == (1, 0)


@pytest.mark.parametrize(("more", "wrong"), [(MOST_COPIES - 1, 0), (MOST_COPIES, 1)])
def test_copies_stay_in_single_digits(more: int, wrong: int) -> None:
    outages = judged(again=Counter({key(1): more, key(2): 1}))
    assert (outages.copies, outages.wrong[COPIES]) == (more + 1, wrong)


def retried(*at: float) -> Metrics:
    metrics = Metrics()
    for each in at:
        metrics.add("EventPlane", "Retried", {"service": "router"}, each, 3.0)
    return metrics


def aged(*at: int, grown: int = 0) -> Metrics:
    metrics = Metrics()
    for each in range(*at):
        metrics.add("AWS/SQS", AGE, {"QueueName": "ingest"}, each, each - float(grown))
    return metrics


S3, LATER = struck("s3-late", 10, 20), struck("iot-late", 40, 50)
KILLED = struck("router-kill", 10, 10)


@pytest.mark.parametrize(
    ("faults", "metrics", "unseen"),
    [
        ((S3, LATER), retried(12), 1),
        # After an outage an alarm is of it until the next one; one that breached before counts again.
        ((S3,), retried(25), 0),
        ((S3, struck("s3-late", 24, 30)), retried(25), 1),
        ((S3, struck("iot-late", 21, 30)), retried(12, 24), 0),
        # A killed process or a lost answer alone is no outage; faults that overlap are one.
        ((KILLED,), Metrics(), 0),
        ((struck("sqs-answer-lost", 10, 20), KILLED), Metrics(), 0),
        ((struck("s3-late", 9, 20), KILLED, struck("iot-late", 12, 15)), Metrics(), 1),
        # An age that rises is seen before its threshold, but neither it nor a breach of before is a sign.
        ((struck("s3-stalled", 10, 30),), aged(10, 30, grown=10), 0),
        ((struck("s3-stalled", 10, 30),), aged(30), 1),
        ((S3,), retried(8, 12), 1),
    ],
)
def test_an_alarm_sees_an_outage(faults: tuple[InjectedFault, ...], metrics: Metrics, unseen: int) -> None:
    assert judged(*faults, metrics=metrics).wrong[UNSEEN] == unseen


def test_alarms_that_cannot_be_evaluated_are_named() -> None:
    terms = {"q": Term("q", expression="SELECT 1")}
    strange = Alarm("query", terms, "q", "GreaterThanThreshold", 0, "missing", 300)
    outages = judged(S3, alarms=(strange,))
    assert ["SELECT 1" in each for each in outages.unread] == [True]
    assert outages.wrong[UNSEEN] == 1
