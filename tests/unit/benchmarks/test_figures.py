"""The pages of figures: what a result says, and nothing that it does not."""

import pytest

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
