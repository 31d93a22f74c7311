"""Requests counted between client and emulator, and a run of the plane that they price."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eventplane.downlink.table import INDEX_SORT_KEY, PARTITION_KEY, SORT_KEY
from eventplane.ingest import IngestFrame, frame_text
from eventplane_aws.prices import IOT_BYTES, SQS_BYTES, Units, chunks
from lab.aws_requests import item_bytes
from lab.benchmarks.cloud.plane import PREFIX, Invocations, invocations
from lab.benchmarks.cost.deployment import PricedFunction, PricedPlane
from lab.benchmarks.cost.months import Series
from lab.cloud import CloudEndpoint, function_logs
from lab.plane import Plane, invoke
from lab.proxy import CallProxy, ProxyAnswer, ProxyCall
from tests.eventually import eventually

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


RECEIVED: Final = 10
"""Messages that Lambda's pollers take and delete with one request."""

_ACTIONS: Final = 2
"""Of the ingest rule: the router's queue and the tap's."""

_LINE_BYTES: Final = 26
"""What CloudWatch adds to each line of a log."""

_PROCESSED: Final = re.compile(rf"ESM: Lambda {PREFIX}(\S+) processed (\d+) SQS messages")
_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True)
class MeteredBatch:
    """Messages that one invocation got, their bytes, and how many of them it has done."""

    function: str
    messages: int
    bytes: int
    taken: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: calls, batches and invocations until then."""

    calls: Counter[str]
    batches: int
    invoked: dict[str, Invocations]


class MeteredPlane:
    """`meter` is in the calls of the functions of `plane`, whose emulator writes `log`.

    Sizes and prices are those of `production`.
    """

    def __init__(self, plane: Plane, production: PricedPlane, meter: Meter, log: Path) -> None:
        self.plane = plane
        self.production = production
        self.meter = meter
        self.log = log
        self._lambda: Any = plane.cloud.client("lambda")

    def meter_calls(self, function: str) -> None:
        """Route the calls of `function` through the meter; let it refresh the contract as in production."""
        name = PREFIX + function
        variables = self._lambda.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        variables |= {"AWS_ENDPOINT_URL": self.meter.url}
        if "EVENTPLANE_CONTRACT_REFRESH_S" in variables:
            refresh_s = self.production.environment.contract_refresh_s
            variables["EVENTPLANE_CONTRACT_REFRESH_S"] = str(refresh_s)
        self._lambda.update_function_configuration(FunctionName=name, Environment={"Variables": variables})

    def invoke(self, function: str, payload: str) -> Any:
        """Call `function` and return its answer. Raises `FunctionFailedError`."""
        return invoke(self.plane.cloud, PREFIX + function, json.loads(payload))

    def mark(self) -> Mark:
        """Now; what is used counts from here."""
        self.meter.take()
        batches = len(_batches(self.log))
        return Mark(Counter(self.meter.calls), batches, invocations(self.plane.cloud))

    def calls(self, mark: Mark) -> Counter[str]:
        """The functions' calls since `mark`, by action."""
        calls = Counter(self.meter.calls)
        calls.subtract(mark.calls)
        return calls

    def batches(self, mark: Mark, frame: int) -> list[MeteredBatch]:
        """The batches of the emulator's event source mappings since `mark`, of `frame` bytes a message."""
        return [
            MeteredBatch(function, number, number * frame, number)
            for function, number in _batches(self.log)[mark.batches :]
        ]

    def invoked(self, mark: Mark) -> dict[str, Invocations]:
        """Return the invocations of each function since `mark`, if any."""
        none = Invocations(0, 0.0)
        found = invocations(self.plane.cloud).items()
        since = {name: each.since(mark.invoked.get(name, none)) for name, each in found}
        return {name: each for name, each in since.items() if each.number}

    def wait(self, is_true: Callable[[], bool], what: str) -> None:
        """Wait until `is_true`. Raises SystemExit when `what` took too long."""
        if not eventually(is_true, _SECONDS, 0.1):
            raise SystemExit(f"{what}: not done after {_SECONDS:.0f} s; see {self.log}")


def _batches(log: Path) -> list[tuple[str, int]]:
    """Function and number of messages of each batch that the emulator's `log` names."""
    return [(found[1], int(found[2])) for found in _PROCESSED.finditer(log.read_text(errors="replace"))]


def frame_bytes(payload: bytes) -> int:
    """The size of what the rule makes of a publish, as a queue message."""
    return len(frame_text(IngestFrame(payload, "devices/bench-home/outbox", "bench-home", "0" * 64, 10**12)))


def way_in(payloads: Iterable[bytes]) -> Units:
    """Return units of devices' publishes: the rule, its two actions, and what these write to the queues."""
    units = Units()
    for payload in payloads:
        metered = chunks(len(payload), IOT_BYTES)
        units["iot_rule"] += metered
        units["iot_action"] += _ACTIONS * metered
        units["sqs_request"] += _ACTIONS * chunks(frame_bytes(payload), SQS_BYTES)
    return units


def polled(batches: Sequence[MeteredBatch]) -> Units:
    """Receiving and deleting the messages of `batches`."""
    units = Units()
    for each in batches:
        for start in range(0, each.messages, RECEIVED):
            share = min(RECEIVED, each.messages - start) / each.messages
            units["sqs_request"] += chunks(round(share * each.bytes), SQS_BYTES) + 1
    return units


def compute(invoked: Mapping[str, Invocations], functions: Mapping[str, PricedFunction]) -> Units:
    """Requests and GB-seconds, with the memory that each of the `functions` has."""
    units = Units()
    for name, each in invoked.items():
        units["lambda_request"] += each.number
        units["lambda_gb_s"] += each.total_ms / 1000 * functions[name].memory_mib / 1024
    return units


def log_bytes(cloud: CloudEndpoint) -> int:
    """All that the functions logged so far, as CloudWatch counts it."""
    return sum(len(each["message"].encode()) + _LINE_BYTES for _, each in function_logs(cloud, PREFIX))


def series(cloud: CloudEndpoint, functions: Iterable[str]) -> Series:
    """The metrics that `functions` have ever written to their logs, as CloudWatch tells them apart."""
    lines = function_logs(cloud, PREFIX, "CloudWatchMetrics")
    wanted = {PREFIX + each for each in functions}
    return frozenset().union(*(_series(each["message"]) for name, each in lines if name in wanted))


def _series(line: str) -> set[tuple[str, ...]]:
    try:
        document = json.loads(line)
        metrics = document["_aws"]["CloudWatchMetrics"]
    except (ValueError, LookupError, TypeError):
        return set()
    return {
        (each["Namespace"], metric["Name"], *(f"{name}={document[name]}" for name in dimensions))
        for each in metrics
        for dimensions in each["Dimensions"]
        for metric in each["Metrics"]
    }
