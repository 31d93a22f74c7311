"""The comparison of findings with the truth, with findings made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.audit.comparison import compare, coverage, each_device_once, quarantined
from local.archive_generator.truth import COLUMNS, Hop, Kind


def row(kind: Kind = Kind.LOST, hop: Hop | None = Hop.ROUTER, **more: Any) -> dict[str, Any]:
    known = {"source": "/a", "id": "1", "route": "r", "device": "d", "epoch": "e", "sequence": 7, "at_ms": 5}
    return {**dict.fromkeys(COLUMNS), **known, **more, "kind": kind, "hop": hop}


def test_what_is_found_is_found() -> None:
    (score,) = compare([row()], [row(detail="in other words", archive_file="x")]).values()
    assert (score.planted, score.found, score.recall, score.precision) == (1, 1, 1.0, 1.0)


@pytest.mark.parametrize(
    "other",
    [{"kind": Kind.EXPIRED}, {"hop": Hop.INBOX_CONSUMER}, {"id": "2"}, {"source": "/b"}, {"route": "s"}],
)
def test_another_kind_hop_event_or_route_is_missed_and_invented(other: dict[str, Any]) -> None:
    scores = compare([row()], [row(**other)])
    assert scores["lost router"].recall == 0.0
    assert sum(len(score.invented) for score in scores.values()) == 1


def test_a_fact_found_twice_was_invented_once() -> None:
    (score,) = compare([row()], [row(), row()]).values()
    assert (score.recall, score.precision) == (1.0, 0.5)


def test_half_of_it() -> None:
    (score,) = compare([row(), row(id="2")], [row()]).values()
    assert (score.recall, score.precision) == (0.5, 1.0)
    assert score.document()["missed"] == ["('lost', 'router', '/a', '2', 'r')"]


def test_an_event_that_never_arrived_is_known_by_its_number() -> None:
    lost = {"hop": Hop.DEVICE_CLOUD, "source": None, "id": None, "route": None}
    scores = compare([row(**lost), row(**lost, sequence=8)], [row(**lost), row(**lost, sequence=9)])
    assert (scores["lost device_cloud"].recall, scores["lost device_cloud"].precision) == (0.5, 0.5)


def test_an_item_without_names_is_known_by_device_and_time() -> None:
    item = {"source": None, "id": None, "sequence": None, "kind": Kind.DEAD_LETTERED}
    (score,) = compare([row(**item)], [row(**item, at_ms=6)]).values()
    assert (score.recall, score.precision) == (0.0, 0.0)


def test_what_is_about_a_store_or_a_clock_needs_no_number() -> None:
    planted = [row(kind, Hop.DEVICE_CLOUD) for kind in (Kind.EPOCH_CHANGE, Kind.MISSING_MANIFEST)]
    found = [{**each, "sequence": None, "id": None} for each in planted]
    skew = row(Kind.CLOCK_SKEW, Hop.DEVICE_CLOUD, epoch=None, sequence=None)
    scores = compare([*planted, skew], [*found, row(Kind.CLOCK_SKEW, Hop.DEVICE_CLOUD)])
    assert {(score.recall, score.precision) for score in scores.values()} == {(1.0, 1.0)}
    assert len(scores) == 3


def test_a_route_counts_only_where_routes_are_judged() -> None:
    again = row(Kind.DUPLICATE, Hop.DEVICE_CLOUD, route=None)
    (score,) = compare([again], [{**again, "route": "r"}]).values()
    assert score.recall == 1.0


def test_a_quarantined_row_is_known_by_its_mark_and_its_file() -> None:
    planted = row(Kind.QUARANTINED, None, archive_file="tap/a", detail="malformed-000001")
    text = '{"client_id":"malformed-000001","accepted'
    found = [
        quarantined({"archive_file": file, "line": 1, "reason": "x", "text": text})
        for file in ("tap/a", "tap/b")
    ]
    (score,) = compare([planted], found).values()
    assert (score.recall, score.precision) == (1.0, 0.5)


def test_a_row_of_a_newer_release_is_known_by_the_id_in_its_text() -> None:
    planted = row(Kind.QUARANTINED, None, archive_file="ledger/a", detail="1")
    found = quarantined({"archive_file": "ledger/a", "text": '{"source":"/a","id":"1","attempt":"1"}'})
    (score,) = compare([planted], [found]).values()
    assert not score.wrong


def test_an_object_is_known_by_its_key_with_or_without_a_slash() -> None:
    hour = row(Kind.MISSING_RECORDS, Hop.ARCHIVE, id=None, archive_file="ledger/date=2026-03-01/hour=02")
    (score,) = compare([hour], [{**hour, "archive_file": f"{hour['archive_file']}/"}]).values()
    assert not score.wrong


def test_the_coverage_of_a_device_is_what_lowers_it_most() -> None:
    reasons = [row(Kind.COVERAGE, None, detail=word) for word in ("partly", "unregistered", "partly")]
    found = coverage(
        {"client_id": name, "coverage": word} for name, word in (("d", "unregistered"), ("f", "attested"))
    )
    (score,) = compare(each_device_once(reasons), found).values()
    assert (score.planted, score.found, score.wrong) == (1, 1, False)


def test_a_device_that_brings_events_of_another_is_found_once() -> None:
    foreign = [row(Kind.FOREIGN_EPOCH, Hop.DEVICE_CLOUD, id=name) for name in ("1", "2")]
    (score,) = compare(each_device_once(foreign), foreign[:1]).values()
    assert not score.wrong


def test_nothing_planted_and_nothing_found_is_no_score() -> None:
    assert compare([], []) == {}
