"""One claimed identity from several senders: the events are told apart, and the evidence names them."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.finding_rows import FINDING, finding
from glue_jobs.delivery_audit.findings import Kind
from glue_jobs.delivery_audit.hops import Hop


def two_senders(deliveries: DataFrame) -> DataFrame:
    """Return a finding for each event whose `source` and `id` another sender has used too."""
    events = deliveries.where("within and leads and source is not null and sender is not null")
    events = events.withColumn("claim", sf.xxhash64("source", "id"))
    # Hashes are shuffled in place of texts. Claims may share one: what is left is compared as texts.
    sender = sf.xxhash64("sender")
    by_claim = events.groupBy("claim").agg(sf.min(sender).alias("least"), sf.max(sender).alias("most"))
    suspects = events.join(sf.broadcast(by_claim.where("least <> most")), "claim", "left_semi")
    senders = sf.array_sort(sf.collect_set("sender").over(Window.partitionBy("source", "id")))
    several = suspects.withColumn("senders", senders).where(sf.size("senders") > 1)
    told = finding(Kind.TWO_SENDERS, Hop.DEVICE_CLOUD, sf.concat_ws(", ", "senders"))
    return several.select(sf.inline(sf.array(told))).select(*FINDING.names)
