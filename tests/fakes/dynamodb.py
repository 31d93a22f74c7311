"""DynamoDB in memory: the requests that `DynamoDbTables` makes, and those about whole tables.

`tests/unit/test_records.py` runs the same cases over this and moto, which is slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.records import NEW, UNCOUNTED, Condition, Item, Selection, value_of
from eventplane_aws.rules import DYNAMODB_PARTITION_KEY, DYNAMODB_SORT_KEY
from eventplane_aws.tables import CONFLICT
from lab.aws_requests import problem, value_bytes
from tests.fakes.client import FakeClient
from tests.fakes.tables import MemoryTables

_PLACEHOLDER: Final = re.compile(r"[#:]\w+")

_REVISIONS: Final[Mapping[str, Callable[[Item], int]]] = {
    "attribute_not_exists(#k)": lambda _: NEW,
    "attribute_exists(#k) AND attribute_not_exists(#r)": lambda _: UNCOUNTED,
    "attribute_exists(#k) AND #r = :r": lambda values: int(values[":r"]["N"]),
}
"""The revision that a condition asks for, from the values of its placeholders."""


class FakeDynamoDb(FakeClient):
    """A boto3 client of DynamoDB. All reads are consistent, those of global indexes too."""

    service = "dynamodb"

    def __init__(self) -> None:
        super().__init__()
        self._tables = MemoryTables()
        self._keys: dict[str, dict[str | None, list[str]]] = {}
        """The keys of each table, and of its indexes by their names."""
        self._global = set[str]()
        self._described: dict[str, dict[str, Any]] = {}

    def check(self, operation: str, request: dict[str, Any]) -> None:
        """Refuse also placeholders that are not used, or not given: moto takes some, DynamoDB none."""
        super().check(operation, request)
        given = {*request.get("ExpressionAttributeNames", ()), *request.get("ExpressionAttributeValues", ())}
        texts = (str(text) for name, text in request.items() if name.endswith("Expression"))
        if given != set(_PLACEHOLDER.findall(" ".join(texts))):
            raise self.refusal("ValidationException", f"not all are used, or given: {given}", operation)

    def items(self, table: str) -> list[Item]:
        """Return all items of a table, by their keys."""
        return sorted(self.peek(table), key=lambda item: [*map(value_of, self._key(table, item).values())])

    def peek(self, table: str) -> tuple[Item, ...]:
        """Return all items of a table."""
        return self._tables.page(table, Selection()).items

    def strip(self, table: str, names: Collection[str]) -> None:
        """Take the attributes called `names` from all items of a table."""
        for item in self.peek(table):
            left = {name: each for name, each in item.items() if name not in names}
            self._tables.put(table, self._key(table, item), left, None)

    def create_table(self, *, TableName: str, KeySchema: list[dict[str, str]], **more: Any) -> Any:
        indexes = chain(more.get("GlobalSecondaryIndexes", ()), more.get("LocalSecondaryIndexes", ()))
        schemas = {None: KeySchema} | {each["IndexName"]: each["KeySchema"] for each in indexes}
        self._keys[TableName] = {
            name: [each["AttributeName"] for each in schema] for name, schema in schemas.items()
        }
        self._global |= {each["IndexName"] for each in more.get("GlobalSecondaryIndexes", ())}
        self._described[TableName] = {"TableStatus": "ACTIVE", "KeySchema": KeySchema}
        return {}

    def update_table(self, *, TableName: str, **changes: Any) -> Any:
        self._schema(TableName)
        self._described[TableName] |= changes
        return {}

    def describe_table(self, *, TableName: str) -> Any:
        self._schema(TableName)
        return {"Table": self._described[TableName]}

    def list_tables(self) -> Any:
        return {"TableNames": sorted(self._keys)}

    def delete_table(self, *, TableName: str) -> Any:
        self._schema(TableName)
        for item in self.peek(TableName):
            self._tables.delete(TableName, self._key(TableName, item), None)
        del self._keys[TableName]
        return {}

    def restore_table_to_point_in_time(self, *, SourceTableName: str, TargetTableName: str, **_: Any) -> Any:
        """Copy the table as it is now."""
        if TargetTableName in self._keys:
            raise self.refusal("TableAlreadyExistsException", TargetTableName, "RestoreTableToPointInTime")
        self._keys[TargetTableName] = self._schema(SourceTableName)
        self._described[TargetTableName] = self._described[SourceTableName]
        for item in self.peek(SourceTableName):
            self._tables.put(TargetTableName, self._key(SourceTableName, item), item, None)
        return {}

    def get_item(self, *, TableName: str, Key: Item, **_: Any) -> Any:
        found = self._tables.get(TableName, self._key(TableName, Key))
        return {"Item": found} if found else {}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> Any:
        found = {
            table: [self._tables.get(table, self._key(table, key)) for key in request["Keys"]]
            for table, request in RequestItems.items()
        }
        return {"Responses": {table: [*filter(None, items)] for table, items in found.items()}}

    def put_item(self, *, TableName: str, Item: Item, **condition: Any) -> Any:
        key = self._key(TableName, Item)
        for value, rule in zip(key.values(), (DYNAMODB_PARTITION_KEY, DYNAMODB_SORT_KEY), strict=False):
            if value_bytes(value) > rule.most:
                raise self.refusal(rule.code, problem(rule), "PutItem")
        if not self._tables.put(TableName, key, Item, _condition(condition)):
            raise self._conflict(TableName, key, "PutItem")
        return {}

    def delete_item(self, *, TableName: str, Key: Item, **condition: Any) -> Any:
        wanted, key = _condition(condition), self._key(TableName, Key)
        if wanted is not None and not wanted.holds(self._tables.get(TableName, key)):
            raise self._conflict(TableName, key, "DeleteItem")
        self._tables.delete(TableName, key, None)
        return {}

    def scan(self, *, TableName: str, **request: Any) -> Any:
        return self._page(TableName, Selection(), request)

    def query(self, *, TableName: str, **request: Any) -> Any:
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        until, since = (value_of(values[each]) if each in values else None for each in (":u", ":f"))
        keys, index = self._schema(TableName), request.get("IndexName")
        if index in self._global and request.get("ConsistentRead"):
            told = "Consistent reads are not supported on global secondary indexes"
            raise self.refusal("ValidationException", told, "Query")
        sort = next(iter(keys[index][1:]), None)
        selection = Selection(names["#p"], value_of(values[":p"]), sort, until, since=since)  # type: ignore[arg-type]
        found = self._page(TableName, selection, request)
        if index is not None:  # it has the keys only
            shown = {*keys[None], *keys[index]}
            found["Items"] = [{name: each[name] for name in each if name in shown} for each in found["Items"]]
        return found

    def _page(self, table: str, selection: Selection, request: Mapping[str, Any]) -> Any:
        self._schema(table)
        limit, after = request.get("Limit"), request.get("ExclusiveStartKey")
        page = self._tables.page(table, replace(selection, limit=limit, after=after))
        items = {"Items": list(page.items), "Count": len(page.items)}
        return items | ({"LastEvaluatedKey": page.after} if page.after else {})

    def _schema(self, table: str) -> dict[str | None, list[str]]:
        if table not in self._keys:
            raise self.refusal("ResourceNotFoundException", f"there is no table {table}", "of a table")
        return self._keys[table]

    def _key(self, table: str, item: Item) -> Item:
        return {name: item[name] for name in self._schema(table)[None]}

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
