"""DynamoDB of a history: the requests that `DynamoDbTables` makes, over records in memory.

`tests/unit/test_records.py` runs the same cases over this and moto, which would take a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.records import NEW, UNCOUNTED, Condition, Item, MemoryTables, Selection, value_of
from eventplane_aws.rules import DYNAMODB_PARTITION_KEY, DYNAMODB_SORT_KEY
from eventplane_aws.tables import CONFLICT
from local.aws_requests import problem, value_bytes
from tests.fakes.client import FakeClient

_REVISIONS: Final[Mapping[str, Callable[[Item], int]]] = {
    "attribute_not_exists(#k)": lambda _: NEW,
    "attribute_exists(#k) AND attribute_not_exists(#r)": lambda _: UNCOUNTED,
    "attribute_exists(#k) AND #r = :r": lambda values: int(values[":r"]["N"]),
}
"""The revision that a condition asks for, from the values of its placeholders."""


class TablesClient(FakeClient):
    """A boto3 client of DynamoDB for the records of a history."""

    service = "dynamodb"

    def __init__(self) -> None:
        super().__init__()
        self.checks = False  # slow; the unit tests check the requests
        self._tables = MemoryTables()
        self._keys: dict[str, dict[str | None, list[str]]] = {}
        """The keys of each table, and of its indexes by their names."""

    def peek(self, table: str) -> tuple[Item, ...]:
        """Return all items of a table."""
        return self._tables.page(table, Selection()).items

    def strip(self, table: str, names: Collection[str]) -> None:
        """Take the attributes called `names` from all items of a table."""
        for item in self.peek(table):
            key = {name: item[name] for name in self._keys[table][None]}
            left = {name: each for name, each in item.items() if name not in names}
            self._tables.put(table, key, left, None)

    def create_table(self, *, TableName: str, KeySchema: list[dict[str, str]], **more: Any) -> Any:
        indexes = chain(more.get("GlobalSecondaryIndexes", ()), more.get("LocalSecondaryIndexes", ()))
        schemas = {None: KeySchema} | {each["IndexName"]: each["KeySchema"] for each in indexes}
        self._keys[TableName] = {
            name: [each["AttributeName"] for each in schema] for name, schema in schemas.items()
        }
        return {}

    def get_item(self, *, TableName: str, Key: Item, **_: Any) -> Any:
        found = self._tables.get(TableName, Key)
        return {"Item": found} if found else {}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> Any:
        found = {
            table: self._tables.get_many(table, each["Keys"], is_consistent=True)[0]
            for table, each in RequestItems.items()
        }
        return {"Responses": found}

    def put_item(self, *, TableName: str, Item: Item, **condition: Any) -> Any:
        key = {name: Item[name] for name in self._keys[TableName][None]}
        for value, rule in zip(key.values(), (DYNAMODB_PARTITION_KEY, DYNAMODB_SORT_KEY), strict=False):
            if value_bytes(value) > rule.most:
                raise self.refusal(rule.code, problem(rule), "PutItem")
        if not self._tables.put(TableName, key, Item, _condition(condition)):
            raise self._conflict(TableName, key, "PutItem")
        return {}

    def delete_item(self, *, TableName: str, Key: Item, **condition: Any) -> Any:
        wanted, found = _condition(condition), self._tables.get(TableName, Key)
        if wanted is not None and not wanted.holds(found):
            raise self._conflict(TableName, Key, "DeleteItem")
        self._tables.delete(TableName, Key, None)
        return {}

    def scan(self, *, TableName: str, **request: Any) -> Any:
        return self._page(TableName, Selection(), request)

    def query(self, *, TableName: str, **request: Any) -> Any:
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        until, since = (value_of(values[each]) if each in values else None for each in (":u", ":f"))
        keys, index = self._keys[TableName], request.get("IndexName")
        sort = next(iter(keys[index][1:]), None)
        selection = Selection(names["#p"], value_of(values[":p"]), sort, until, since=since)  # type: ignore[arg-type]
        found = self._page(TableName, selection, request)
        if index is not None:  # it has the keys only
            shown = {*keys[None], *keys[index]}
            found["Items"] = [{name: each[name] for name in each if name in shown} for each in found["Items"]]
        return found

    def _page(self, table: str, selection: Selection, request: Mapping[str, Any]) -> Any:
        limit, after = request.get("Limit"), request.get("ExclusiveStartKey")
        page = self._tables.page(table, replace(selection, limit=limit, after=after))
        return {"Items": list(page.items), **({"LastEvaluatedKey": page.after} if page.after else {})}

    def _conflict(self, table: str, key: Item, operation: str) -> ClientError:
        found = self._tables.get(table, key)
        return self.refusal(
            CONFLICT, "The conditional request failed", operation, **({"Item": found} if found else {})
        )


def _condition(request: Mapping[str, Any]) -> Condition | None:
    if "ConditionExpression" not in request:
        return None
    revision = _REVISIONS[request["ConditionExpression"]](request.get("ExpressionAttributeValues", {}))
    return Condition(revision, request["ExpressionAttributeNames"]["#k"])
