"""The tables of records in DynamoDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.records import NEW, REVISION, UNCOUNTED, Condition, Item, Page, Selection, to_attribute
from eventplane.values import RandomBytes
from eventplane_aws.rules import DYNAMODB_GET

WRITER: Final = "writer"
"""The attribute that names the write: an answer that the condition fails may be about our own write, whose
first answer was lost."""

CONFLICT: Final = "ConditionalCheckFailedException"
"""The error code of a write whose condition does not hold (DynamoDB API)."""

_CONDITIONS: Final = {
    NEW: "attribute_not_exists(#k)",
    UNCOUNTED: "attribute_exists(#k) AND attribute_not_exists(#r)",
}
_SAME: Final = "attribute_exists(#k) AND #r = :r"

_ROUNDS: Final = 3
"""Most calls for one group of keys: DynamoDB may leave some out."""


class DynamoDbTables:
    """`Tables` through a boto3 client of DynamoDB. What AWS refuses is raised as botocore raises it.

    `random_bytes` makes the name of each write, and the first revision of each record.
    """

    def __init__(self, client: Any, random_bytes: RandomBytes) -> None:
        self._client = client
        self._random_bytes = random_bytes

    def first(self) -> int:
        return 1 + (int.from_bytes(self._random_bytes(4)) >> 1)

    def get(self, table: str, key: Item) -> Item | None:
        item: Item | None = self._client.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return item

    def get_many(
        self, table: str, keys: Sequence[Item], *, is_consistent: bool
    ) -> tuple[list[Item], list[Item]]:
        found: list[Item] = []
        left: list[Item] = []
        for at in range(0, len(keys), DYNAMODB_GET.most):
            some = list(keys[at : at + DYNAMODB_GET.most])
            for _ in range(_ROUNDS):
                request = {"Keys": some, "ConsistentRead": is_consistent}
                answer = self._client.batch_get_item(RequestItems={table: request})
                found += answer["Responses"].get(table, [])
                some = (answer.get("UnprocessedKeys") or {table: {"Keys": []}})[table]["Keys"]
                if not some:
                    break
            left += some
        return found, left

    def put(self, table: str, key: Item, item: Item, condition: Condition | None) -> bool:
        token = to_attribute(self._random_bytes(8).hex())
        written = {**item, WRITER: token}
        if not (conflict := self._write(self._client.put_item, table, condition, Item=written)):
            return True
        # An emulator may leave the item out of its answer.
        there = conflict.response.get("Item") or self.get(table, key) or {}
        return there.get(WRITER) == token

    def delete(self, table: str, key: Item, condition: Condition | None) -> bool:
        if not (conflict := self._write(self._client.delete_item, table, condition, Key=key)):
            return True
        return not (conflict.response.get("Item") or self.get(table, key))

    def page(self, table: str, selection: Selection) -> Page:
        given = {"IndexName": selection.index, "Limit": selection.limit, "ExclusiveStartKey": selection.after}
        request = {"TableName": table, "ConsistentRead": selection.is_consistent}
        request |= {name: value for name, value in given.items() if value is not None}
        if selection.partition is None:
            answer = self._client.scan(**request)
        else:
            answer = self._client.query(**request, **_condition_of(selection))
        return Page(tuple(answer["Items"]), answer.get("LastEvaluatedKey"))

    def _write(
        self, operation: Callable[..., Any], table: str, condition: Condition | None, **what: Any
    ) -> ClientError | None:
        """Do one write; return the error if its condition does not hold."""
        try:
            operation(TableName=table, **what, **_expressions(condition))
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != CONFLICT:
                raise
            return error
        return None


def _condition_of(selection: Selection) -> dict[str, Any]:
    names, values = {"#p": selection.partition}, {":p": to_attribute(selection.of)}
    terms = "#p = :p"
    if selection.until is not None:
        terms += " AND #s <= :u" if selection.since is None else " AND #s BETWEEN :f AND :u"
        names["#s"] = selection.sort
        values |= {":u": to_attribute(selection.until)}
        values |= {} if selection.since is None else {":f": to_attribute(selection.since)}
    return {
        "KeyConditionExpression": terms,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }


def _expressions(condition: Condition | None) -> dict[str, Any]:
    if condition is None:
        return {}
    found: dict[str, Any] = {
        "ConditionExpression": _CONDITIONS.get(condition.revision, _SAME),
        "ExpressionAttributeNames": {"#k": condition.key},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if condition.revision != NEW:
        found["ExpressionAttributeNames"]["#r"] = REVISION
    if condition.revision > NEW:
        found["ExpressionAttributeValues"] = {":r": to_attribute(condition.revision)}
    return found
