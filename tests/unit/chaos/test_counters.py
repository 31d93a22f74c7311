"""Counts over what was sent, what arrived, and what devices report as lost."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from eventplane.contract import Place
from eventplane.device_reports import DISCARDED, STARTED
from eventplane.envelope import write_event
from eventplane.ledger import TapRecord, to_line
from local.chaos.counters import given_up, missing, out_of_order, unexcused
from local.oracle import Key, SentEvent, ServiceResult

A: Key = ("/homes/a/voice", "1")
B: Key = ("/homes/a/voice", "2")
OTHER: Key = ("/homes/b/voice", "1")


def sent(*keys: Key) -> list[SentEvent]:
    return [SentEvent(source, id, "t", None, False, Place.DEVICE) for source, id in keys]


@pytest.mark.source("P17")
def test_an_event_that_came_after_a_later_one_of_its_source_is_out_of_order() -> None:
    assert out_of_order(sent(A, B, OTHER), [B, OTHER, A]) == 1
    assert out_of_order(sent(A, B, OTHER), [OTHER, A, B]) == 0
    assert out_of_order(sent(A), [("not_json", "digest"), A]) == 0


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
def test_a_home_excuses_its_own_and_letters_of_an_unknown_home(
    given_up: dict[str, int], unexcused_ones: int
) -> None:
    lost = {("/homes/home-1/s", "1"), STARTED_KEY, LETTER}
    assert unexcused(lost, Counter(given_up)) == unexcused_ones
