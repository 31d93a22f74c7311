"""How the benchmark of the way down counts, where the answer is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.cost.meter import DynamoDbUnits, item_bytes

REFUSED = {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}


def put(due: int | None, text: str = "") -> dict[str, Any]:
    item: dict[str, Any] = {"thing": {"S": "home-1"}, "sk": {"S": "s#a/b/c"}, "text": {"S": text}}
    return {"Item": item | ({"due_at_ms": {"N": str(due)}} if due else {})}


def writes(
    billing: DynamoDbUnits, request: Mapping[str, Any], answer: Mapping[str, Any] | None = None
) -> float:
    return billing.units("PutItem", request, answer or {})["dynamodb_write"]


def test_an_item_is_as_large_as_its_names_and_values() -> None:
    assert item_bytes({"ab": {"S": "äb"}, "n": {"N": "1234"}, "f": {"BOOL": True}}) == 2 + 3 + 1 + 3 + 1 + 1
    assert item_bytes({"m": {"M": {"k": {"S": "v"}}}, "l": {"L": [{"S": "xy"}]}}) == 1 + 3 + 1 + 2 + 1 + 3 + 3


def test_a_write_costs_two_indexes_only_where_the_time_of_the_next_look_changes() -> None:
    billing = DynamoDbUnits()
    assert [writes(billing, put(due)) for due in (None, 5, 5, 6, None)] == [1, 3, 1, 5, 3]
    assert writes(billing, put(None, "x" * 1_024)) == 2


def test_a_refused_write_is_billed_and_changes_no_index() -> None:
    billing = DynamoDbUnits()
    assert writes(billing, put(5), REFUSED) == 1
    assert writes(billing, put(5)) == 3


def test_a_removed_item_leaves_its_indexes() -> None:
    billing = DynamoDbUnits()
    writes(billing, put(5))
    key = {name: put(None)["Item"][name] for name in ("thing", "sk")}
    assert billing.units("DeleteItem", {"Key": key}, {})["dynamodb_write"] == 3


def test_reads_cost_half_where_they_may_be_a_little_old() -> None:
    billing, nothing = DynamoDbUnits(), {"Items": []}
    assert billing.units("Query", {}, nothing) == {"dynamodb_read": 0.5}
    assert billing.units("Query", {"ConsistentRead": True}, nothing) == {"dynamodb_read": 1}
    large = {"Item": {"text": {"S": "x" * 4_096}}}
    assert billing.units("GetItem", {"ConsistentRead": True}, large) == {"dynamodb_read": 2}
    three = {"RequestItems": {"presence": {"Keys": [{}, {}, {}]}}}
    assert billing.units("BatchGetItem", three, {}) == {"dynamodb_read": 1.5}


def test_what_has_no_price_is_not_counted_as_nothing() -> None:
    with pytest.raises(ValueError, match="TransactWriteItems has no price"):
        DynamoDbUnits().units("TransactWriteItems", {}, {})
