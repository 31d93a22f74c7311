"""DynamoDB in memory: tables with their indexes, conditional writes, queries and scans by pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from tests.fakes.client import ACCOUNT, REGION, FakeClient
from tests.fakes.expressions import ExpressionError, Expressions, Item, sort_value

_MAX_KEYS = 100
_MAX_PAGE_BYTES = 1024 * 1024
_CONFLICT = "ConditionalCheckFailedException"
_INVALID = "ValidationException"

Key = tuple[Any, ...]


@dataclass(frozen=True)
class FakeIndex:
    """What a table or an index is ordered by: its partition key, and its sort key if there is one."""

    names: tuple[str, ...]
    keys_only: bool = False


@dataclass
class FakeTable:
    """One table; `items` by their primary keys."""

    name: str
    primary: FakeIndex
    types: Mapping[str, str]
    indexes: dict[str, FakeIndex] = field(default_factory=dict)
    items: dict[Key, Item] = field(default_factory=dict)
    is_protected: bool = False

    def key(self, item: Mapping[str, Any]) -> Key:
        return tuple(sort_value(item[name]) for name in self.primary.names)

    def key_item(self, item: Mapping[str, Any], index: FakeIndex) -> Item:
        """The attributes of `item` by which a page of `index` is continued."""
        return {name: item[name] for name in (*index.names, *self.primary.names)}


class FakeDynamoDb(FakeClient):
    """A boto3 client of DynamoDB. All reads are consistent, those of global indexes too."""

    service = "dynamodb"

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, FakeTable] = {}

    # For tests.

    def items(self, table: str) -> list[Item]:
        """All items of a table, by their keys."""
        found = self.tables[table].items
        return [deepcopy(found[key]) for key in sorted(found)]

    # Tables.

    def create_table(
        self,
        *,
        TableName: str,
        KeySchema: list[dict[str, str]],
        AttributeDefinitions: list[dict[str, str]],
        GlobalSecondaryIndexes: Iterable[dict[str, Any]] = (),
        LocalSecondaryIndexes: Iterable[dict[str, Any]] = (),
        **_: Any,
    ) -> Any:
        indexes = {
            each["IndexName"]: FakeIndex(
                _names(each["KeySchema"]), each["Projection"]["ProjectionType"] == "KEYS_ONLY"
            )
            for each in (*GlobalSecondaryIndexes, *LocalSecondaryIndexes)
        }
        types = {each["AttributeName"]: each["AttributeType"] for each in AttributeDefinitions}
        table = FakeTable(TableName, FakeIndex(_names(KeySchema)), types, indexes)
        used = {name for index in (table.primary, *indexes.values()) for name in index.names}
        if used != types.keys():
            raise self._invalid("Number of attributes in KeySchema does not match AttributeDefinitions")
        if TableName in self.tables:
            raise self.refusal("ResourceInUseException", f"Table already exists: {TableName}", "CreateTable")
        self.tables[TableName] = table
        return self.describe_table(TableName=TableName)

    def delete_table(self, *, TableName: str) -> Any:
        self._table(TableName, "DeleteTable")
        del self.tables[TableName]
        return {}

    def describe_table(self, *, TableName: str) -> Any:
        table = self._table(TableName, "DescribeTable")
        arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{TableName}"
        described = {"TableName": TableName, "TableArn": arn, "ItemCount": len(table.items)}
        return {"Table": {**described, "DeletionProtectionEnabled": table.is_protected}}

    def update_table(self, *, TableName: str, DeletionProtectionEnabled: bool) -> Any:
        self._table(TableName, "UpdateTable").is_protected = DeletionProtectionEnabled
        return {"TableDescription": self.describe_table(TableName=TableName)["Table"]}

    # Items.

    def get_item(self, *, TableName: str, Key: Item, **_: Any) -> Any:
        found = self._found(self._table(TableName, "GetItem"), Key)
        return {"Item": deepcopy(found)} if found else {}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any], **_: Any) -> Any:
        if sum(len(each["Keys"]) for each in RequestItems.values()) > _MAX_KEYS:
            raise self._invalid("Too many items requested for the BatchGetItem call")
        answer: dict[str, list[Item]] = {}
        for name, wanted in RequestItems.items():
            table = self._table(name, "BatchGetItem")
            if len({table.key(key) for key in wanted["Keys"]}) < len(wanted["Keys"]):
                raise self._invalid("Provided list of item keys contains duplicates")
            found = (self._found(table, key) for key in wanted["Keys"])
            answer[name] = [deepcopy(each) for each in found if each]
        return {"Responses": answer, "UnprocessedKeys": {}}

    def put_item(self, *, TableName: str, Item: Item, **request: Any) -> Any:
        table = self._table(TableName, "PutItem")
        self._check_types(table, Item)
        self._meet(request, self._found(table, Item), "PutItem")
        table.items[table.key(Item)] = deepcopy(Item)
        return {}

    def delete_item(self, *, TableName: str, Key: Item, **request: Any) -> Any:
        table = self._table(TableName, "DeleteItem")
        self._meet(request, self._found(table, Key), "DeleteItem")
        table.items.pop(table.key(Key), None)
        return {}

    def update_item(self, *, TableName: str, Key: Item, **request: Any) -> Any:
        table = self._table(TableName, "UpdateItem")
        before = self._found(table, Key)
        update = self._meet(
            request, before, "UpdateItem", lambda each: each.update(request["UpdateExpression"])
        )
        item = deepcopy(before or Key)
        update(item)
        self._check_types(table, item)
        table.items[table.key(Key)] = item
        return {"Attributes": deepcopy(item)} if request.get("ReturnValues") == "ALL_NEW" else {}

    # Many items.

    def query(self, *, TableName: str, KeyConditionExpression: str, **request: Any) -> Any:
        table = self._table(TableName, "Query")
        index = table.indexes[request["IndexName"]] if "IndexName" in request else table.primary
        return self._page(table, index, request, KeyConditionExpression)

    def scan(self, *, TableName: str, **request: Any) -> Any:
        table = self._table(TableName, "Scan")
        return self._page(table, table.primary, request, None)

    def _page(
        self, table: FakeTable, index: FakeIndex, request: Mapping[str, Any], condition: str | None
    ) -> dict[str, Any]:
        try:
            expressions = Expressions(request)
            is_wanted = expressions.condition(condition) if condition else lambda _: True
            filters = request.get("FilterExpression")
            passes = expressions.condition(filters) if filters else lambda _: True
            projection = request.get("ProjectionExpression")
            shown = expressions.projection(projection) if projection else None
            expressions.check_used()
        except ExpressionError as error:
            raise self._invalid(str(error)) from None

        def place(item: Mapping[str, Any]) -> Key:
            sort = index.names[1:] if condition else index.names
            return (*(sort_value(item[name]) for name in sort), *table.key(item))

        found = sorted(
            (item for item in table.items.values() if index.names[0] in item and is_wanted(item)),
            key=place,
            reverse=not request.get("ScanIndexForward", True),
        )
        if start := request.get("ExclusiveStartKey"):
            found = [item for item in found if place(item) > place(start)]
        page = found[: min(request.get("Limit", len(found)), _fitting(found))]
        if index.keys_only:
            shown = frozenset((*index.names, *table.primary.names)) & (shown or frozenset(table.types))
        items = [
            {name: deepcopy(value) for name, value in item.items() if shown is None or name in shown}
            for item in page
            if passes(item)
        ]
        answer: dict[str, Any] = {"Items": items, "Count": len(items), "ScannedCount": len(page)}
        if len(page) < len(found):
            answer["LastEvaluatedKey"] = table.key_item(page[-1], index)
        return answer

    # Checks.

    def _table(self, name: str, operation: str) -> FakeTable:
        try:
            return self.tables[name]
        except KeyError:
            raise self.refusal("ResourceNotFoundException", f"Table: {name} not found", operation) from None

    def _found(self, table: FakeTable, key: Mapping[str, Any]) -> Item | None:
        for name in table.primary.names:
            if name not in key:
                raise self._invalid(f"Missing the key {name} in the item")
        return table.items.get(table.key(key))

    def _check_types(self, table: FakeTable, item: Mapping[str, Any]) -> None:
        for name, kind in table.types.items():
            if name in item and item[name].keys() != {kind}:
                raise self._invalid(f"Type mismatch for key {name} expected: {kind}")
            if item.get(name) == {"S": ""}:
                raise self._invalid(f"The attribute {name} is a key and cannot be empty")

    def _meet(
        self,
        request: Mapping[str, Any],
        found: Item | None,
        operation: str,
        parse: Callable[[Expressions], Any] = lambda _: None,
    ) -> Any:
        """Raise unless `found` meets the request's condition; what `parse` makes of its expressions."""
        try:
            expressions = Expressions(request)
            parsed = parse(expressions)
            condition = request.get("ConditionExpression")
            is_met = expressions.condition(condition)(found or {}) if condition else True
            expressions.check_used()
        except ExpressionError as error:
            raise self._invalid(str(error)) from None
        if not is_met:
            is_returned = found and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            more = {"Item": deepcopy(found)} if is_returned else {}
            raise self.refusal(_CONFLICT, "The conditional request failed", operation, **more)
        return parsed

    def _invalid(self, problem: str) -> ClientError:
        return self.refusal(_INVALID, problem, "Operation")


def _fitting(items: list[Item]) -> int:
    """How many of `items` fit a page."""
    size = 0
    for at, item in enumerate(items):
        size += len(str(item))
        if size > _MAX_PAGE_BYTES:
            return at
    return len(items)


def _names(schema: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    by_kind = {each["KeyType"]: each["AttributeName"] for each in schema}
    return tuple(by_kind[kind] for kind in ("HASH", "RANGE") if kind in by_kind)
