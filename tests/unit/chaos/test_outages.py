"""The effect of an outage follows from what was sent and arrived, from copies, and from the alarms."""

from __future__ import annotations

from collections import Counter

import pytest

from local.chaos.alarms import AGE, Alarm, Metrics, Term, Watched
from local.chaos.faults import InjectedFault
from local.chaos.outages import (
    COPIES,
    HELD,
    MOST_COPIES,
    UNSEEN,
    Episode,
    Outages,
    episodes,
    judge_outages,
)
from local.chaos.schedule import KINDS
from local.oracle import Key

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


def test_faults_that_overlap_are_one_episode() -> None:
    found = episodes([struck("b", 12, 20), struck("a", 10, 15), struck("kill", 30, 30), struck("c", 40, 50)])
    assert found == [
        Episode(("a", "b"), 10, 20),
        Episode(("kill",), 30, 30),
        Episode(("c",), 40, 50),
    ]
    assert [each.name for each in found] == ["a+b", "kill", "c"]
    stopping = [kind for kind in KINDS if Episode((kind,), 0, 1).stops_urgent]
    assert stopping == [each for each in KINDS if each.startswith("sqs-") and each != "sqs-answer-lost"]


def test_urgent_events_count_by_when_they_were_sent() -> None:
    sent = {key(0): 9.0, key(1): 10.0, key(2): 14.0, key(3): 20.0, key(4): 31.0, key(5): 12.0}
    arrived = {key(0): 9.5, key(1): 11.0, key(2): 22.0, key(3): 20.5, key(4): 31.2}  # the last one is lost
    outages = judged(struck("s3-stalled", 10, 20), struck("iot-late", 30, 40), sent=sent, arrived=arrived)
    first, second = outages.rows
    assert first["fault"] == "s3-stalled"
    assert first["urgent_during"] == {"number": 2, "p50_ms": 4_500, "p99_ms": 8_000, "max_ms": 8_000}
    assert first["urgent_after"]["number"] == 1
    assert (first["urgent_held"], first["urgent_latest_s"]) == (1, 2.0)
    assert second["urgent_after"] == {"number": 0, "p50_ms": None, "p99_ms": None, "max_ms": None}
    assert outages.wrong[HELD] == 1


def test_nothing_can_arrive_while_all_of_sqs_fails() -> None:
    held = judged(struck("sqs-stalled", 10, 20), sent={key(1): 11.0}, arrived={key(1): 21.0})
    assert held.rows[0]["urgent_held"] == 1
    assert held.wrong[HELD] == 0


@pytest.mark.parametrize(("more", "wrong"), [(MOST_COPIES - 1, 0), (MOST_COPIES, 1)])
def test_copies_stay_in_single_digits(more: int, wrong: int) -> None:
    outages = judged(again=Counter({key(1): more, key(2): 1}))
    assert (outages.copies, outages.wrong[COPIES]) == (more + 1, wrong)
    assert judged().copies == 1


def test_an_outage_is_seen_by_an_alarm_that_breaches_in_it() -> None:
    metrics = Metrics()
    metrics.add("EventPlane", "Retried", {"service": "router"}, 12.0, 3.0)
    outages = judged(struck("s3-late", 10, 20), struck("iot-late", 40, 50), metrics=metrics)
    assert [row["breached"] for row in outages.rows] == [["retried"], []]
    assert outages.wrong[UNSEEN] == 1


def test_a_killed_process_or_a_lost_answer_alone_is_no_outage() -> None:
    assert judged(struck("router-kill", 10, 10)).wrong[UNSEEN] == 0
    assert judged(struck("sqs-answer-lost", 10, 20), struck("router-kill", 10, 10)).wrong[UNSEEN] == 0
    assert judged(struck("s3-late", 9, 20), struck("router-kill", 10, 10)).wrong[UNSEEN] == 1


def test_an_alarm_that_breached_in_the_outage_before_counts_again() -> None:
    metrics = Metrics()
    for at in (12.0, 24.0):
        metrics.add("EventPlane", "Retried", {"service": "router"}, at, 3.0)
    outages = judged(struck("s3-late", 10, 15), struck("iot-late", 16, 30), metrics=metrics)
    assert [bool(row["breached"]) for row in outages.rows] == [True, True]


def test_what_follows_an_outage_belongs_to_it_until_the_next_one() -> None:
    metrics = Metrics()
    metrics.add("EventPlane", "Retried", {"service": "router"}, 25.0, 3.0)
    assert judged(struck("s3-late", 10, 20), metrics=metrics).wrong[UNSEEN] == 0
    both = judged(struck("s3-late", 10, 20), struck("s3-late", 24, 30), metrics=metrics)
    assert [bool(row["breached"]) for row in both.rows] == [False, True]


def test_an_age_that_rises_is_seen_before_its_threshold() -> None:
    metrics = Metrics()
    for at in range(10, 30):
        metrics.add("AWS/SQS", AGE, {"QueueName": "ingest"}, at, at - 10.0)
    outages = judged(struck("s3-stalled", 10, 30), metrics=metrics)
    assert outages.rows[0]["rising"] == ["age"]
    assert outages.wrong[UNSEEN] == 0


def test_what_breached_or_grew_before_an_outage_is_no_sign_of_it() -> None:
    breached, grown = Metrics(), Metrics()
    for at in (8.0, 12.0):
        breached.add("EventPlane", "Retried", {"service": "router"}, at, 3.0)
    for at in range(30):
        grown.add("AWS/SQS", AGE, {"QueueName": "ingest"}, at, at)
    for metrics in (breached, grown):
        assert judged(struck("s3-stalled", 10, 30), metrics=metrics).wrong[UNSEEN] == 1


def test_alarms_that_cannot_be_evaluated_are_named() -> None:
    strange = Alarm(
        "query", {"q": Term("q", expression="SELECT 1")}, "q", "GreaterThanThreshold", 0, "missing", 300
    )
    outages = judged(struck("s3-late", 10, 20), alarms=(strange,))
    (reason,) = outages.unread
    assert "SELECT 1" in reason
    assert outages.wrong[UNSEEN] == 1
