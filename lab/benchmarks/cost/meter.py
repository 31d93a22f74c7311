"""Stands between clients of AWS and the local cloud, passes all on unchanged, and counts what is billed."""

import json
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from eventplane.downlink.table import INDEX_SORT_KEY, PARTITION_KEY, SORT_KEY
from eventplane_aws.prices import SQS_BYTES, Units, chunks
from lab.aws_requests import item_bytes
from lab.proxy import CallProxy, ProxyAnswer, ProxyCall

DYNAMODB: Final = "DynamoDB_20120810."
"""What the name of an action of DynamoDB begins with."""

PUBLISH: Final = "POST"
"""A publish over IoT Core's HTTP API: no other API that these functions call is a POST without target."""

_KB: Final = 1024
_READ: Final = 4 * _KB
_INDEXES: Final = 2
"""Of the table of desired states, both by `due_at_ms` and with the keys only: a write unit each."""

Item = Mapping[str, Mapping[str, Any]]


class DynamoDbUnits:
    """Units of one call after the other; it remembers which items are in the indexes.

    One thread at a time.
    """

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], str] = {}

    def units(self, operation: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> Units:
        """Units of a call. Raises ValueError for an operation that is not known here."""
        units = Units()
        match operation:
            case "PutItem":
                units["dynamodb_write"] = chunks(item_bytes(request["Item"]), _KB)
                if not _is_refused(answer):
                    units["dynamodb_write"] += self._index_writes(request["Item"])
            case "DeleteItem":
                units["dynamodb_write"] = 1
                if not _is_refused(answer):
                    units["dynamodb_write"] += self._index_writes(request["Key"])
            case "GetItem":
                read = chunks(item_bytes(answer.get("Item", {})), _READ)
                units["dynamodb_read"] = _read(read, request)
            case "BatchGetItem":
                keys = sum(len(each["Keys"]) for each in request["RequestItems"].values())
                units["dynamodb_read"] = _read(keys, {})
            case "Query" | "Scan":
                size = sum(item_bytes(each) for each in answer["Items"])
                units["dynamodb_read"] = _read(chunks(size, _READ), request)
            case _:
                raise ValueError(f"{operation} has no price here; say what it counts as")
        return units

    def _index_writes(self, item: Item) -> int:
        """To come or to go is one write to an index, to move is two, to stay none."""
        if SORT_KEY not in item:
            return 0  # another table's
        key = item[PARTITION_KEY]["S"], item[SORT_KEY]["S"]
        before = self._due.pop(key, None)
        after = item.get(INDEX_SORT_KEY, {}).get("N")
        if after is not None:
            self._due[key] = after
        if before == after:
            return 0
        return _INDEXES * ((before is not None) + (after is not None))


def _read(units: int, request: Mapping[str, Any]) -> Any:
    """Half as many where the answer may be a little old."""
    return units if request.get("ConsistentRead") else units / 2


def _is_refused(answer: Mapping[str, Any]) -> bool:
    return "ConditionalCheckFailed" in answer.get("__type", "")


class Meter(CallProxy):
    """Counts the calls that go to `url`, its own address, while in its `with` block; `upstream` answers them.

    `calls` counts them by action, `units` what they are billed as. A request of SQS counts by the larger of
    what went and came, as it is on the wire: a little more than what AWS meters, which leaves out the JSON
    around it. A read that found nothing is not counted: it is the price of waiting, not of events. A publish
    costs what `publish` says: to an ingest rule nothing (IoT Core, Basic Ingest).
    """

    def __init__(self, upstream: str, publish: Units | None = None) -> None:
        super().__init__(upstream)
        self.units: Units = Counter()
        self.calls: Counter[str] = Counter()
        self._publish = publish or Units()
        self._lock = threading.Lock()
        self._dynamodb = DynamoDbUnits()

    def answer(self, call: ProxyCall) -> ProxyAnswer:
        """Pass the call on and count it."""
        answer = self.forward(call)
        with self._lock:
            self.count(call.action, call.body, answer.body)
        return answer

    def take(self) -> Units:
        """The units since the last time."""
        with self._lock:
            units, self.units = self.units, Counter()
            return units

    def count(self, action: str, request: bytes, answer: bytes) -> None:
        """Add a call. Raises ValueError for an action that has no price here."""
        self.calls[action] += 1
        if action == "AmazonSQS.ReceiveMessage" and b'"Messages"' not in answer:
            return
        if action.startswith("AmazonSQS."):
            self.units["sqs_request"] += chunks(max(len(request), len(answer)), SQS_BYTES)
        elif action.startswith(DYNAMODB):
            operation = action.removeprefix(DYNAMODB)
            self.units += self._dynamodb.units(operation, json.loads(request), json.loads(answer))
        elif action == "PUT":
            self.units["s3_put"] += 1
        elif action in ("GET", "HEAD"):
            self.units["s3_get"] += 1
        elif action == PUBLISH:
            self.units += self._publish
        elif action.startswith("secretsmanager."):
            self.units["secret_call"] += 1
        else:
            raise ValueError(f"{action} has no price here; say what it counts as")
