"""The one store of records, in memory, in DynamoDB (moto) and in histories; lost answers; items of 0.3.0."""

import base64
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from os import urandom
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError

from eventplane.contract.publication import CONTRACT, HEAD
from eventplane.contract.subscription_table import SUBSCRIPTION
from eventplane.device_record import REGISTRY
from eventplane.downlink.table import DESIRED
from eventplane.interest.table import ANNOUNCEMENT, PUBLISHED
from eventplane.presence import PRESENCE
from eventplane.records import (
    UNCOUNTED,
    ConflictError,
    Item,
    RecordError,
    RecordKind,
    Records,
    Selection,
    Tables,
)
from eventplane_aws.tables import WRITER, DynamoDbTables
from eventplane_client.dynamodb_duplicates import CLAIM, EPOCH, POSITION
from lab.histories.story import OLD
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


KINDS: dict[str, RecordKind[Any]] = {
    "claims": CLAIM,
    "contracts": CONTRACT,
    "desired": DESIRED,
    "epochs": EPOCH,
    "fleet": REGISTRY,
    "heads": HEAD,
    "interest": ANNOUNCEMENT,
    "positions": POSITION,
    "presence": PRESENCE,
    "published": PUBLISHED,
    "subscriptions": SUBSCRIPTION,
}


def _binary(members: dict[str, Any]) -> Any:
    return base64.b64decode(members["base64"]) if "base64" in members else members


ITEMS = json.loads(Path(__file__).with_name("items-0.3.0.json").read_text(), object_hook=_binary)


@pytest.mark.parametrize("name", KINDS)
def test_an_item_is_read_as_a_record_and_written_over_once(name: str) -> None:
    kind = KINDS[name]
    for item in ITEMS[name]:
        tables, key = MemoryTables(), kind.key_in(item["then"])
        tables.put("t", key, item["then"], None)
        store: Records[Any] = Records(tables, "t", kind)
        names = [each["S"] for each in key.values()]
        found = store.read(*names)
        assert kind.to_item(found) == item["now"]
        # 0.3.0 runs beside this version during a deployment by shares, and may require all that it wrote.
        assert _types(item["now"]).items() >= _types(item["then"]).items()
        assert store.write(found) == store.read(*names)
        assert store.write(found) is None


@pytest.mark.parametrize("table", OLD)
def test_histories_take_from_items_only_what_0_3_0_did_not_write(table: str) -> None:
    unknown = {name for each in ITEMS[table] for name in each["now"].keys() - each["then"].keys()}
    assert {*OLD[table]} <= unknown | {WRITER}


def _types(item: Item) -> dict[str, str]:
    return {name: type for name, value in item.items() for type in value}


def test_an_item_under_a_foreign_sort_key_is_no_desired_state() -> None:
    with pytest.raises(RecordError):
        DESIRED.from_item({"thing": {"S": "home-1"}, "sk": {"S": "other"}})
