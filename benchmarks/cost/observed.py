"""What the cloud itself tells of a run: batches of the event source mappings, invocations, logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.cloud.functions import PREFIX, Invocations, invocations
from benchmarks.cost.deployment import Deployment
from benchmarks.cost.idle import Series
from benchmarks.cost.prices import IOT_BYTES, SQS_BYTES, Units, chunks
from eventplane.ingest import IngestFrame, frame_text
from local.cloud import CloudEndpoint

_POLL: Final = 10
"""Messages that Lambda's pollers take and delete with one request."""

_ACTIONS: Final = 2
"""Of the ingest rule: the router's queue and the tap's."""

_PROCESSED: Final = re.compile(rf"ESM: Lambda {PREFIX}(\S+) processed (\d+) SQS messages")


def batches(log: Path) -> list[tuple[str, int]]:
    """Function and number of messages of each batch that the emulator's `log` tells of."""
    return [(found[1], int(found[2])) for found in _PROCESSED.finditer(log.read_text(errors="replace"))]


def frame_bytes(payload: bytes) -> int:
    """What the rule makes of a publish, as a queue message."""
    return len(frame_text(IngestFrame(payload, "devices/bench-home/outbox", "bench-home", "0" * 64, 10**12)))


def way_in(payloads: Sequence[bytes]) -> Units:
    """The rule, its two actions, and what these write to the queues."""
    units = Units()
    for payload in payloads:
        metered = chunks(len(payload), IOT_BYTES)
        units["iot_rule"] += metered
        units["iot_action"] += _ACTIONS * metered
        units["sqs_request"] += _ACTIONS * chunks(frame_bytes(payload), SQS_BYTES)
    return units


def pollers(batches: Sequence[tuple[str, int]], frame: int) -> Units:
    """Receiving and deleting the messages, of `frame` bytes each, that the `batches` had."""
    units = Units()
    for _, messages in batches:
        while messages > 0:
            units["sqs_request"] += chunks(min(messages, _POLL) * frame, SQS_BYTES) + 1
            messages -= _POLL
    return units


def compute(used: dict[str, Invocations], deployment: Deployment) -> Units:
    """Requests and GB-seconds, with the memory that `deployment` gives each function."""
    units = Units()
    for name, each in used.items():
        units["lambda_request"] += each.number
        gb = deployment.functions[name].memory_mib / 1024
        units["lambda_gb_s"] += each.total_ms / 1000 * gb  # type: ignore[assignment]
    return units


def used_since(cloud: CloudEndpoint, earlier: dict[str, Invocations]) -> dict[str, Invocations]:
    """What the functions ran beyond what was noted `earlier`."""
    none = Invocations(0, 0.0)
    found = {name: each.since(earlier.get(name, none)) for name, each in invocations(cloud).items()}
    return {name: each for name, each in found.items() if each.number}


def log_bytes(cloud: CloudEndpoint) -> int:
    """All that the functions logged so far, as CloudWatch counts it: 26 bytes more for each line."""
    logs: Any = cloud.client("logs")
    groups = logs.describe_log_groups(logGroupNamePrefix=f"/aws/lambda/{PREFIX}")["logGroups"]
    return sum(
        len(each["message"].encode()) + 26
        for group in groups
        for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group["logGroupName"])
        for each in page["events"]
    )


def series(cloud: CloudEndpoint, functions: Iterable[str]) -> Series:
    """The metrics that `functions` have ever written to their logs, as CloudWatch tells them apart."""
    logs: Any = cloud.client("logs")
    found = set()
    for function in functions:
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName=f"/aws/lambda/{PREFIX}{function}", filterPattern="CloudWatchMetrics"
        )
        for message in (each["message"] for page in pages for each in page["events"]):
            found |= _series(message)
    return frozenset(found)


def _series(line: str) -> set[tuple[str, ...]]:
    try:
        document = json.loads(line)
        told = document["_aws"]["CloudWatchMetrics"]
    except (ValueError, LookupError, TypeError):
        return set()
    return {
        (each["Namespace"], metric["Name"], *(f"{name}={document[name]}" for name in dimensions))
        for each in told
        for dimensions in each["Dimensions"]
        for metric in each["Metrics"]
    }
