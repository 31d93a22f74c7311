"""What was used between two moments: billable units, and requests by what they ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cloud.functions import Invocations
from benchmarks.cost import observed
from benchmarks.cost.prices import Units
from stacks.config import ENVIRONMENTS

SENDER: Final = "carers"
DEVICE_ROUTERS: Final = ("router-device", "router-device-urgent")
DUE: Final = "downlink-due"
RECONCILER: Final = "downlink-reconciler"
METERED: Final = (
    f"router-{SENDER}",
    *DEVICE_ROUTERS,
    "downlink-desired",
    "downlink-answers",
    DUE,
    RECONCILER,
)
"""All that an update meets on its way down and its acknowledgement on its way up, without the archive."""

PRODUCTION: Final = ENVIRONMENTS["prod"]

PUBLISH: Final = "POST"
"""How a meter sees a publish to a device: no other API that these functions call is a POST without target."""

_MESSAGE_BYTES: Final = 1_024
_NAMES: Final = {PUBLISH: "Publish", "PUT": "PutObject"}

Batches = Sequence[tuple[str, int]]
"""Functions, and how many messages each batch had."""


@dataclass(frozen=True, slots=True)
class Used:
    """Billable `units`; `requests` to APIs, by what they ask."""

    units: Units
    requests: Counter[str]


def used(
    metered: Units, calls: Counter[str], sent: int, batches: Batches, invoked: dict[str, Invocations]
) -> Used:
    """What the meter, the sender (`sent` requests), the emulator's log and the functions' logs tell."""
    published = messages(batches, DEVICE_ROUTERS)
    polled = observed.pollers(batches, _MESSAGE_BYTES)
    units = metered + way_up(published) + polled + compute(invoked)
    units["sqs_request"] += sent
    requests = Counter(
        {_NAMES.get(name, name.rpartition(".")[2]): number for name, number in calls.items() if number}
    )
    others = {"by the sender": sent, "by the rule": 2 * published, "by pollers": polled["sqs_request"]}
    return Used(units, requests + Counter(others))


def messages(batches: Batches, functions: Sequence[str]) -> int:
    """How many of them `functions` had."""
    return sum(number for name, number in batches if name in functions)


def way_up(publishes: int) -> Units:
    """Of acknowledgements: the rule, its two actions, and what these write; a publish is below 5 KB."""
    return Units({"iot_rule": publishes, "iot_action": 2 * publishes, "sqs_request": 2 * publishes})


def compute(invoked: dict[str, Invocations]) -> Units:
    """Requests and GB-seconds, with the memory that production gives each function."""
    units = Units()
    for name, each in invoked.items():
        units["lambda_request"] += each.number
        units["lambda_gb_s"] += each.total_ms / 1_000 * memory_mib(name) / 1_024  # type: ignore[assignment]
    return units


def memory_mib(function: str) -> int:
    """What production gives the function."""
    if function == RECONCILER:
        return PRODUCTION.downlink.reconciler.memory_mib
    is_router = function.startswith("router-")
    return (PRODUCTION.router if is_router else PRODUCTION.downlink.reader).memory_mib
