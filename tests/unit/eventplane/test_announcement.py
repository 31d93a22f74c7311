"""Announcements: what can be announced, and what is refused of what comes."""

import json
from typing import Any

import pytest

from eventplane.interest.announcement import (
    VERSION,
    AnnouncementError,
    new_announcement,
    read_announcement,
    write_announcement,
)
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS

RINGS: dict[str, Any] = {"exact": {"type": "org.example.ring.v1"}}
BATTERY: dict[str, Any] = {"sql": "type LIKE '%.battery.v1' AND percent < 10"}


@pytest.mark.parametrize("filters", [[], [RINGS], [RINGS, BATTERY, RINGS]])
def test_announcements_are_read_back(filters: list[object]) -> None:
    announcement = new_announcement("chime", filters)
    assert read_announcement(write_announcement(announcement), "chime") == announcement
    assert new_announcement("chime", filters[::-1] * 2) == announcement
    assert read_announcement(b"", "chime") is None


def test_an_interest_matches_any_filter() -> None:
    both = new_announcement("chime", [RINGS, BATTERY]).interest
    assert both.matches({"type": "org.example.ring.v1"})
    assert both.matches({"type": "org.example.battery.v1", "percent": 3})
    assert not both.matches({"type": "org.example.battery.v1", "percent": 30})
    assert not new_announcement("chime", []).interest.matches({"type": "org.example.ring.v1"})


@pytest.mark.parametrize(
    ("filters", "path"),
    [
        ([RINGS, {"exacd": {}}], "filters[1].exacd"),
        ([{"sql": "type = ("}], "filters[0].sql"),
        (["everything"], "filters[0]"),
        ([{"exact": {"type": "\ud800"}}], "filters[0]"),
        ([{"exact": {"type": f"t{at}"}} for at in range(MAX_ANNOUNCED_FILTERS + 1)], "filters"),
        ([{"exact": {"type": "x" * MAX_ANNOUNCED_BYTES}}], "filters"),
    ],
)
def test_wrong_filters_are_refused_by_path(filters: list[object], path: str) -> None:
    with pytest.raises(AnnouncementError) as wrong:
        new_announcement("chime", filters)
    assert [each.path for each in wrong.value.problems] == [path]


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        *((each, "(document)") for each in (b"{", b"\xff\xfe", b"[" * 100_000)),
        ({"version": VERSION + 1, "participant": "chime", "filters": []}, "version"),
        ({"version": VERSION, "participant": "bell", "filters": []}, "participant"),
        ({"version": VERSION, "participant": "chime", "filters": {}}, "filters"),
        ({"version": VERSION, "participant": "chime", "filters": [{"new": {}}]}, "filters[0].new"),
        ({"version": VERSION, "filters": []}, "(document)"),
        ([], "(document)"),
        (7, "(document)"),
    ],
)
def test_a_malformed_announcement_is_refused_by_its_path(payload: object, path: str) -> None:
    with pytest.raises(AnnouncementError) as wrong:
        read_announcement(payload if isinstance(payload, bytes) else json.dumps(payload).encode(), "chime")
    assert [each.path for each in wrong.value.problems] == [path]
