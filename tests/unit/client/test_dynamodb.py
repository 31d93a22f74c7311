"""The filters in DynamoDB: what they write, what AWS may refuse, and how a log begins."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from eventplane_client.dynamodb import DynamoDbFilter
from eventplane_client.dynamodb_log import DynamoDbLogFilter
from eventplane_client.errors import StateError
from eventplane_client.ports import Verdict
from tests.unit.client.worlds import READER, create_filter_table

LEASE_S = 30
KINDS = [DynamoDbFilter, DynamoDbLogFilter]


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Table:
    """A table, a clock, and the calls that were made."""

    def __init__(self) -> None:
        self.dynamodb = boto3.client("dynamodb")
        self.now = 1_700_000_000.0
        self.calls: Counter[str] = Counter()
        self.failing = ""
        create_filter_table(self.dynamodb, "filters")

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if name == self.failing:
                raise ClientError({"Error": {"Code": "Throttling"}}, name)
            return getattr(self.dynamodb, name)(*arguments, **options)

        return call

    def reader(self, kind: type[Any]) -> Any:
        return kind(self, "filters", READER, lease=lambda: LEASE_S, clock=lambda: self.now)


@pytest.fixture
def table(aws: None) -> Table:
    return Table()


@pytest.mark.parametrize("kind", KINDS)
def test_a_claim_whose_answer_was_lost_is_no_claim(table: Table, kind: type[Any]) -> None:
    reader = table.reader(kind)
    reader.claim([key(1)])
    reader._in_hand.clear()
    assert reader.claim([key(1)]) == [Verdict.NEW]


@pytest.mark.parametrize(
    ("kind", "operation"), [(DynamoDbFilter, "update_item"), (DynamoDbLogFilter, "put_item")]
)
def test_what_aws_refuses_is_a_named_error_and_no_claim(
    table: Table, kind: type[Any], operation: str
) -> None:
    reader = table.reader(kind)
    table.failing = operation
    with pytest.raises(StateError, match="filters"):
        reader.claim([key(1)])
    table.failing = ""
    assert reader.claim([key(1)]) == [Verdict.NEW]


def test_the_item_filter_writes_twice_an_event(table: Table) -> None:
    reader = table.reader(DynamoDbFilter)
    for number in range(10):
        reader.claim([key(number)], [key(number - 1)] if number else [])
    reader.claim([], [key(9)])
    assert table.calls == {"update_item": 20}


@pytest.mark.source("F-W4")
def test_the_log_writes_once_a_batch(table: Table) -> None:
    reader = table.reader(DynamoDbLogFilter)
    table.calls.clear()
    done: list[bytes] = []
    for start in range(0, 100, 10):
        batch = [key(number) for number in range(start, start + 10)]
        reader.claim(batch, done)
        done = batch
    reader.claim([], done)
    assert table.calls == {"put_item": 11}
    sizes = [
        sum(len(name) + len(str(next(iter(value.values())))) for name, value in item.items())
        for item in table.dynamodb.scan(TableName="filters")["Items"]
    ]
    assert max(sizes) < 2_000  # of Python's text of bytes; a write unit is 1 KiB of bytes


def test_of_two_readers_of_a_new_log_one_claims(table: Table) -> None:
    first = table.reader(DynamoDbLogFilter)
    table.now += 1
    second = table.reader(DynamoDbLogFilter)
    assert first.claim([key(1)]) == [Verdict.NEW]
    assert second.claim([key(1)]) == [Verdict.BUSY]


def test_readers_of_a_log_that_has_expired_agree_on_its_new_beginning(table: Table) -> None:
    old = table.reader(DynamoDbLogFilter)
    for at in range(3):
        old.claim([key(at)])
        old.release([key(at)])
    for item in table.dynamodb.scan(TableName="filters")["Items"]:
        table.dynamodb.delete_item(
            TableName="filters", Key={name: item[name] for name in ("reader", "event")}
        )
    table.now += 1_209_600
    new = table.reader(DynamoDbLogFilter)
    assert new.claim([key(2)]) == [Verdict.NEW]
    assert old.claim([key(2)]) == [Verdict.BUSY]
    assert old.claim([key(3)]) == [Verdict.NEW]
    assert new.claim([key(3)]) == [Verdict.BUSY]
