"""Chaos runs: scenarios, counts of what was sent and arrived, and when a run passes."""

import gzip
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

import lab.chaos.__main__ as command
from eventplane.contract import Contract, Place
from eventplane.device_reports import DISCARDED, MANIFEST, STARTED
from eventplane.envelope import write_event
from eventplane.ledger import TapRecord, to_line
from lab.chaos.alarms import AGE, Alarm, AlarmTerm, Metrics, Watched
from lab.chaos.boots import PLAIN, SENDER, THINGS, BootAlarm, BootLog, judge
from lab.chaos.boots import figures as boot_figures
from lab.chaos.consumer import Arrivals, ArrivalWriter
from lab.chaos.counters import (
    Recovery,
    delays,
    delays_during,
    given_up,
    missing,
    not_stored,
    out_of_order,
    recoveries,
    sent_again,
    unexcused,
)
from lab.chaos.faults import InjectedFault
from lab.chaos.load import ALARMS, READINGS, TimedLog
from lab.chaos.outages import COPIES, HELD, MOST_COPIES, UNSEEN, Outages, judge_outages
from lab.chaos.run import RunResult
from lab.chaos.scenarios import PAPER, PAPER_BEST_EFFORT
from lab.chaos.schedule import ScheduleError
from lab.chaos.verdict import by_themselves, summary
from lab.demo.summary import IRREGULAR
from lab.errors import LocalError
from lab.oracle import Key, SentEvent, ServiceResult
from lab.process import ChildExit


@pytest.mark.source("P16")
def test_the_papers_test_is_repeated_with_its_numbers() -> None:
    for each in (PAPER, PAPER_BEST_EFFORT):
        assert (each.load.events, each.load.per_s) == (100_000, 1_000)
        strikes = each.plan(0, each.kinds, 1, 100)
        assert Counter(strike.kind for strike in strikes) == {"forwarder-kill": 10, "router-kill": 10}
        assert [strike.at_s for strike in strikes if strike.kind == "router-kill"] == [*range(10, 101, 10)]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The figures of an earlier run."""
    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["chaos", "short"])
    path = tmp_path / "short.json"
    path.write_text("{}")
    return path


@pytest.mark.parametrize(
    ("end", "status"),
    [(LocalError("no tool"), 1), (ScheduleError("no room"), 2), (KeyboardInterrupt(), 130)],
)
def test_a_run_that_comes_to_nothing_leaves_no_figures_of_another(
    monkeypatch: pytest.MonkeyPatch, figures: Path, end: BaseException, status: int
) -> None:
    def ends(*_: object) -> NoReturn:
        raise end

    monkeypatch.setattr(command, "run", ends)
    assert command.main() == status
    assert not figures.exists()


RETRIED = ("EventPlane", "Retried", frozenset({("service", "router")}))
OLDEST = ("AWS/SQS", AGE, frozenset({("QueueName", "ingest")}))


def alarm(name: str, key: tuple[str, str, frozenset[tuple[str, str]]], threshold: float) -> Alarm:
    terms = {"metric": AlarmTerm("metric", key, "Maximum")}
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
    terms = {"q": AlarmTerm("q", expression="SELECT 1")}
    strange = Alarm("query", terms, "q", "GreaterThanThreshold", 0, "missing", 300)
    outages = judged(S3, alarms=(strange,))
    assert ["SELECT 1" in each for each in outages.unread] == [True]
    assert outages.wrong[UNSEEN] == 1


DEVICE, NEXT = THINGS


BROKER, SPOOL = BootLog(DEVICE, broker_reported=True), BootLog(DEVICE, spool_reported=True)
DOWN, CONNECTED, ELSEWHERE = BootLog(DEVICE, is_up=False), BootLog(DEVICE, is_connected=True), BootLog(NEXT)
CONNECTED_LATE = BootLog(DEVICE, is_connected=True, broker_reported=True)


@pytest.mark.parametrize(
    ("alarm", "things", "boots", "found"),
    [
        (BootAlarm("a", SENDER, 0, 0), {DEVICE}, [DOWN], {"broker_down"}),
        (BootAlarm("a", SENDER, 0, 0), {DEVICE, NEXT}, [CONNECTED, ELSEWHERE], {"under_another_thing"}),
        (BootAlarm("a", SENDER, 0, 1), {DEVICE, NEXT}, [CONNECTED, ELSEWHERE], set()),
        (BootAlarm("a", SENDER, 1, 1), {NEXT}, [ELSEWHERE, CONNECTED], {"under_another_thing"}),
        (BootAlarm("a", SENDER, 0, 0), set(), [CONNECTED, BROKER], {"lost"}),
        (BootAlarm("a", SENDER, 0, 0), set(), [CONNECTED, CONNECTED, SPOOL], {"lost_and_reported"}),
        (BootAlarm("a", SENDER, 1, 1), set(), [SPOOL, CONNECTED], {"lost"}),
        (BootAlarm("a", SENDER, 0), set(), [CONNECTED], set()),
        (BootAlarm("a", PLAIN, 0), set(), [CONNECTED], set()),
        (BootAlarm("a", PLAIN, 0, 0), {NEXT}, [CONNECTED], {"under_another_thing"}),
        (BootAlarm("a", PLAIN, 0, 0), set(), [CONNECTED, CONNECTED], {"lost"}),
        (BootAlarm("a", PLAIN, 0, 0), set(), [ELSEWHERE, CONNECTED_LATE], {"lost_and_reported"}),
        (BootAlarm("a", PLAIN, 0, 0), set(), [ELSEWHERE, CONNECTED, BROKER], {"lost"}),
    ],
)
def test_an_alarm_has_a_thing(
    alarm: BootAlarm, things: set[str], boots: list[BootLog], found: set[str]
) -> None:
    result = boot_figures(judge([alarm], boots, {"a": things} if things else {}), boots, 0, 0)
    shown = {each.name for each in result if each.value and each.name not in ("boots", "alarms")}
    assert shown - {"broker_reports", "spool_reports"} == found
    assert {each.name for each in result if each.met is False} == found - {"lost_and_reported"}


def event(id: str, type: str = "org.eventplane.activity.motion.v1") -> str:
    return write_event({"id": id, "source": "/homes/a/s", "type": type}, {}).json


@pytest.mark.source("P-W9")
def test_each_event_counts_once_and_a_torn_line_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "care.jsonl"
    arrivals = Arrivals(path)
    ArrivalWriter(path).write([event("1"), event("1"), event("m", MANIFEST), event("2")])
    path.write_bytes(path.read_bytes()[:-5])
    ArrivalWriter(path).write([event("3")])
    arrivals.refresh()
    assert list(arrivals.first) == [("/homes/a/s", "1"), ("/homes/a/s", "3")]
    assert (arrivals.duplicates, arrivals.again) == (1, {("/homes/a/s", "1"): 1})
    assert list(arrivals.arrived.reports) == [("/homes/a/s", "m")]


EXPECTED = 100
ONE: Key = ("/homes/home-1/activity-service", "1")
FOREIGN: Key = ("/homes/home-2/activity-service", "1")


def outcome(
    contract: Contract,
    folder: Path,
    *,
    lost: tuple[Key, ...] = (),
    audited: int | None = None,
    gaps: int = 0,
    given_up: int = 0,
    kind: str | None = None,
    **totals: int,
) -> RunResult:
    delivered = EXPECTED - len(lost)
    audit: dict[str, Any] = {
        "totals": {**dict.fromkeys(("lost", *IRREGULAR), 0), **totals},
        "kinds": [{"kind": kind, "hop": "router", "count": 1}] if kind else [],
        "by_destination": {
            f"{READINGS}.inbox": {"delivered_unique": delivered if audited is None else audited}
        },
        "devices": [{"client_id": "home-1", "gaps": gaps}],
        "latency": [],
        "findings": [],
    }
    return RunResult(
        verdicts=[ServiceResult(READINGS, EXPECTED, delivered, lost, (), 0)],
        dead_letters=0,
        audit=audit,
        given_up=+Counter({"home-1": given_up}),
        sent=TimedLog(contract),
        arrivals={name: Arrivals(folder / name) for name in (ALARMS, READINGS)},
        called={},
        struck=[InjectedFault("line-cut", "home-1", 1.0, 2.0)],
        samples=[],
        send_s=1.0,
        drain_s=1.0,
        gave_up_waiting_for=["arrivals"],
        contract_version="v",
        cloud="none",
    )


def wrong(outcome: RunResult, *, loses: bool = False) -> set[str]:
    document = summary(outcome, {"homes": 1}, loses=loses)
    assert (document["verdict"] == "passed") is not bool(document["wrong"])
    return set(document["wrong"])


@pytest.mark.source("P16")
@pytest.mark.parametrize(
    ("found", "called"),
    [
        ({}, set()),
        ({"lost": (ONE,)}, {"lost"}),
        ({"audited": 99}, {"audit disagrees"}),
        ({"gaps": 1}, {"numbers missing"}),
        ({"kind": "forged"}, {"forged"}),
        ({"kind": "reordered"}, set()),
        ({"lost": (ONE,), "gaps": 1, "given_up": 1}, set()),
        # A heartbeat was given up beside it: it has a number, and nobody expects it.
        ({"lost": (ONE,), "gaps": 2, "given_up": 2}, set()),
        ({"lost": (ONE,), "gaps": 2, "given_up": 1}, {"lost", "numbers missing"}),
        ({"lost": (FOREIGN,), "gaps": 1, "given_up": 1}, {"lost", "numbers missing"}),
    ],
)
def test_only_what_a_device_gave_up_may_be_missing(
    contract: Contract, tmp_path: Path, found: dict[str, Any], called: set[str]
) -> None:
    assert wrong(outcome(contract, tmp_path, **found)) == called


@pytest.mark.source("P16")
@pytest.mark.parametrize(
    ("found", "called"),
    [
        ({"lost": (ONE,) * 80, "gaps": 3}, set()),
        ({"lost": (ONE,) * EXPECTED}, {"lost"}),
        ({"misrouted": 1}, {"misrouted"}),
        ({"quarantined": 1}, {"quarantined"}),
        ({"lost": (ONE,), "audited": 98}, {"audit disagrees"}),
    ],
)
def test_a_run_that_may_lose_must_be_right_in_all_else(
    contract: Contract, tmp_path: Path, found: dict[str, Any], called: set[str]
) -> None:
    assert wrong(outcome(contract, tmp_path, **found), loses=True) == called


def test_an_unexplained_end_fails_the_run(contract: Contract, tmp_path: Path) -> None:
    whole = outcome(contract, tmp_path)
    crashed = replace(whole, ended=[ChildExit("forwarder-home-1", 1, started=0.0, at=1.5)])
    assert wrong(crashed) == {"ended by themselves"}
    full = InjectedFault("disk-full", "home-1", 1.0, 2.0)
    refused = ChildExit("forwarder-home-1", os.EX_IOERR, started=1.9, at=2.5)
    assert not wrong(replace(whole, struck=[full], ended=[refused]))
    others = [
        replace(refused, started=2.1),
        replace(refused, status=1),
        replace(refused, name="forwarder-home-2"),
        replace(refused, name="worker-ingest"),
    ]
    assert by_themselves([refused, *others], [full]) == others


A: Key = ("/homes/a/voice", "1")
B: Key = ("/homes/a/voice", "2")
C: Key = ("/homes/a/voice", "3")
OTHER: Key = ("/homes/b/voice", "1")


def sent(*keys: Key) -> list[SentEvent]:
    return [SentEvent(source, id, "t", None, False, Place.DEVICE) for source, id in keys]


@pytest.mark.source("P17")
def test_overtaken_events_are_out_of_order() -> None:
    assert out_of_order(sent(A, B, C, OTHER), [C, OTHER, A, B]) == 2
    assert out_of_order(sent(A, B, C, OTHER), [OTHER, A, B, C]) == 0
    assert out_of_order(sent(A), [("not_json", "digest"), A]) == 0


def test_recovery_lasts_until_the_oldest_came() -> None:
    times = {A: 1.0, B: 2.0, C: 9.0, OTHER: 1.0}
    arrived = {A: 1.5, C: 9.5, B: 7.0, OTHER: 30.0}
    assert recoveries([InjectedFault("cut", "a", 2.0, 5.0)], times, arrived) == [Recovery("cut", "a", 2.0)]


def test_of_faults_together_the_last_to_end_counts() -> None:
    struck = [
        InjectedFault("cut", "a", 2.0, 5.0),
        InjectedFault("kill", "a", 3.0, 6.0),
        InjectedFault("kill", "b", 1.0, 9.0),
    ]
    assert [each.kind for each in recoveries(struck, {A: 1.0}, {A: 8.0})] == ["kill", "kill"]


def test_delays_are_of_what_arrived() -> None:
    times = {A: 1.0, B: 3.0, C: 4.0, OTHER: 3.0}
    arrived = {A: 2.0, B: 3.5, OTHER: 9.0}
    assert delays(times, arrived) == [1.0, 0.5, 6.0]
    assert delays_during([InjectedFault("cut", "a", 2.0, 4.0)], times, arrived) == [0.5]


def row(id: str, type: str, deliveries: list[dict[str, object]]) -> str:
    data = {"deliveries": deliveries, "not_stored": []}
    event = write_event({"id": id, "source": "/devices/home-1/forwarder", "type": type}, data)
    return to_line(TapRecord(1, 1, "home-1", "t", "m", 0, event.json, None, None))


def test_deliveries_to_the_uplink_count_once_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "tap" / "date=2026-01-01" / "hour=00"
    folder.mkdir(parents=True)
    some = {"destination": "device.outbox", "count": 56}
    lines = [
        row("1", DISCARDED, [some, {"destination": "call-service.inbox", "count": 7}]),
        row("1", DISCARDED, [some]),
        row("2", DISCARDED, [{"destination": "device.outbox", "count": 1}]),
        row("3", "org.example.other.v1", [some]),
    ]
    (folder / "1.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    assert given_up(tmp_path, "device.outbox") == Counter({"home-1": 57})


def test_what_was_given_up_from_memory_counts_by_reason(tmp_path: Path) -> None:
    told = [
        {"channel": "device.outbox", "type": "t", "reason": "overflow", "count": 3},
        {"channel": "device.outbox", "type": "u", "reason": "overflow", "count": 1},
        {"channel": "call-service.inbox", "type": "t", "reason": "offline", "count": 9},
    ]
    event = write_event(
        {"id": "1", "source": "/devices/home-1/forwarder", "type": DISCARDED},
        {"deliveries": [], "not_stored": told},
    )
    record = TapRecord(1, 1, "home-1", "t", "m", 0, event.json, None, None)
    (tmp_path / "tap").mkdir()
    (tmp_path / "tap" / "1.json.gz").write_bytes(gzip.compress(to_line(record).encode()))
    assert not_stored(tmp_path, "device.outbox") == Counter(overflow=4)


def test_an_event_that_was_accepted_in_two_frames_was_sent_again(tmp_path: Path) -> None:
    def line(client: str, id: str, message: str, index: int) -> str:
        event = write_event({"id": id, "source": "/s", "type": "t.v1"}, None)
        return to_line(TapRecord(1, 1, client, "t", message, index, event.json, None, None))

    lines = [
        line("home-1", "1", "m1", 0),
        line("home-1", "2", "m1", 1),
        line("home-1", "2", "m1", 1),  # the same item, archived twice
        line("home-1", "2", "m2", 0),
        line("home-2", "2", "m3", 0),
        to_line(TapRecord(1, 1, "home-1", "t", "m4", 0, None, "e30=", "not_json")),
    ]
    (tmp_path / "tap").mkdir()
    (tmp_path / "tap" / "1.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    assert sent_again(tmp_path) == 1


STARTED_KEY = (STARTED, "/devices/home-2/forwarder")
LETTER = ("not_json", "ab" * 32)


def test_an_event_that_misses_two_inboxes_is_one() -> None:
    lost = (("/homes/home-1/s", "1"), ("/homes/home-2/s", "1"))
    verdicts = [ServiceResult("a", 2, 0, lost, (), 0), ServiceResult("b", 2, 1, lost[:1], (), 0)]
    assert missing(verdicts) == set(lost)


@pytest.mark.parametrize(
    ("given_up", "unexcused_ones"),
    [
        ({"home-1": 2, "home-2": 1}, 0),
        ({"home-1": 1, "home-2": 2}, 0),
        ({"home-1": 1, "home-2": 1}, 1),
        ({"home-1": 3}, 1),
        ({"home-3": 9}, 2),
        ({}, 3),
    ],
)
def test_a_home_excuses_its_own(given_up: dict[str, int], unexcused_ones: int) -> None:
    lost = {("/homes/home-1/s", "1"), STARTED_KEY, LETTER}
    assert unexcused(lost, Counter(given_up)) == unexcused_ones
