"""Counts over what was sent, what arrived, and what devices report as lost."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from eventplane.contract import Place
from eventplane.device_reports import DISCARDED, STARTED
from eventplane.envelope import write_event
from eventplane.ledger import TapRecord, to_line
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
from lab.oracle import Key, SentEvent, ServiceResult

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
