"""Order, where a channel promises it (`ordering: source`): events that were overtaken."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from eventplane.contract import Ordering, Transport
from glue_jobs.delivery_audit.contracts import ContractHistory


def overtaken(deliveries: DataFrame, history: ContractHistory) -> DataFrame | None:
    """The deliveries, with `overtaken_at_ms`, that came after one that was sent later; None: nobody promises.

    Sent means numbered by the device, or for what entered in the cloud the time it entered; first deliveries
    count. Within one millisecond the archive knows no order, so none is broken there. One event that comes
    late is one row, however many came before it.
    """
    ordered = {
        participant.inbox.address
        for contract in history.contracts
        for participant in contract.participants.values()
        # A standard queue delivers in any order; there the reader sorts, behind what the archive sees.
        if participant.inbox.ordering is Ordering.SOURCE and participant.inbox.transport is not Transport.SQS
    }
    if not ordered:
        return None
    delivered = deliveries.where((sf.col("delivered") > 0) & sf.col("destination").isin(*ordered))
    sent = delivered.withColumns(
        {
            "sent": -sf.coalesce("sequence", "entered_at_ms"),
            "group": sf.coalesce("partition", "source"),
        }
    )
    # From the last to the first: so the least that came later is known from row to row.
    later = (
        Window.partitionBy("destination", "client_id", "epoch", "group")
        .orderBy("sent")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    seen = sent.withColumn("overtaken_at_ms", sf.min("delivered_at_ms").over(later))
    return seen.where(sf.col("overtaken_at_ms") < sf.col("delivered_at_ms"))
