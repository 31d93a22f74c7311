"""The page of an audit: what it says, draws and tells to type. That it works is tested in a browser."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from local.audit_page import words
from local.audit_page.evidence import trace_command
from local.audit_page.heat_map import BANDS, MOST_DEVICES, heat_map
from local.audit_page.page import write_page
from local.audit_page.plots import dead_letters, duplicates, latency_curves, waterfall
from tests.audit_report import finding, hour, report


def test_the_heat_map_tells_what_was_lost_from_what_is_complete_and_from_nothing() -> None:
    cells = heat_map(
        [
            hour("home-1", "2026-03-01T00"),
            hour("home-1", "2026-03-01T02", pending=1),
            hour("home-2", "2026-03-01T00", events=999, lost=1),
            hour("home-2", "2026-03-01T01", events=90, lost=10),
            hour("home-2", "2026-03-01T02", events=0, lost=3),
        ]
    )
    assert cells is not None
    (drawn,) = cells.figure.data
    assert list(drawn.y) == ["home-2", "home-1"]
    assert list(drawn.x) == ["2026-03-01T00", "2026-03-01T01", "2026-03-01T02"]
    assert [list(row) for row in drawn.z] == [[2, 4, 4], [0, None, 1]]
    assert drawn.text[0][0].startswith("99.9 % complete")
    assert len(drawn.colorscale) == 2 * len(BANDS)


def test_what_lacks_one_event_of_many_is_not_called_complete() -> None:
    cells = heat_map([hour("home-1", "2026-03-01T00", events=1_000_000, lost=1)])
    assert cells is not None
    assert cells.figure.data[0].text[0][0].startswith("99.99 % complete")


def test_a_window_of_weeks_is_drawn_by_day_and_a_fleet_by_its_worst() -> None:
    days = [hour("home-1", f"2026-03-{day:02}T05", lost=1) for day in (1, 1, 31)]
    cells = heat_map([*days, *(hour(f"other-{n}", "2026-03-02T00") for n in range(50))])
    assert cells is not None
    (drawn,) = cells.figure.data
    assert (cells.column, cells.devices, cells.shown) == ("day", 51, MOST_DEVICES)
    assert (drawn.y[0], len(drawn.x), drawn.x[-1]) == ("home-1", 31, "2026-03-31")
    assert "20 events<br>2 lost" in drawn.text[0][0]


def test_the_waterfall_ends_with_the_sum() -> None:
    figure = waterfall({"device_cloud": 1, "iot_rule": 4, "router": 20, "inbox_consumer": 300})
    assert figure is not None
    (bars,) = figure.data
    assert list(bars.y)[:4] == [1, 4, 20, 300]
    assert list(bars.text) == ["1", "4", "20", "300", "325"]
    assert waterfall({"device_cloud": 0, "iot_rule": 0, "router": 0, "inbox_consumer": 0}) is None


def test_a_latency_below_zero_has_no_place_on_the_curve() -> None:
    figure = latency_curves(report()["latency"])
    assert figure is not None
    assert list(figure.data[0].x) == [5, 6.5, 9]
    assert latency_curves([]) is None


def test_duplicates_are_told_by_where_they_arose_and_lead_to_their_evidence() -> None:
    document = report()
    document["totals"]["tap_copies"] = 2
    document["consumers"] = [{"channel": "c.inbox", "duplicated": each} for each in (4, 5)]
    figure = duplicates(document)
    assert figure is not None
    (bars,) = figure.data
    assert list(bars.x) == [9, 3, 2]
    assert [list(each) for each in bars.customdata] == [
        ["inbox_consumer", ""],
        ["router", "to-care"],
        ["device_cloud", ""],
    ]


def test_dead_letters_are_told_by_reason() -> None:
    letters = [
        {"place": "cloud", "reason": "missing_attribute", "count": 2, "missing": 0},
        {"place": "device", "reason": "not_json", "count": 3, "missing": 0},
        {"place": "cloud", "reason": "never", "count": 0, "missing": 1},
    ]
    figure = dead_letters(letters)
    assert figure is not None
    assert list(figure.data[0].customdata) == ["not_json", "missing_attribute"]
    assert dead_letters(letters[2:]) is None


@pytest.mark.parametrize(
    ("milliseconds", "told"),
    [(None, "-"), (0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (-90_000, "-1.5 min"), (36e6, "10 h")],
)
def test_durations_are_told_in_a_unit_that_fits(milliseconds: float | None, told: str) -> None:
    assert words.duration(milliseconds) == told


def test_the_verdict_is_told_in_sentences_with_what_it_rests_on() -> None:
    rests = "Attested by manifests: 10 of 10 device events, 2 of 2 expected devices."
    assert words.verdict(report()) == ["Everything was delivered, and every promise was kept.", rests]
    document = report(reasons=["1,200 events lost on the way: iot_rule."])
    document["totals"]["acknowledged_lost"] = 7
    lost, acknowledged, *_ = words.verdict(document)
    assert lost == "1,200 events lost on the way: iot_rule."
    assert acknowledged.startswith("7 of the lost")


def test_the_command_follows_the_event_and_no_name_becomes_an_option_or_a_command() -> None:
    command = trace_command(finding(source="--live", id="a'; rm -rf /"), "build/archive")
    assert command is not None
    assert shlex.split(command)[4:] == [
        *("--from", "1970-01-01", "--to", "1970-01-02"),
        *("--archive", "build/archive", "--contract", "build/archive/contracts/abc.json"),
        *("--", "--live", "a'; rm -rf /"),
    ]


def test_what_has_no_name_has_no_command() -> None:
    assert trace_command(finding(source=None, id=None), None) is None


@pytest.mark.parametrize(
    ("findings", "verdict"), [([], "Everything was delivered"), ([finding()], "1 events lost")]
)
def test_the_verdict_comes_first_and_nothing_from_elsewhere(
    findings: list[dict[str, Any]], verdict: str, tmp_path: Path
) -> None:
    write_page(report(*findings), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert verdict in text[: text.index("<h2>")]
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", text.split("<script>")[0])
