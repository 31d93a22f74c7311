"""The deployed plane with a meter in the calls of its functions, and what its logs say of a run."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eventplane.ingest import IngestFrame, frame_text
from eventplane_aws.prices import IOT_BYTES, SQS_BYTES, Units, chunks
from lab.benchmarks.cloud.plane import PREFIX, Invocations, invocations
from lab.benchmarks.cost.deployment import PricedFunction, PricedPlane
from lab.benchmarks.cost.meter import Meter
from lab.benchmarks.cost.months import Series
from lab.cloud import CloudEndpoint, function_logs
from lab.plane import Plane, invoke
from tests.eventually import eventually

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
