"""Items that the cloud refused, against the router's own record of them.

Counts are compared, not items: what is no event has no source and id, and the tap's queue gave its message
another id than the router's queue did. The device, the reason and the time of acceptance both have. Neither
queue delivers just once, so the tap's copies are told by place and bytes, the router's by its attempts.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.delivery import Outcome
from glue_jobs.delivery_audit.verdicts import UNBACKED


def recorded_items() -> Column:
    """Of a case: `refused`, `recorded` and `missing` (what `recorded` falls short); null for an event."""
    different = sf.array_distinct(
        sf.transform("items", lambda each: sf.struct(each["index"], each["digest"]))
    )
    refused = sf.size(different)
    recorded = sf.coalesce(_recorded(), sf.lit(0))
    counts = sf.struct(
        refused.alias("refused"),
        recorded.alias("recorded"),
        sf.greatest(refused - recorded, sf.lit(0)).alias("missing"),
        sf.coalesce(sf.get("items", sf.lit(0))["reason"], sf.get("decisions", sf.lit(0))["reason"]).alias(
            "reason"
        ),
        sf.get("items", sf.lit(0))["client_id"].alias("client_id"),
        sf.array_min(sf.transform("items", lambda each: each["accepted_at_ms"])).alias("accepted_at_ms"),
        sf.array_min(sf.transform("items", lambda each: each["file"])).alias("file"),
    )
    is_item = sf.col("source").isNull() & sf.col("bad").isNull() & sf.col("within")
    return sf.when(is_item & ((sf.size("items") > 0) | (sf.size("decisions") > 0)), counts)


def _recorded() -> Column:
    """How many dead letters of items there are.

    A message that came again was recorded again, all its items in each attempt: the largest attempt counts.
    """
    dead = sf.filter(
        "decisions",
        lambda each: each["item"].isNotNull() & (each["outcome"].isin(Outcome.DEAD_LETTERED, UNBACKED)),
    )
    messages = sf.array_distinct(sf.transform(dead, lambda each: each["item"]["message_id"]))

    def of_message(message: Column) -> Column:
        attempts = sf.transform(
            sf.filter(dead, lambda each: each["item"]["message_id"] == message),
            lambda each: each["item"]["attempt"],
        )
        counts = sf.transform(attempts, lambda one: sf.size(sf.filter(attempts, lambda other: other == one)))
        return sf.array_max(counts)

    return sf.aggregate(sf.transform(messages, of_message), sf.lit(0), lambda total, each: total + each)
