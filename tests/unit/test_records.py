"""The one store of records, in memory, in DynamoDB (moto) and in histories; answers that get lost."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from os import urandom
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError

from eventplane.records import (
    UNCOUNTED,
    ConflictError,
    RecordError,
    RecordKind,
    Records,
    Selection,
    Tables,
)
from eventplane_aws.tables import DynamoDbTables
from tests.dynamodb import create_table
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.tables import MemoryTables


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    name: str


@dataclass(frozen=True, slots=True)
class Inner:
    share: float
    points: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """Has a field of every kind."""

    home: str
    sk: str = "a"
    colour: Colour = Colour.RED
    inner: Inner | None = None
    groups: frozenset[str] = frozenset()
    counts: dict[str, int] | None = None
    is_on: bool = False
    content: bytes = b""
    due_ms: int | None = None
    revision: int = field(default=0, compare=False)


KIND = RecordKind(
    type=Thing,
    key=("home", "sk"),
    derived={"bucket": lambda each: None if each.due_ms is None else len(each.home)},
)
FULL = Thing(
    home="home-1",
    colour=Colour.BLUE,
    inner=Inner(0.5, (Point(1, "ü"), Point(-2, ""))),
    groups=frozenset({"a", "b"}),
    counts={"x": 1, "y": 0},
    is_on=True,
    content=b"\0\xff",
    due_ms=7,
)


def with_table(client: Any) -> Any:
    create_table(
        client,
        "things",
        "home",
        "sk",
        numbers=("bucket", "due_ms"),
        global_indexes={"due": ("bucket", "due_ms")},
    )
    return client


@pytest.fixture
def dynamodb(aws: None) -> Any:
    return with_table(boto3.client("dynamodb"))


@pytest.fixture(params=["memory", "dynamodb", "histories"])
def tables(request: pytest.FixtureRequest) -> Tables:
    if request.param == "memory":
        return MemoryTables()
    is_moto = request.param == "dynamodb"
    client = request.getfixturevalue("dynamodb") if is_moto else with_table(FakeDynamoDb())
    return DynamoDbTables(client, urandom)


@pytest.fixture
def things(tables: Tables) -> Records[Thing]:
    return Records(tables, "things", KIND)


def test_a_record_is_read_as_it_was_written(things: Records[Thing]) -> None:
    for each in (FULL, Thing(home="home-2")):
        assert things.write(each) == things.read(each.home, "a") == each
    assert things.read("home-3", "a") is None


def test_defaults_are_written() -> None:
    item = {"home": {"S": "h"}, "sk": {"S": "a"}, "colour": {"S": "red"}, "is_on": {"BOOL": False}}
    assert KIND.to_item(Thing(home="h")) == item | {"revision": {"N": "0"}}


def test_only_the_one_who_read_last_writes_or_removes(things: Records[Thing]) -> None:
    first = things.write(FULL)
    assert first is not None
    assert things.write(FULL) is None
    second = things.write(replace(first, is_on=False))
    assert second is not None
    assert things.write(first) is None
    assert not things.remove(first)
    assert things.remove(second)
    assert things.remove(second), "nothing is there: it is removed"
    assert things.write(second) is None, "what was removed is not written over"
    assert things.write(FULL)
    assert things.write(first) is None, "what is there is another one"
    assert not things.remove(first)


def test_a_change_is_made_of_what_is_there(things: Records[Thing]) -> None:
    asked: list[Thing | None] = []

    def step(before: Thing | None) -> Thing:
        asked.append(before)
        if len(asked) == 1:
            things.write(FULL)  # somebody else
        return replace(before or FULL, colour=Colour.RED)

    changed = things.change(step, "home-1", "a")
    assert (changed.colour, len(asked)) == (Colour.RED, 2)
    same = things.change(lambda each: each or FULL, "home-1", "a")
    assert same.revision == changed.revision

    def contested(before: Thing | None) -> Thing:
        things.write(replace(before, due_ms=before.revision))
        return replace(before, colour=Colour.BLUE)

    with pytest.raises(ConflictError, match="things"):
        things.change(contested, "home-1", "a")


def test_records_are_found_by_partition_and_by_index_in_pages(things: Records[Thing]) -> None:
    for home in ("h1", "h2"):
        for number in range(5):
            things.write(Thing(home=home, sk=str(number), due_ms=number if home == "h1" else None))
    assert [each.sk for each in things.of("h1")] == list("01234")
    assert [each.sk for each in things.of("h2")] == list("01234")
    assert len(list(things.all())) == 10
    selection = Selection("bucket", 2, "due_ms", until=3, index="due", is_consistent=False, limit=2)
    found: list[tuple[str, ...]] = []
    while True:
        keys, after = things.keys(selection)
        found += keys
        if after is None:
            break
        selection = replace(selection, after=after)
    assert found == [("h1", each) for each in "0123"]


def test_items_of_before_are_written_once_over(tables: Tables) -> None:
    key = KIND.key_of("home-1", "a")
    tables.put("things", key, {**key, "is_on": {"BOOL": True}, "later": {"S": "x"}}, None)
    things = Records(tables, "things", KIND)
    old = things.read("home-1", "a")
    assert (old, old.revision) == (Thing(home="home-1", is_on=True), UNCOUNTED)
    assert things.write(old) == old
    assert things.write(old) is None


def test_an_item_that_is_no_record_is_named(tables: Tables) -> None:
    things = Records(tables, "things", KIND)
    things.write(FULL)
    key = KIND.key_of("home-2", "a")
    tables.put("things", key, {**key, "colour": {"S": "mauve"}}, None)
    with pytest.raises(RecordError, match="mauve"):
        things.read("home-2", "a")
    foreign: list[str] = []
    assert len(list(things.all(lambda _, error: foreign.append(error.kind)))) == 1
    assert foreign == ["Thing"]


def test_a_faster_write_is_not_ours(dynamodb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    things, put = Records(DynamoDbTables(dynamodb, urandom), "things", KIND), dynamodb.put_item

    def repeated(**request: Any) -> Any:
        monkeypatch.setattr(dynamodb, "put_item", put)
        put(**request)
        things.change(lambda each: replace(each, is_on=False), "home-1", "a")  # type: ignore[type-var]
        return put(**request)

    monkeypatch.setattr(dynamodb, "put_item", repeated)
    assert things.write(FULL) is None


def test_what_aws_refuses_is_raised(dynamodb: Any) -> None:
    with pytest.raises(ClientError, match="ResourceNotFound"):
        Records(DynamoDbTables(dynamodb, urandom), "elsewhere", KIND).write(FULL)
