"""The table of interest: what cannot be read leaves its participant's interest unknown."""

from eventplane.interest.announcement import new_announcement
from eventplane.interest.table import (
    ANNOUNCEMENT,
    MAX_PROGRAMS,
    SORT,
    AnnouncementItem,
    InterestTable,
    LeasedAnnouncement,
    announcement_item,
)
from eventplane.records import Records
from tests.fakes.tables import MemoryTables


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
