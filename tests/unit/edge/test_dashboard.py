"""Grafana's dashboard of the devices: whole, current, and of metrics that there are."""

from __future__ import annotations

import json
import re
from itertools import combinations

from edge.metrics import METRICS, Metric
from tools.dashboards import FILE, ROWS, device_dashboard, rows

DOCUMENT = json.loads(device_dashboard())
GRAPHS = [each for each in DOCUMENT["panels"] if each["type"] != "row"]
QUERIES = [target["expr"] for panel in GRAPHS for target in panel["targets"]]


def test_it_shows_every_metric_and_none_that_is_not() -> None:
    shown = {name for query in QUERIES for name in re.findall(r"\b(?:eventplane|process)_\w+", query)}
    assert shown == {each.name for each in METRICS}


def test_a_metric_without_a_panel_gets_one() -> None:
    new = (Metric("eventplane_new_total", "New.", lambda _: 1), Metric("eventplane_new", "New.", lambda _: 1))
    assert rows() == ROWS
    *known, others = rows((*METRICS, *new))
    assert tuple(known) == ROWS
    assert [each.queries[0].promql for each in others.panels] == [
        "rate(eventplane_new_total{$i}[$__rate_interval])",
        "eventplane_new{$i}",
    ]


def test_counters_are_shown_as_rates_and_gauges_as_they_are() -> None:
    kinds = {each.name: each.kind for each in METRICS}
    for query in QUERIES:
        for ranged in re.findall(r"(\w+)\{[^}]*\}\[", query):
            assert kinds[ranged] == "counter", query


def test_each_query_is_about_the_chosen_devices_and_closes_what_it_opens() -> None:
    for query in QUERIES:
        assert query.count('{instance=~"$instance"}') == len(
            re.findall(r"\b(?:eventplane|process)_\w+", query)
        )
        assert [query.count(each) for each in "({["] == [query.count(each) for each in ")}]"]


def test_panels_have_ids_and_places_of_their_own() -> None:
    assert len({each["id"] for each in DOCUMENT["panels"]}) == len(DOCUMENT["panels"])
    places = [each["gridPos"] for each in DOCUMENT["panels"]]
    assert all(each["x"] + each["w"] <= 24 for each in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
    assert len(GRAPHS) == sum(len(each.panels) for each in ROWS)


def test_the_file_is_current() -> None:
    assert FILE.read_text() == device_dashboard()
