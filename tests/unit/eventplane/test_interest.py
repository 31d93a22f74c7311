"""Interest: announcements, their table, the contract that is derived of them, and that of the uplink."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import load_compiled
from eventplane.filters import Any as AnyOf
from eventplane.filters import Exact
from eventplane.interest.announcement import (
    VERSION,
    Announcement,
    AnnouncementError,
    new_announcement,
    read_announcement,
    with_interest,
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
from eventplane.interest.uplink import uplink_filters
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS
from eventplane.records import RecordError, Records
from tests.fakes.tables import MemoryTables
from tests.plane import shipped_contract

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


CONTRACT = shipped_contract()
MOTION: dict[str, Any] = {"exact": {"type": "org.eventplane.activity.motion.v1"}}
DOOR: dict[str, Any] = {"exact": {"type": "org.eventplane.activity.door.v1"}}


def test_interest_makes_a_contract_with_its_own_version() -> None:
    assert with_interest(CONTRACT, []) == (CONTRACT, {})
    derived, refused = with_interest(CONTRACT, [new_announcement("family-app", [MOTION])])
    assert refused == {}
    assert derived.version != CONTRACT.version
    assert load_compiled(derived.canonical) == derived
    motion = AnyOf((Exact("type", "org.eventplane.activity.motion.v1"),))
    assert {
        each.name: each.interest for each in derived.routes if each.interest is not None
    } == dict.fromkeys(("daily-life-to-family", "notices-to-relatives"), motion)
    before = [(each.name, each.filter) for each in CONTRACT.routes]
    assert [(each.name, each.filter) for each in derived.routes] == before


@given(
    st.permutations(
        [new_announcement(who, [what]) for who in ("family-app", "call-service") for what in (MOTION, DOOR)]
    )
)
def test_announcements_of_one_participant_add_up_in_any_order(announcements: list[Announcement]) -> None:
    derived, _ = with_interest(CONTRACT, announcements)
    both, _ = with_interest(
        CONTRACT, [new_announcement(who, [DOOR, MOTION]) for who in ("call-service", "family-app")]
    )
    assert derived.version == both.version


@pytest.mark.parametrize(
    "wrong",
    [
        new_announcement("nobody", [MOTION]),
        new_announcement("device", [MOTION]),
        Announcement("family-app", ("{",)),
        Announcement("family-app", ('{"new":{}}',)),
    ],
)
def test_a_wrong_interest_is_its_readers_only(wrong: Announcement) -> None:
    others = [new_announcement("carers", [MOTION]), new_announcement("family-app", [DOOR])]
    derived, refused = with_interest(CONTRACT, [wrong, *others])
    assert set(refused) == {wrong}
    concerned = {each.destination for each in derived.routes if each.interest is not None}
    assert concerned == {"carers.inbox", "family-app.inbox"} - {f"{wrong.participant}.inbox"}


@pytest.mark.parametrize(
    ("until_s", "filters", "error"),
    [
        ("x", "[]", RecordError),
        ("9", "{}", TypeError),
        ("9", "[", ValueError),
        ("9", "[1]", AnnouncementError),
        ("9", "[" * 9_000, ValueError),
        ("9", "[" * 99_999, AnnouncementError),
    ],
)
def test_an_item_that_cannot_be_read_is_reported(until_s: str, filters: str, error: type[Exception]) -> None:
    tables, key = MemoryTables(), ANNOUNCEMENT.key_of("a", "one")
    tables.put("t", key, {**key, "expires": {"N": until_s}, "filters": {"S": filters}}, None)
    reported: list[Exception] = []
    assert InterestTable(tables, "t", lambda _, found: reported.append(found)).all() == frozenset()
    (found,) = reported
    assert isinstance(found, error)


def test_the_uplink_ignores_announcements() -> None:
    filters = uplink_filters(CONTRACT)
    assert {"exact": {"type": "org.eventplane.device.heartbeat.v1"}} in filters
    derived, _ = with_interest(CONTRACT, [new_announcement("family-app", [DOOR])])
    assert uplink_filters(derived) == filters
    # Published like any other interest, it is what any of the cloud's routes takes.
    wanted = new_announcement("device", filters).interest
    types = ("alarm.keyword", "climate.reading", "climate.raw")
    assert [wanted.matches({"type": f"org.eventplane.{each}.v1"}) for each in types] == [True, True, False]
