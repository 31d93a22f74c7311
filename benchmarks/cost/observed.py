"""What the cloud itself tells of a run: batches of the event source mappings, invocations, logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.cloud.functions import PREFIX, Invocations, invocations
from benchmarks.cost.prices import IOT_BYTES, SQS_BYTES, Units, chunks
from benchmarks.cost.regimes import ARCHIVE_WRITER, PRODUCTION, ROUTER
from eventplane.ingest import IngestFrame, frame_text
from local.cloud import CloudEndpoint

_POLL: Final = 10
"""Messages that Lambda's pollers take and delete with one request."""

_ACTIONS: Final = 2
"""Of the ingest rule: the router's queue and the tap's."""

TRACED: Final = 0.05
"""Share of invocations that X-Ray records by its default rule (one more a second is left out)."""

_PROCESSED: Final = re.compile(rf"ESM: Lambda {PREFIX}(\S+) processed (\d+) SQS messages")


def batches(log: Path) -> list[tuple[str, int]]:
    """Function and number of messages of each batch that the emulator's `log` tells of."""
    return [(found[1], int(found[2])) for found in _PROCESSED.finditer(log.read_text(errors="replace"))]


def spared(batches: Sequence[tuple[str, int]], held: Mapping[str, int]) -> int:
    """How many invocations fewer there had been, had those in `held` got as many messages as they may.

    The emulator gives ten at most, whatever a mapping says.
    """
    of_held = [(function, messages) for function, messages in batches if function in held]
    messages: Counter[str] = Counter()
    for function, number in of_held:
        messages[function] += number
    return len(of_held) - sum(-(-number // held[function]) for function, number in messages.items())


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


def compute(used: dict[str, Invocations]) -> Units:
    """Requests and GB-seconds, with the memory that production gives each function."""
    units = Units()
    for name, each in used.items():
        units["lambda_request"] += each.number
        gb = memory_mib(name) / 1024
        units["lambda_gb_s"] += each.total_ms / 1000 * gb  # type: ignore[assignment]
    return units


def memory_mib(function: str) -> int:
    """What production gives the function."""
    sizes = {ARCHIVE_WRITER: PRODUCTION.archive_writer, ROUTER: PRODUCTION.router}
    return sizes.get(function, PRODUCTION.urgent_router).memory_mib


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
