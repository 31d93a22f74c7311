"""The proof of the audit compares findings with the truth."""

from typing import Any

import pytest

from glue_jobs.delivery_audit.findings import Hop, Kind
from lab.archive_generator.truth import COLUMNS, COVERAGE, PLANTED, QUARANTINED
from lab.benchmarks.audit.comparison import Score, compare, coverage, each_device_once, quarantined
from lab.benchmarks.audit.proof import AuditProof

Row = dict[str, Any]


def row(kind: str = Kind.LOST, hop: Hop | None = Hop.ROUTER, **more: Any) -> Row:
    known = {"source": "/a", "id": "1", "route": "r", "device": "d", "epoch": "e", "sequence": 7, "at_ms": 5}
    return {**dict.fromkeys(COLUMNS), **known, **more, "kind": kind, "hop": hop}


NEVER_CAME: Row = {"hop": Hop.DEVICE_CLOUD, "source": None, "id": None, "route": None}
NO_EVENT: Row = {"kind": Kind.DEAD_LETTERED, "source": None, "id": None, "sequence": None}
HOUR = row(Kind.MISSING_RECORDS, Hop.ARCHIVE, id=None, archive_file="ledger/date=2026-03-01/hour=02")
AGAIN = row(Kind.DUPLICATE, Hop.DEVICE_CLOUD, route=None)
MARKED = '{"client_id":"malformed-000001","accepted'
FOREIGN = [row(Kind.FOREIGN_EPOCH, Hop.DEVICE_CLOUD, id=name) for name in ("1", "2")]
REASONS = [row(COVERAGE, None, detail=word) for word in ("partly", "unregistered", "partly")]


@pytest.mark.parametrize(
    ("planted", "found", "recall", "precision"),
    [
        ([row()], [row(detail="in other words", archive_file="x")], 1.0, 1.0),
        ([row()], [row(), row()], 1.0, 0.5),
        ([row(), row(id="2")], [row()], 0.5, 1.0),
        # What never arrived is known by its number, what has no names by device and time.
        ([row(**NEVER_CAME)], [row(**NEVER_CAME, sequence=9)], 0.0, 0.0),
        ([row(**NO_EVENT)], [row(**NO_EVENT, at_ms=6)], 0.0, 0.0),
        # What is about a store or a clock needs no number, and not all kinds are judged by route.
        (
            [row(Kind.CLOCK_SKEW, Hop.DEVICE_CLOUD, epoch=None, sequence=None)],
            [row(Kind.CLOCK_SKEW, Hop.DEVICE_CLOUD)],
            1.0,
            1.0,
        ),
        ([AGAIN], [{**AGAIN, "route": "r"}], 1.0, 1.0),
        # A row in quarantine is known by its file, and by a mark or the id in its text.
        (
            [row(QUARANTINED, None, archive_file="tap/a", detail="malformed-000001")],
            [quarantined({"archive_file": file, "text": MARKED}) for file in ("tap/a", "tap/b")],
            1.0,
            0.5,
        ),
        ([HOUR], [{**HOUR, "archive_file": f"{HOUR['archive_file']}/"}], 1.0, 1.0),
        # Of a device's coverage what lowers it most counts, once, as do events that it brings of another.
        (
            each_device_once(REASONS),
            coverage(
                [{"client_id": "d", "coverage": "unregistered"}, {"client_id": "f", "coverage": "attested"}]
            ),
            1.0,
            1.0,
        ),
        (each_device_once(FOREIGN), FOREIGN[:1], 1.0, 1.0),
    ],
)
def test_a_finding_is_known(planted: Any, found: Any, recall: float, precision: float) -> None:
    (score,) = compare(planted, found).values()
    assert (score.recall, score.precision) == (recall, precision)
    assert score.wrong == (recall < 1 or precision < 1)


@pytest.mark.parametrize(
    "other",
    [{"kind": Kind.EXPIRED}, {"hop": Hop.INBOX_CONSUMER}, {"id": "2"}, {"source": "/b"}, {"route": "s"}],
)
def test_another_kind_hop_event_or_route_is_missed_and_invented(other: dict[str, Any]) -> None:
    scores = compare([row()], [row(**other)])
    assert scores["lost router"].recall == 0.0
    assert scores["lost router"].document()["missed"] == ["('lost', 'router', '/a', '1', 'r')"]
    assert sum(len(score.invented) for score in scores.values()) == 1


def test_each_kind_at_each_hop_has_to_be_planted_and_found() -> None:
    written, good = {"unseen": 0}, {name: Score(planted=2, found=2) for name in PLANTED}
    assert AuditProof(written, {}, good, 0).wrong == {}
    assert set(AuditProof(written, {}, {}, 0).wrong) == PLANTED
    missed = Score(planted=1, missed=[("lost", "router")])
    invented = Score(planted=1, found=2, invented=[("late", "router")])
    wrong = AuditProof(written, {}, {**good, "lost router": missed, "late router": invented}, 0).wrong
    assert wrong == {"lost router": missed.document(), "late router": invented.document()}
    assert AuditProof(written, {}, good, 3).wrong == {"unseen": {"planted": 0, "found": 3}}
