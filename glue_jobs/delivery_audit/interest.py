"""Routes whose readers have announced what they handle: what was rightly not forwarded.

The judgement of `eventplane.interest`, as Spark columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.contract import Contract, Priority
from eventplane.delivery import DEAD_LETTER_TYPE
from eventplane.device_reports import REPORT_PREFIX
from eventplane.severity import SEVERITY_NUMBERS, priority_of
from glue_jobs.delivery_audit.attributes import Attributes

UNWANTED: Final = "~"
"""Stands before the name of a route that takes an event and does not forward it. No name begins so."""

_URGENT_SEVERITY: Final = min(
    each for each in SEVERITY_NUMBERS if Priority(priority_of(each)) is Priority.URGENT
)


def always_wanted(contract: Contract, attributes: Attributes) -> Column:
    """Whether an event of a device is forwarded whatever was announced."""
    by_type: dict[bool, list[str]] = {True: [DEAD_LETTER_TYPE], False: []}
    for each in contract.event_types.values():
        if each.priority:
            by_type[each.priority is Priority.URGENT].append(each.name)
    type, severity = attributes.texts["type"], attributes.texts["severitynumber"].cast("int")
    by_channel = sf.lit(contract.device.outbox.priority is Priority.URGENT)
    return (
        sf.when(type.isin(by_type[True]) | type.startswith(REPORT_PREFIX), sf.lit(True))
        .when(type.isin(by_type[False]), sf.lit(False))
        .otherwise(sf.coalesce(severity >= _URGENT_SEVERITY, by_channel))
    )


def parted(routes: Column, contracts: Iterable[Contract]) -> tuple[Column, Column]:
    """Of names of routes those to which an event was to be forwarded, and those to which it was not."""
    if all(route.interest is None for contract in contracts for route in contract.routes):
        # Most archives: nothing to tell apart, nothing to pay for.
        return routes, sf.array().cast("array<string>")
    unwanted = sf.filter(routes, lambda each: each.startswith(UNWANTED))
    forwarded = sf.filter(routes, lambda each: ~each.startswith(UNWANTED))
    return forwarded, sf.transform(unwanted, lambda each: sf.substring(each, len(UNWANTED) + 1, 1_000))
