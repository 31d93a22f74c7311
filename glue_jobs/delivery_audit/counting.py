"""One pass over all deliveries, summed by what the report and the tables want to know."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import DEAD_LETTER_TYPE
from glue_jobs.delivery_audit.figures import Figures
from glue_jobs.delivery_audit.route_filters import NO_ROUTE
from glue_jobs.delivery_audit.verdicts import Verdict
from glue_jobs.delivery_audit.watermark import Watermark


def figures(deliveries: DataFrame, watermark: Watermark) -> Figures:
    """Count the window's deliveries, in one pass."""
    leads = sf.col("leads") & sf.col("in_tap")
    items, end, bad = sf.col("items"), sf.col("consumption"), sf.col("bad")
    reason = sf.coalesce("dead_letter_reason", sf.lit(""))
    owed = (
        (sf.col("verdict") == Verdict.LOST) & (sf.col("route") != NO_ROUTE) & sf.col("tap_file").isNotNull()
    )
    keys = {
        "date": sf.col("date"),
        "route": sf.col("route"),
        "destination": sf.col("destination"),
        "verdict": sf.col("verdict"),
        "contract_version": sf.col("contract_version"),
        "end": end["verdict"],
        "device_letter": sf.when(leads & (sf.col("type") == DEAD_LETTER_TYPE), reason),
        "letters": sf.col("letters"),
        "item": sf.when(items.isNotNull(), sf.coalesce(items["reason"], sf.lit(""))),
        "bad_archive": bad["archive"],
        "bad_reason": bad["reason"],
    }
    sums: dict[str, Column] = {
        "duplicated": sf.greatest(sf.col("delivered") - 1, sf.lit(0)),
        "replayed": _one(sf.col("replayed")),
        "events": _one(leads),
        "tap_copies": sf.when(leads, sf.col("copies") - 1),
        "delivered_unique": _one(sf.col("opens_inbox")),
        "delivered_total": sf.col("delivered"),
        "may_expire": _one(sf.col("opens_inbox") & sf.col("may_expire") & end.isNull()),
        "tap_rows": sf.col("tap_rows"),
        "ledger_rows": sf.col("ledger_rows"),
        "recorded": items["recorded"],
        "missing": items["missing"],
        "young_items": sf.when(watermark.is_open(items["accepted_at_ms"]), items["missing"]),
        "handed_over_again": sf.greatest(end["handed_over"] - end["put"], sf.lit(0)),
        "to_replay": _one(owed),
    }
    accepted_at_ms = sf.coalesce("accepted_at_ms", items["accepted_at_ms"])
    groups = (
        deliveries.where("within")
        .groupBy(*(column.alias(name) for name, column in keys.items()))
        .agg(
            sf.count(sf.lit(1)).alias("rows"),
            *(sf.coalesce(sf.sum(column), sf.lit(0)).alias(name) for name, column in sums.items()),
            sf.min(accepted_at_ms).alias("first_accepted_ms"),
            sf.max(accepted_at_ms).alias("last_accepted_ms"),
            sf.min("decided_at_ms").alias("first_decided_ms"),
            sf.min(bad["archive_file"]).alias("bad_file"),
        )
    )
    return Figures(groups.collect())


def _one(applies: Column) -> Column:
    return sf.when(applies, 1).otherwise(0)
