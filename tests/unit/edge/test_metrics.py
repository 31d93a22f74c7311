from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from edge.figures import Figures, heartbeat
from edge.health.metrics import METRICS, render
from edge.health.snapshots import Snapshot
from edge.health.verdict import Finding, Health
from tests.unit.edge.figures import WELL, waiting

FULL = replace(
    WELL,
    backlog=(waiting(2.5),),
    dead_letters={"not_json": 2},
    descended={"stored": 5, "older": 1},
    discards={("expired", "ttl"): 4},
    publishes=9,
    certificate_left_s=86_400.0,
)
FINDINGS = (Finding("cloud_down", Health.DEGRADED, "no line", "wait"),)
SAMPLE = re.compile(r'([a-z_:]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')


@pytest.mark.source("P18")
def test_every_family_has_its_help_and_its_type_before_its_samples() -> None:
    family = ""
    seen: list[str] = []
    for line in render(Snapshot(FULL, FINDINGS)).splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            seen.append(family)
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family
            assert line.split()[3] in ("counter", "gauge")
        else:
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            assert found[1] == family
            float(found[3])
    assert seen == [each.name for each in METRICS]
    assert len(set(seen)) == len(seen)


def test_a_counter_is_named_like_one() -> None:
    assert all((each.kind == "counter") == each.name.endswith("_total") for each in METRICS)


def test_values_stand_with_their_labels() -> None:
    lines = render(Snapshot(FULL, FINDINGS)).splitlines()
    assert 'eventplane_oldest_seconds{destination="device.outbox",priority="urgent"} 2.5' in lines
    assert 'eventplane_pending{destination="device.outbox",priority="urgent"} 3' in lines
    assert 'eventplane_dead_letters_total{reason="not_json"} 2' in lines
    assert 'eventplane_descended_total{outcome="stored"} 5' in lines
    assert 'eventplane_discards_total{outcome="expired",reason="ttl"} 4' in lines
    assert 'eventplane_link_up{link="cloud"} 1' in lines
    assert "eventplane_publishes_total 9" in lines
    assert 'eventplane_problem{problem="cloud_down",health="degraded"} 1' in lines


def test_a_family_without_samples_is_left_out() -> None:
    assert "dead_letters" not in render(Snapshot(WELL, FINDINGS))
    assert render(Snapshot(WELL, FINDINGS)).endswith("\n")


def test_labels_are_escaped() -> None:
    text = render(Snapshot(replace(WELL, thing='a"b\\c\nd'), ()))
    assert 'thing="a\\"b\\\\c\\nd"' in text
    assert all(SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))


def test_every_figure_is_shown_somewhere() -> None:
    """A figure that nobody shows is a figure that nobody needs."""
    numbers = {each.name for each in fields(Figures) if each.type in ("int", "float")}
    changed = [
        name
        for name in numbers
        if render(Snapshot(replace(WELL, **{name: 987_654}), FINDINGS)) != render(Snapshot(WELL, FINDINGS))  # type: ignore[arg-type]
    ]
    assert set(changed) == numbers


def test_the_heartbeat_is_flat_and_small() -> None:
    beat = heartbeat(FULL)
    assert beat["pending"] == 3
    assert beat["oldest_urgent_s"] == 2.5
    assert beat["discards"] == 4
    assert beat["contract"] == "c0ffee"
    assert all(isinstance(value, int | float | str) for value in beat.values())
