"""The table of interest: what cannot be read leaves its participant's interest unknown."""

from __future__ import annotations

from typing import Any

from eventplane.contract.publication import Item
from eventplane.interest.announcement import new_announcement
from eventplane.interest.table import (
    MAX_PROGRAMS,
    PARTITION,
    SORT,
    InterestTable,
    LeasedAnnouncement,
    interest_item,
)
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws


def leased(participant: str) -> LeasedAnnouncement:
    return LeasedAnnouncement(new_announcement(participant, [{"exact": {"type": "a"}}]), 100)


def test_a_malformed_announcement_makes_its_participant_s_interest_unknown(fake_aws: FakeAws) -> None:
    dynamodb = fake_aws.dynamodb
    create_table(dynamodb, "interest", PARTITION, SORT)
    newer = interest_item(leased("desk"), "new") | {"filters": {"S": '[{"dialect of tomorrow": {}}]'}}
    for item in (interest_item(leased("desk"), "old"), newer, interest_item(leased("porter"), "one")):
        dynamodb.put_item(TableName="interest", Item=item)
    foreign: list[Item] = []
    found = InterestTable(dynamodb, "interest", lambda item, _: foreign.append(item)).all()
    assert found == {leased("porter")}
    assert foreign == [newer]


class Items:
    """A table that says one page."""

    def __init__(self, *items: Item) -> None:
        self._items = items

    def get_paginator(self, _operation: str) -> Items:
        return self

    def paginate(self, **_request: Any) -> list[Any]:
        return [{"Items": self._items}]


def item(participant: str, filters: str, until_s: int = 100) -> Item:
    return {"participant": {"S": participant}, "filters": {"S": filters}, "expires": {"N": str(until_s)}}


def test_expired_announcements_are_not_read() -> None:
    foreign: list[Item] = []
    items = (item("desk", "[" * 9_000, 9), interest_item(leased("desk"), "one"))
    assert InterestTable(Items(*items), "t", lambda each, _: foreign.append(each)).all(10) == {leased("desk")}
    assert foreign == []


def test_too_many_announcements_make_a_participant_s_interest_unknown_and_are_not_read() -> None:
    foreign: list[Item] = []
    many = [item("desk", f'[{{"exact":{{"type":"t{at}"}}}}]') for at in range(MAX_PROGRAMS + 1)]
    wrong = [item("desk", "[" * 9_000)] * 9
    others = [interest_item(leased("porter"), f"p{at}") for at in range(2 * MAX_PROGRAMS)]
    table = InterestTable(Items(*many, *wrong, *others), "t", lambda each, _: foreign.append(each))
    assert table.all() == {leased("porter")}
    assert foreign == many[-1:]
