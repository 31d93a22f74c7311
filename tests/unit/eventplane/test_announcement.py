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
from eventplane.interest.table import (
    ANNOUNCEMENT,
    MAX_PROGRAMS,
    SORT,
    AnnouncementItem,
    InterestTable,
    LeasedAnnouncement,
    announcement_item,
)
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS
from eventplane.records import Records
from tests.fakes.tables import MemoryTables

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


def leased(participant: str) -> LeasedAnnouncement:
    return LeasedAnnouncement(new_announcement(participant, [{"exact": {"type": "a"}}]), 100)


def one(participant: str, announcer: str = "one") -> AnnouncementItem:
    return announcement_item(leased(participant), announcer)


def table(*items: AnnouncementItem, foreign: list[str]) -> InterestTable:
    """A table with `items`; `foreign` gets the announcers of what cannot be read."""
    tables = MemoryTables()
    for each in items:
        Records(tables, "interest", ANNOUNCEMENT).force(each)
    return InterestTable(tables, "interest", lambda key, _: foreign.append(key[SORT]["S"]))


def item(participant: str, announcer: str, filters: str, expires: int = 100) -> AnnouncementItem:
    return AnnouncementItem(participant=participant, announcer=announcer, filters=filters, expires=expires)


def test_malformed_interest_is_unknown() -> None:
    foreign: list[str] = []
    newer = item("desk", "new", '[{"dialect of tomorrow": {}}]')
    known = table(one("desk", "old"), newer, one("porter"), foreign=foreign).all()
    assert (known, foreign) == ({leased("porter")}, ["new"])


def test_expired_announcements_are_not_read() -> None:
    foreign: list[str] = []
    known = table(item("desk", "old", "[" * 9_000, 9), one("desk"), foreign=foreign).all(10)
    assert (known, foreign) == ({leased("desk")}, [])


def test_too_much_interest_is_unknown() -> None:
    foreign: list[str] = []
    many = [item("desk", f"a{at:03}", f'[{{"exact":{{"type":"t{at}"}}}}]') for at in range(MAX_PROGRAMS + 1)]
    wrong = [item("desk", f"b{at}", "[" * 9_000) for at in range(9)]
    others = [one("porter", f"p{at}") for at in range(2 * MAX_PROGRAMS)]
    known = table(*many, *wrong, *others, foreign=foreign).all()
    assert (known, foreign) == ({leased("porter")}, [many[-1].announcer])
