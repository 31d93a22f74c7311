"""The table of interest: what cannot be read leaves its participant's interest unknown."""

from __future__ import annotations

from typing import Any

import boto3

from eventplane.announcement import new_announcement
from eventplane.contract.interest import PARTITION, SORT, Item, Leased, interest_item
from eventplane.interest_table import InterestTable
from tests.dynamodb import create_table


def leased(participant: str) -> Leased:
    return Leased(new_announcement(participant, [{"exact": {"type": "a"}}]), 100)


def test_one_program_that_cannot_be_understood_makes_its_participant_unknown(aws: None) -> None:
    dynamodb: Any = boto3.client("dynamodb")
    create_table(dynamodb, "interest", PARTITION, SORT)
    newer = interest_item(leased("desk"), "new") | {"filters": {"S": '[{"dialect of tomorrow": {}}]'}}
    for item in (interest_item(leased("desk"), "old"), newer, interest_item(leased("porter"), "one")):
        dynamodb.put_item(TableName="interest", Item=item)
    foreign: list[Item] = []
    found = InterestTable(dynamodb, "interest", lambda item, _: foreign.append(item)).all()
    assert found == {leased("porter")}
    assert foreign == [newer]
