"""Benchmarks: the pages of figures, the runner, and what two of them compute."""

import json
from pathlib import Path
from typing import Any

import pytest

from glue_jobs.delivery_audit.findings import Hop, Kind
from lab.archive_generator.truth import COLUMNS, COVERAGE, PLANTED, QUARANTINED
from lab.benchmarks.audit.comparison import Score, compare, coverage, each_device_once, quarantined
from lab.benchmarks.audit.proof import AuditProof
from lab.benchmarks.results import Benchmark, Figure, none
from lab.benchmarks.scale.model import figures as fleet_figures
from lab.benchmarks.scale.model import published as measured
from lab.tools.figures import (
    TEXTS,
    UNKNOWN,
    Results,
    kept,
    missed,
    missed_table,
    page,
    paper_table,
    place,
    reason,
)

FIGURE = {"name": "lost", "value": 0.0, "unit": "events", "aim": 0.0, "met": True, "note": "a|b"}
RESULT = {"figures": [FIGURE], "machine": "m", "date": "2026-01-02T00:00:00+00:00", "command": "make chaos"}


def figure(name: str, value: float, **more: object) -> dict[str, object]:
    return {**FIGURE, "name": name, "value": value, "aim": None, **more}


def test_every_figure_has_its_row() -> None:
    text = page({"chaos/short": RESULT})
    assert "**stand-in**: `make chaos`, 2026-01-02, m." in text
    assert "| lost | 0 events | 0 |  |  | a\\|b |" in text
    missed = figure("x", 3.0, aim=0.0, met=False, peer="DuckDB", peer_value=6.0, ratio=2.0)
    text = page({"bench/edge": {**RESULT, "figures": [missed]}})
    assert "| x | 3 events | 0 **missed** | DuckDB: 6 | 2 | a\\|b |" in text


@pytest.mark.source("P16")
def test_the_paper_stands_beside_ours() -> None:
    counts = [
        figure(name, value)
        for name, value in (
            ("sent", 10_003.0), ("faults", 20.0), ("lost", 6_500.0), ("duplicated", 3.0),
            ("sent_again", 1.0),
        )
    ]  # fmt: skip
    run = {**RESULT, "figures": counts}
    text = paper_table({"chaos/paper": run, "chaos/paper-best-effort": run})
    assert "| best effort | 10,003 | 20 | 6,500 | 3 | 1 | about 7,000 |" in text


def test_a_missed_aim_is_shown_with_its_reason_or_without_one() -> None:
    figures = [figure(name, 3.0, aim=2.0, met=False) for name in ("bytes", "forwarder_rss", "another")]
    assert [each["name"] for each in missed({"figures": [FIGURE, *figures]})] == [
        each["name"] for each in figures
    ]
    *_, known, unknown = missed_table({"bench/plane_size": {**RESULT, "figures": figures[1:]}}).splitlines()
    assert "| forwarder memory: 3 events (2) | Python with TLS" in known
    assert unknown.endswith("| another: 3 events (2) |  |")


@pytest.fixture(scope="module")
def published() -> Results:
    """What the page of figures is written from."""
    return kept()


def value(results: Results, run: str, name: str) -> float:
    """The published figure `name` of `run`."""
    return next(each["value"] for each in results[run]["figures"] if each["name"] == name)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        pytest.param("bench/router", "parse_and_route_1000", marks=pytest.mark.source("B1")),
        pytest.param("bench/spool", "written: 1 a commit", marks=pytest.mark.source("B3")),
        pytest.param("bench/client", "mqtt_get_exactly_once_sqlite", marks=pytest.mark.source("B4")),
        pytest.param("bench/client", "sqs_get_exactly_once_items", marks=pytest.mark.source("B4")),
        pytest.param("bench/downlink", "latency_p50", marks=pytest.mark.source("B6")),
        pytest.param("bench/conversation", "device_p50", marks=pytest.mark.source("B7")),
        pytest.param("bench/interest", "uplink_bytes_not_sent_share", marks=pytest.mark.source("B7")),
        pytest.param("bench/tracing", "router_default_share", marks=pytest.mark.source("B7")),
        pytest.param("bench/cloud", "events_batched", marks=pytest.mark.source("B8")),
        pytest.param("bench/cost", "bulk_total", marks=pytest.mark.source("B8")),
        ("bench/edge", "flood_alarm_p99"),
        pytest.param("bench/scale", "1000000_devices", marks=pytest.mark.source("B8")),
    ],
)
def test_each_thing_that_is_measured_is_published(published: Results, run: str, name: str) -> None:
    assert value(published, run, name) > 0


@pytest.mark.source("B2", "B5")
@pytest.mark.parametrize(("run", "peer"), [("bench/edge", "Mosquitto's bridge"), ("bench/audit", "DuckDB")])
def test_figures_are_published_beside_those_of_a_peer(published: Results, run: str, peer: str) -> None:
    assert any(each["peer"] == peer and each["ratio"] for each in published[run]["figures"])


@pytest.mark.source("N7", "B4")
@pytest.mark.parametrize("backend", ["memory", "mqtt", "sqs"])
def test_the_reliable_path_is_published_beside_the_other(published: Results, backend: str) -> None:
    reliable = value(published, "bench/client", f"{backend}_get_at_least_once")
    unreliable = value(published, "bench/client", f"{backend}_get_at_most_once")
    assert min(reliable, unreliable) > 0


@pytest.mark.source("B3", "B5", "P16")
def test_the_published_runs_lost_nothing(published: Results) -> None:
    # 100,000 do not end in the local cloud within an hour (lab/chaos/explanation.md, Copies).
    assert value(published, "chaos/paper", "sent") >= 30_000
    assert value(published, "chaos/paper-best-effort", "sent") >= 100_000
    assert value(published, "chaos/paper", "lost") == 0
    assert value(published, "bench/crash", "power cuts") >= 10_000
    assert value(published, "bench/crash", "cuts that lost or revived an event") == 0
    assert value(published, "bench/crash", "random damages") >= 2_000
    assert value(published, "bench/crash", "damages with a silent loss") == 0
    assert value(published, "bench/crash", "damages with an invented event") == 0
    assert value(published, "bench/audit_proof", "lost_router_recall") == 1


def test_each_published_result_says_where_it_ran(published: Results) -> None:
    assert [name for name in published if place(name) == UNKNOWN] == []


def test_each_missed_aim_has_a_reason_and_no_reason_is_left_over(published: Results) -> None:
    used = [reason(run, each["name"]) for run, result in published.items() for each in missed(result)]
    assert set(used) == {each["why"] for each in TEXTS["missed"]}


BENCHMARK = Benchmark(
    "spools",
    {
        "cuts": lambda options: [Figure("cuts", options.cuts, "cuts")],
        "losses": lambda options: [none("lost", options.cuts - 5, "events")],
    },
    options={"--cuts": {"type": int, "default": 5}},
)


def test_a_missed_required_aim_fails(tmp_path: Path) -> None:
    assert BENCHMARK.main(["--cuts", "6"], tmp_path) == 1
    document = json.loads((tmp_path / "spools.json").read_text())
    assert document["figures"][1]["met"] is False
    assert document["command"].endswith(" --cuts 6")


@pytest.mark.parametrize(
    ("unit", "value", "met", "ratio"), [("events/s", 4.0, True, 2.0), ("ms", 4.0, False, 0.5)]
)
def test_of_rates_more_is_better_and_of_times_less(unit: str, value: float, met: bool, ratio: float) -> None:
    figure = Figure("x", value, unit, aim=3.0, peer="other", peer_value=2.0)
    assert (figure.met, figure.ratio) == (met, ratio)


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


@pytest.mark.source("B8")
def test_fleet_figures_follow_from_measured_ones() -> None:
    results = kept()["bench/scale"]["figures"]
    assert results == [each.document() for each in fleet_figures(measured())]
