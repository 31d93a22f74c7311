"""The evidence: every event that is not where the contract says, with what is needed to follow it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.deliveries import Verdict
from glue_jobs.delivery_audit.hops import Hop

_HOPS = {
    Verdict.LOST: Hop.CLOUD_TO_INBOX,
    Verdict.MISROUTED: Hop.CLOUD_TO_INBOX,
    Verdict.UNEXPLAINED: Hop.TAP,
}


def findings(deliveries: DataFrame, refusals: DataFrame) -> DataFrame:
    """One row a finding: `kind` (a verdict), `hop`, the event, its route, and the archive's `file` with it.

    A refused item without a record is lost as well; it is no event, so `source`, `id` and `route` are
    null and `reason` says why it was refused.
    """
    hop = sf.create_map(*(sf.lit(str(word)) for pair in _HOPS.items() for word in pair))
    events = deliveries.where(sf.col("verdict").isin([str(each) for each in _HOPS])).select(
        "date",
        sf.col("verdict").alias("kind"),
        hop[sf.col("verdict")].alias("hop"),
        "source",
        "id",
        "type",
        "route",
        "destination",
        "client_id",
        "contract_version",
        "accepted_at_ms",
        sf.lit(None).cast("string").alias("reason"),
        "file",
    )
    items = refusals.where(sf.col("missing") > 0).select(
        "date",
        sf.lit(Verdict.LOST).alias("kind"),
        sf.lit(Hop.CLOUD_TO_INBOX).alias("hop"),
        "client_id",
        "accepted_at_ms",
        "reason",
        "file",
        sf.explode(sf.sequence(sf.lit(1), sf.col("missing"))).alias("item"),
    )
    return events.unionByName(items.drop("item"), allowMissingColumns=True)
