"""The verdict in one word, its event and its revisions. No Spark."""

from __future__ import annotations

from typing import Any

import pytest

from eventplane.envelope import parse_event
from glue_jobs.delivery_audit.main import read_arguments
from glue_jobs.delivery_audit.verdict import revision, verdict_event, verdict_of
from glue_jobs.delivery_audit.watermark import LATENESS_S
from tests.spark.small_archive import NOON_MS

CLEAN = {"findings": 0, "pending": 0, "quarantined": 0, "lost": 0}


@pytest.mark.parametrize(
    ("totals", "verdict"),
    [
        ({}, "proven"),
        ({"pending": 1}, "open"),
        ({"quarantined": 1}, "open"),
        ({"findings": 1, "pending": 1}, "broken"),
    ],
)
def test_the_verdict_is_proven_only_when_all_was_judged(totals: dict[str, int], verdict: str) -> None:
    assert verdict_of({**CLEAN, **totals}) == verdict


def test_a_revision_says_what_changed_since_the_last_verdict() -> None:
    first = revision(None, CLEAN)
    assert first == {"number": 0, "changed": {}}
    before: dict[str, Any] = {"totals": {**CLEAN, "lost": 2}, "revision": first}
    assert revision(before, {**CLEAN, "new": 1}) == {
        "number": 1,
        "changed": {"lost": [2, 0], "new": [None, 1]},
    }


def test_a_verdict_is_an_event_that_a_repetition_does_not_make_twice() -> None:
    document = {
        "verdict": "proven",
        "window": {"date": "2026-03-01"},
        "watermark": {"as_of_ms": NOON_MS},
        "totals": CLEAN,
        "revision": revision(None, CLEAN),
    }
    event = verdict_event(document)
    assert parse_event(event.json) == event
    assert event.key == verdict_event(document).key
    assert event.attributes["time"] == "2026-03-01T12:00:00.000Z"
    later = verdict_event({**document, "watermark": {"as_of_ms": NOON_MS + 1}})
    assert later.key != event.key


def test_the_watermark_is_the_time_of_the_archive_less_the_lateness() -> None:
    given = ["--INPUT", "a", "--OUTPUT", "b", "--AS_OF", "2026-03-01T12:00:00Z"]
    assert read_arguments(given).watermark.ms == NOON_MS - 1_000 * LATENESS_S
    assert read_arguments([*given, "--LATENESS_S", "0"]).watermark.ms == NOON_MS


@pytest.mark.parametrize("wrong", [("--AS_OF", "noon"), ("--LATENESS_S", "-1")])
def test_a_wrong_time_is_told(wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_arguments(["--INPUT", "a", "--OUTPUT", "b", *wrong])
    assert wrong[1] in capsys.readouterr().err
