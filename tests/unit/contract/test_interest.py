"""Interest in the contract: valid announcements, the derived contract, and the interest of the uplink."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import load_compiled
from eventplane.filters import Any as AnyOf
from eventplane.filters import Exact
from eventplane.interest.announcement import Announcement, AnnouncementError, new_announcement, with_interest
from eventplane.interest.table import ANNOUNCEMENT, InterestTable
from eventplane.interest.uplink import uplink_filters
from eventplane.records import RecordError
from tests.fakes.tables import MemoryTables
from tests.plane import shipped_contract

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
