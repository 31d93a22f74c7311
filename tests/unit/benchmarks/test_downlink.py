"""How the benchmark of the way down counts, where the answer is known."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.cloud.functions import Invocations
from benchmarks.cost.dynamodb import Metering, item_bytes
from benchmarks.cost.prices import dollars
from benchmarks.downlink.idle import items
from benchmarks.downlink.meter import DownlinkMeter
from benchmarks.downlink.updates import Update
from benchmarks.downlink.usage import PRODUCTION, RECONCILER, used
from contract import load_contract
from eventplane.downlink.addressing import addressed
from eventplane.downlink.table import INDEX_KEY, from_item
from eventplane.envelope import parse_event

REFUSED = {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}


def put(due: int | None, text: str = "") -> dict[str, Any]:
    item: dict[str, Any] = {"thing": {"S": "home-1"}, "sk": {"S": "s#a/b/c"}, "text": {"S": text}}
    return {"Item": item | ({"due_at_ms": {"N": str(due)}} if due else {})}


def writes(metering: Metering, request: Mapping[str, Any], answer: Mapping[str, Any] | None = None) -> float:
    return metering.units("PutItem", request, answer or {})["dynamodb_write"]


def test_an_item_is_as_large_as_its_names_and_values() -> None:
    assert item_bytes({"ab": {"S": "äb"}, "n": {"N": "1234"}, "f": {"BOOL": True}}) == 2 + 3 + 1 + 3 + 1 + 1
    assert item_bytes({"m": {"M": {"k": {"S": "v"}}}, "l": {"L": [{"S": "xy"}]}}) == 1 + 3 + 1 + 2 + 1 + 3 + 3


def test_a_write_costs_two_indexes_only_where_the_time_of_the_next_look_changes() -> None:
    metering = Metering()
    assert [writes(metering, put(due)) for due in (None, 5, 5, 6, None)] == [1, 3, 1, 5, 3]
    assert writes(metering, put(None, "x" * 1_024)) == 2


def test_a_refused_write_is_billed_and_changes_no_index() -> None:
    metering = Metering()
    assert writes(metering, put(5), REFUSED) == 1
    assert writes(metering, put(5)) == 3


def test_a_removed_item_leaves_its_indexes() -> None:
    metering = Metering()
    writes(metering, put(5))
    key = {name: put(None)["Item"][name] for name in ("thing", "sk")}
    assert metering.units("DeleteItem", {"Key": key}, {})["dynamodb_write"] == 3


def test_reads_cost_half_where_they_may_be_a_little_old() -> None:
    metering, nothing = Metering(), {"Items": []}
    assert metering.units("Query", {}, nothing) == {"dynamodb_read": 0.5}
    assert metering.units("Query", {"ConsistentRead": True}, nothing) == {"dynamodb_read": 1}
    large = {"Item": {"text": {"S": "x" * 4_096}}}
    assert metering.units("GetItem", {"ConsistentRead": True}, large) == {"dynamodb_read": 2}
    three = {"RequestItems": {"presence": {"Keys": [{}, {}, {}]}}}
    assert metering.units("BatchGetItem", three, {}) == {"dynamodb_read": 1.5}


def test_what_has_no_price_is_not_counted_as_nothing() -> None:
    with pytest.raises(ValueError, match="TransactWriteItems has no price"):
        Metering().units("TransactWriteItems", {}, {})


def test_an_acknowledgement_costs_its_way_up_and_pollers_take_ten_at_a_time() -> None:
    batches = [("router-device", 2), ("downlink-desired", 10)]
    invoked = {RECONCILER: Invocations(1, 2_000)}
    found = used(Counter(iot_message=2), Counter(POST=1), 3, batches, invoked)
    gb_s = 2 * PRODUCTION.downlink.reconciler.memory_mib / 1_024
    assert found.units == {
        "iot_message": 2,
        "iot_rule": 2,
        "iot_action": 4,
        "sqs_request": 3 + 4 + 2 * 2,
        "lambda_request": 1,
        "lambda_gb_s": gb_s,
    }
    assert found.requests == {"Publish": 1, "by the sender": 3, "by the rule": 4, "by pollers": 4}
    assert dollars(found.units) > 0


def test_an_update_is_one_that_the_downlink_takes() -> None:
    update = Update("home-1", "threshold/bench/1", 7)
    event = parse_event(update.text())
    taken = addressed(event, load_contract().downlink(event.type), 0, 60)
    assert (taken.target.thing, taken.key, taken.message.version) == ("home-1", update.key, 7)


def test_an_update_is_stored_when_its_acknowledgement_was_written_and_not_when_that_was_refused() -> None:
    update = Update("idle-0", "threshold/bench/0", 1)
    request = json.dumps({"Item": next(items(0, 1))}).encode()
    with DownlinkMeter("http://127.0.0.1:1") as meter:
        meter._count("DynamoDB_20120810.PutItem", request, json.dumps(REFUSED).encode())
        assert meter.stored == {}
        meter._count("DynamoDB_20120810.PutItem", request, b"{}")
        meter._count("POST", b"", b"")
        assert list(meter.stored) == [update.stored]
        assert meter.transmissions == 1
        assert meter.take() == {"dynamodb_write": 2, "iot_message": 2}


def test_idle_keys_are_in_no_index() -> None:
    found = list(items(5, 25))
    assert len({(each["thing"]["S"], each["sk"]["S"]) for each in found}) == 20
    assert not any(INDEX_KEY in each for each in found)
    assert all(from_item(each).acknowledged_version == 1 for each in found)
